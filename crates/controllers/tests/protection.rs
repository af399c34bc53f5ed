//! Tests of the protection controllers against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::Options;
use fake_api::FakeApi;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn start() -> FakeApi {
    let api = FakeApi::new();
    tokio::spawn(controllers::run(api.client(), Options::default(), CancellationToken::new()));
    api
}

const CLAIM: &str = "api/v1/namespaces/x/persistentvolumeclaims/c";
const POD: &str = "api/v1/namespaces/x/pods/p";
const VOLUME: &str = "api/v1/persistentvolumes/v";
const CLASS: &str = "apis/storage.k8s.io/v1/volumeattributesclasses/fast";

fn finalizers(api: &FakeApi, path: &str) -> Value {
    api.get(path).expect("an object")["metadata"]["finalizers"].clone()
}

#[tokio::test(start_paused = true)]
async fn claim_is_deleted_after_its_last_pod() {
    let api = start();
    let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    // No kubelet ends the Pod.
    api.put("api/v1/nodes/n", json!({"metadata": {"name": "n"}, "spec": {}, "status": {}}));
    let spec = json!({"nodeName": "n", "containers": [], "volumes": [volume], "tolerations": [{"operator": "Exists"}]});
    api.put(POD, json!({"metadata": {"name": "p", "namespace": "x"}, "spec": spec, "status": {"phase": "Running"}}));
    api.put(CLAIM, json!({"metadata": {"name": "c", "namespace": "x"}}));
    let held = json!(["kubernetes.io/pvc-protection"]);
    api.wait_until("an old one is held", |api| finalizers(api, CLAIM) == held).await;
    api.delete(CLAIM);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(finalizers(&api, CLAIM), held, "it is used");
    api.remove(POD);
    api.wait_until("it is let go", |api| api.get(CLAIM).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn unbound_volume_is_deleted_then_its_class() {
    let api = start();
    let volume = json!({"metadata": {"name": "v", "finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {"volumeAttributesClassName": "fast", "claimRef": {"namespace": "x", "name": "c", "uid": "1"}},
        "status": {"phase": "Bound"}});
    api.put(
        CLAIM,
        json!({"metadata": {"name": "c", "namespace": "x", "uid": "1"},
        "spec": {"volumeAttributesClassName": "fast", "volumeName": "v"}, "status": {"phase": "Bound"}}),
    );
    api.put(VOLUME, volume);
    api.put(CLASS, json!({"metadata": {"name": "fast"}, "driverName": "d"}));
    api.wait_until("it is held", |api| finalizers(api, CLASS) == json!(["kubernetes.io/vac-protection"])).await;
    api.delete(VOLUME);
    api.delete(CLASS);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(api.get(VOLUME).is_some() && api.get(CLASS).is_some(), "both are used");
    api.remove(CLAIM);
    api.wait_until("both are let go", |api| api.get(VOLUME).is_none() && api.get(CLASS).is_none()).await;
}
