//! Reads objects from the API directly, for tests that poll: each kubectl process would take 0.1 s of CPU time.

use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{LazyLock, mpsc},
    time::Duration,
};
use tokio::runtime::{Builder, Runtime};

/// Request timeout. After it, the caller runs kubectl, which reports the error.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));
/// Clients by kubeconfig path, with the file's content when the client was created.
static CLIENTS: Mutex<BTreeMap<PathBuf, (String, Client)>> = Mutex::new(BTreeMap::new());

/// Reads an object as `kubectl get -o json` prints it.
///
/// Returns `Some(None)` when the object does not exist, and `None` when the caller must run kubectl, because the kind is not
/// known here or the request failed.
pub(crate) fn get(kubeconfig: &Path, namespace: &str, object: &str) -> Option<Option<Value>> {
    let path = path(namespace, object)?;
    let (sender, receiver) = mpsc::channel();
    let kubeconfig = kubeconfig.to_owned();
    // The caller may be on a thread of another runtime, which must not block on a future.
    RUNTIME.spawn(async move {
        let _ = sender.send(
            tokio::time::timeout(crate::scaled(REQUEST_TIMEOUT), request(&kubeconfig, &path)).await.ok().flatten(),
        );
    });
    receiver.recv().ok().flatten()
}

async fn request(kubeconfig: &Path, path: &str) -> Option<Option<Value>> {
    let client = client(kubeconfig).await?;
    let request = hyper::Request::get(path).body(Body::empty()).ok()?;
    let response = client.send(request).await.ok()?;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?.to_bytes();
    match code {
        404 => Some(None),
        200 => {
            let mut object: Value = serde_json::from_slice(&body).ok()?;
            object["metadata"].as_object_mut()?.remove("managedFields");
            Some(Some(object))
        }
        _ => None,
    }
}

async fn client(kubeconfig: &Path) -> Option<Client> {
    let text = std::fs::read_to_string(kubeconfig).ok()?;
    if let Some((_, client)) = CLIENTS.lock().get(kubeconfig).filter(|(known, _)| *known == text) {
        return Some(client.clone());
    }
    let config = Kubeconfig::from_yaml(&text).ok()?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.ok()?;
    let client = Client::try_from(config).ok()?;
    CLIENTS.lock().insert(kubeconfig.to_owned(), (text, client.clone()));
    Some(client)
}

/// Returns the API path of an object given as `kind/name`, if its kind is one that tests often read.
fn path(namespace: &str, object: &str) -> Option<String> {
    let (kind, name) = object.split_once('/')?;
    let namespaced = |api: &str, plural: &str| Some(format!("/{api}/namespaces/{namespace}/{plural}/{name}"));
    match kind {
        "node" => Some(format!("/api/v1/nodes/{name}")),
        "pod" | "configmap" | "service" | "secret" | "persistentvolumeclaim" => {
            namespaced("api/v1", &format!("{kind}s"))
        }
        "deployment" | "statefulset" | "replicaset" | "daemonset" => namespaced("apis/apps/v1", &format!("{kind}s")),
        "job" | "cronjob" => namespaced("apis/batch/v1", &format!("{kind}s")),
        _ => None,
    }
}
