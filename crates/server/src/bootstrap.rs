//! What must be there before anyone asks: the namespaces and priority classes of the system, and who may do what.

use crate::{
    ApiServer, UserInfo,
    authorization::defaults::{self, Default, Reconciled, reconcile},
    custom_resource_definitions,
    kinds::priority_class,
};
use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use std::time::Duration;
use store::{Key, Scope};

/// After what time something is tried again, the first time and at most.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl ApiServer {
    /// Makes the namespaces and priority classes of the system, where they are not there yet.
    pub async fn bootstrap(&self) {
        self.bootstrap_namespaces().await;
        self.tell_authorities().await;
        // What was begun before Podium ended goes on.
        custom_resource_definitions::settle(self).await;
        for class in priority_class::OF_THE_SYSTEM.iter().filter_map(|(name, ..)| priority_class::of_the_system(name)) {
            self.ensure_made("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
    }

    /// Makes the class of storage that claims get which name none: volumes that this provisioner makes when it is known for
    /// which node. As in kind and k3s; it is its user's from then on, and where there are others nobody needs it.
    pub async fn bootstrap_storage_class(&self, name: &str, provisioner: &str) {
        if !self.store.list(&Scope::resource("storageclasses"), None, None).objects.is_empty() {
            return;
        }
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        });
        self.ensure_made("/apis/storage.k8s.io/v1/storageclasses", &class).await;
    }

    pub(crate) async fn bootstrap_namespaces(&self) {
        for name in NAMESPACES.into_iter().filter(|name| self.store.get(&Key::new("namespaces", "", *name)).is_none()) {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.ensure_made("/api/v1/namespaces", &body).await;
        }
    }

    /// Tells servers of other APIs by which authorities they know clients, and this server when it asks for others
    /// (`ClusterAuthenticationTrustController`).
    pub(crate) async fn tell_authorities(&self) {
        let (Some(front), Some(clients)) = (self.aggregation.front(), &self.clients) else { return };
        let name = "extension-apiserver-authentication";
        let data = json!({
            "client-ca-file": **clients, "requestheader-client-ca-file": front.authority,
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]", "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        });
        let all = "/api/v1/namespaces/kube-system/configmaps";
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let Some(stored) = self.store.get(&Key::new("configmaps", "kube-system", name)) else {
            return self.ensure_made(all, &object).await;
        };
        let there: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        if there["data"] != object["data"] {
            object["metadata"] = there["metadata"].clone();
            self.ask(Method::PUT, &format!("{all}/{name}"), &object).await;
        }
    }

    /// Makes upstream's roles and bindings, where they are not there yet, and adds what those that are there lack: all at
    /// once, so that few commits hold them. Who needs them waits from now on until they are there; masters do not.
    pub fn bootstrap_access(&self) -> impl Future<Output = ()> + Send + 'static {
        let (server, settling) = (self.clone(), self.follower.settle());
        async move {
            server.split_bindings().await;
            join_all(defaults::all().into_iter().map(|wanted| server.ensure(wanted))).await;
            drop(settling);
            server.clone().bootstrap_flows().await;
        }
    }

    /// A binding that was a part of another one once is made as that one is: who took somebody away there is not to find
    /// them here (`primeSplitClusterRoleBindings`).
    async fn split_bindings(&self) {
        for (whole, part) in defaults::SPLIT {
            let key = |name: &str| Key::new("clusterrolebindings", "", name);
            let (Some(there), None) = (self.store.get(&key(whole)), self.store.get(&key(part))) else { continue };
            let there: Value = serde_json::from_slice(&there.data).unwrap_or_default();
            let object = defaults::split(&there, part);
            self.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &object).await;
        }
    }

    async fn ensure(&self, wanted: Default) {
        let Default { resource, namespace, name, object } = wanted;
        let place = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        let all = format!("/apis/rbac.authorization.k8s.io/v1/{place}{resource}");
        let Some(there) = self.store.get(&Key::new(resource, namespace, name.as_str())) else {
            return self.ensure_made(&all, &object).await;
        };
        let there: Value = serde_json::from_slice(&there.data).unwrap_or_default();
        let one = format!("{all}/{name}");
        match reconcile(&there, &object) {
            Reconciled::Nothing => {}
            Reconciled::Update(new) => drop(self.ask(Method::PUT, &one, &new).await),
            Reconciled::Replace => {
                self.ask(Method::DELETE, &one, &Value::Null).await;
                self.make(&all, &object).await;
            }
        }
    }

    pub(crate) async fn make(&self, path: &str, object: &Value) {
        self.ask(Method::POST, path, object).await;
    }

    /// Makes what the system cannot be without. If that fails, because there is no room for it, say, it is tried again, in the
    /// background, until it is there.
    pub(crate) async fn ensure_made(&self, path: &str, object: &Value) {
        if self.ask(Method::POST, path, object).await {
            return;
        }
        let (server, path, object) = (self.clone(), path.to_owned(), object.clone());
        tokio::spawn(async move {
            let mut pause = RETRY;
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
                if server.answer_to_itself(Method::POST, &path, &object).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Asks as the server itself; a PATCH is a merge patch. Gives whether there is nothing left to do.
    pub(crate) async fn ask(&self, method: Method, path: &str, object: &Value) -> bool {
        let refused = self.answer_to_itself(method.clone(), path, object).await.err();
        if let Some(status) = refused {
            let name = &object["metadata"]["name"];
            tracing::error!(%name, path, %method, %status, "the server's own request is refused");
        }
        refused.is_none()
    }

    async fn answer_to_itself(&self, method: Method, path: &str, object: &Value) -> Result<(), StatusCode> {
        let body = if object.is_null() { String::new() } else { object.to_string() };
        let mut request = Request::new(Full::<Bytes>::from(body));
        let Ok(uri) = path.parse() else { return Ok(()) };
        (*request.method_mut(), *request.uri_mut()) = (method.clone(), uri);
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("kube-apiserver"));
        if method == Method::PATCH {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/merge-patch+json"));
        }
        let response = self.handle(Some(UserInfo::component("system:apiserver")), request).await;
        let status = response.status();
        if status.is_success() || is_settled(&method, status) { Ok(()) } else { Err(status) }
    }
}

/// A refusal that leaves nothing to do: it is there already, or is another by now, or what was to change or to go is gone.
fn is_settled(method: &Method, status: StatusCode) -> bool {
    status == StatusCode::CONFLICT
        || (status == StatusCode::NOT_FOUND && matches!(*method, Method::DELETE | Method::PATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_as_it_should_be_is_no_error() {
        for (method, status, expected) in [
            (Method::POST, 409, true),
            (Method::PUT, 409, true),
            (Method::DELETE, 404, true),
            (Method::PATCH, 404, true),
            (Method::POST, 404, false),
            (Method::PUT, 404, false),
            (Method::DELETE, 403, false),
            (Method::POST, 422, false),
        ] {
            assert_eq!(is_settled(&method, StatusCode::from_u16(status).unwrap()), expected, "{method} {status}");
        }
    }
}
