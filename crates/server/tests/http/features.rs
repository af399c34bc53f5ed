//! Fields that belong to a feature that may be off.

use crate::common::*;
use api::feature_gates::FeatureGates;
use serde_json::{Value, json};

/// The server with these features; the store is the same.
fn with_gates(api: &Api, gates: &str) -> Api {
    let server = api.server.clone().with_gates(FeatureGates::parse(gates).unwrap());
    Api { server, engine: api.engine.clone() }
}

const SIGNALS: &str = "ContainerStopSignals=true";

fn with_signal(name: &str, os: Option<&str>, signal: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": signal});
    if let Some(os) = os {
        object["spec"]["os"] = json!({"name": os});
    }
    object
}

#[tokio::test]
async fn a_stop_signal_is_dropped_while_its_feature_is_off_and_stays_where_it_was() {
    let off = Api::new().await;
    let on = with_gates(&off, SIGNALS);
    let answer = off.check(post(PODS, &with_signal("dropped", None, "SIGNOTHING")), 201, json!({})).await;
    assert_eq!(answer.body["spec"]["containers"][0].get("lifecycle"), None);
    let mut with_hook = with_signal("hook", None, "SIGUSR1");
    with_hook["spec"]["containers"][0]["lifecycle"]["preStop"] = json!({"sleep": {"seconds": 1}});
    let answer = off.check(post(PODS, &with_hook), 201, json!({})).await;
    assert_eq!(answer.body["spec"]["containers"][0]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
    // A Pod of the time when it was on may be changed in other ways.
    let kept = on.check(post(PODS, &with_signal("kept", Some("linux"), "SIGUSR1")), 201, json!({})).await.body;
    assert_eq!(kept["spec"]["containers"][0]["lifecycle"], json!({"stopSignal": "SIGUSR1"}));
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let lifecycle = json!({"spec": {"containers": [{"lifecycle": {"stopSignal": "SIGUSR1"}}]}});
    off.check(merge(format!("{PODS}/kept"), &change), 200, lifecycle).await;
}

#[tokio::test]
async fn a_stop_signal_must_be_one_of_the_pods_system() {
    let api = with_gates(&Api::new().await, SIGNALS);
    let field = "spec.containers[0].lifecycle.stopSignal";
    for (os, signal, expected) in [
        (Some("linux"), "SIGRTMIN+15", None),
        (Some("linux"), "SIGRTMAX-14", None),
        (Some("windows"), "SIGKILL", None),
        (None, "SIGUSR1", Some(("Forbidden", "Forbidden: may not be set for containers with empty `spec.os.name`"))),
        (
            Some("windows"),
            "SIGUSR1",
            Some(("NotSupported", "Unsupported value: \"SIGUSR1\": supported values: \"SIGKILL\", \"SIGTERM\"")),
        ),
    ] {
        let ask = post(format!("{PODS}?dryRun=All"), &with_signal("p", os, signal));
        match expected {
            None => drop(api.check(ask, 201, json!({})).await),
            Some((reason, message)) => {
                let cause = json!({"field": field, "reason": format!("FieldValue{reason}"), "message": message});
                api.check(ask, 422, json!({"details": {"causes": [cause]}})).await;
            }
        }
    }
    // Names only: no numbers, and none without `SIG`.
    for signal in ["USR1", "10", "SIGRTMIN+16", "sigterm"] {
        let answer = api.check(post(PODS, &with_signal("p", Some("linux"), signal)), 422, json!({})).await;
        let message = answer.body["message"].as_str().unwrap();
        let expected = format!("{field}: Unsupported value: {signal:?}: supported values: \"SIGABRT\", \"SIGALRM\"");
        assert!(message.contains(&expected), "{message}");
    }
    // A sidecar may have one, an init container has no lifecycle.
    let with_init = |init: Value| {
        let mut object = pod("init");
        object["spec"]["os"] = json!({"name": "linux"});
        object["spec"]["initContainers"] = json!([init]);
        object
    };
    let mut init = json!({"name": "i", "image": "i", "lifecycle": {"stopSignal": "SIGHUP"}});
    let cause = json!({"field": "spec.initContainers[0].lifecycle", "reason": "FieldValueForbidden"});
    api.check(post(PODS, &with_init(init.clone())), 422, json!({"details": {"causes": [cause]}})).await;
    init["restartPolicy"] = json!("Always");
    api.check(post(PODS, &with_init(init)), 201, json!({})).await;
}
