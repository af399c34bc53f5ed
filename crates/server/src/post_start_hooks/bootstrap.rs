//! Creates objects that must exist before requests are served: system namespaces and priority classes, RBAC defaults.

use crate::{ApiServer, customresources::custom_resource_definitions};
use auth::authorization::bootstrap_policy::{self, BootstrapObject, ReconcileOperation, reconcile};
use bytes::Bytes;
use futures::future::join_all;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use kinds::priority_class;
use request::UserInfo;
use serde_json::{Value, json};
use std::time::Duration;
use store::{Key, Scope};

/// First and maximal backoff of a failed creation.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl ApiServer {
    /// Creates the system namespaces and priority classes that do not exist yet.
    pub async fn bootstrap(&self) {
        self.bootstrap_namespaces().await;
        self.publish_client_cas().await;
        // Resumes deletions of definitions that the last run did not finish.
        custom_resource_definitions::reconcile(self).await;
        for class in priority_class::SYSTEM_PRIORITY_CLASSES
            .iter()
            .filter_map(|(name, ..)| priority_class::system_priority_class(name))
        {
            self.ensure_created("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
    }

    /// Creates the default StorageClass, as kind and k3s have one: this provisioner creates volumes when the Pod is scheduled.
    /// It is created once only, so users may change or delete it, and not at all when there is any other.
    pub async fn bootstrap_storage_class(&self, name: &str, provisioner: &str) {
        if !self.store.list(&Scope::resource("storageclasses"), None, None).objects.is_empty() {
            return;
        }
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        });
        self.ensure_created("/apis/storage.k8s.io/v1/storageclasses", &class).await;
    }

    pub(crate) async fn bootstrap_namespaces(&self) {
        for name in NAMESPACES.into_iter().filter(|name| self.store.get(&Key::new("namespaces", "", *name)).is_none()) {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.ensure_created("/api/v1/namespaces", &body).await;
        }
    }

    /// Publishes the CAs of clients and of the front proxy to extension API servers, in the ConfigMap
    /// `extension-apiserver-authentication` (`ClusterAuthenticationTrustController`).
    pub(crate) async fn publish_client_cas(&self) {
        let (Some(front), Some(clients)) = (self.aggregation.front(), &self.client_ca) else { return };
        let name = "extension-apiserver-authentication";
        let data = json!({
            "client-ca-file": **clients, "requestheader-client-ca-file": front.ca_pem,
            "requestheader-allowed-names": "[\"front-proxy-client\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]", "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        });
        let all = "/api/v1/namespaces/kube-system/configmaps";
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let Some(stored) = self.store.get(&Key::new("configmaps", "kube-system", name)) else {
            return self.ensure_created(all, &object).await;
        };
        let existing: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        if existing["data"] != object["data"] {
            object["metadata"] = existing["metadata"].clone();
            self.request_as_apiserver(Method::PUT, &format!("{all}/{name}"), &object).await;
        }
    }

    /// Creates upstream's default roles and bindings, and reconciles existing ones; concurrently, so that few commits hold
    /// them. Until this is done, requests wait, except those of `system:masters`.
    pub fn bootstrap_rbac(&self) -> impl Future<Output = ()> + Send + 'static {
        let (server, bootstrap) = (self.clone(), self.authorizer.rbac().begin_bootstrap());
        async move {
            server.split_bindings().await;
            join_all(bootstrap_policy::objects().into_iter().map(|desired| server.reconcile_default(desired))).await;
            drop(bootstrap);
            server.clone().bootstrap_flow_control().await;
        }
    }

    /// Creates bindings that upstream split off an older one with that one's subjects, so that a subject that was removed
    /// there gets no access here (`primeSplitClusterRoleBindings`).
    async fn split_bindings(&self) {
        for (old, new) in bootstrap_policy::CLUSTER_ROLE_BINDINGS_TO_SPLIT {
            let key = |name: &str| Key::new("clusterrolebindings", "", name);
            let (Some(existing), None) = (self.store.get(&key(old)), self.store.get(&key(new))) else { continue };
            let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
            let object = bootstrap_policy::split_cluster_role_binding(&existing, new);
            self.create_object("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &object).await;
        }
    }

    async fn reconcile_default(&self, desired: BootstrapObject) {
        let BootstrapObject { resource, namespace, name, object } = desired;
        let scope = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        let collection = format!("/apis/rbac.authorization.k8s.io/v1/{scope}{resource}");
        let Some(existing) = self.store.get(&Key::new(resource, namespace, name.as_str())) else {
            return self.ensure_created(&collection, &object).await;
        };
        let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
        let path = format!("{collection}/{name}");
        match reconcile(&existing, &object) {
            ReconcileOperation::None => {}
            ReconcileOperation::Update(new) => drop(self.request_as_apiserver(Method::PUT, &path, &new).await),
            ReconcileOperation::Recreate => {
                self.request_as_apiserver(Method::DELETE, &path, &Value::Null).await;
                self.create_object(&collection, &object).await;
            }
        }
    }

    pub(crate) async fn create_object(&self, path: &str, object: &Value) {
        self.request_as_apiserver(Method::POST, path, object).await;
    }

    /// Creates an object that the system requires. A failure, such as a full store, is retried in the background with backoff.
    pub(crate) async fn ensure_created(&self, path: &str, object: &Value) {
        if self.request_as_apiserver(Method::POST, path, object).await {
            return;
        }
        let (server, path, object) = (self.clone(), path.to_owned(), object.clone());
        tokio::spawn(async move {
            let mut backoff = MIN_BACKOFF;
            loop {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
                if server.send_as_apiserver(Method::POST, &path, &object).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Sends a request as `system:apiserver`; a PATCH is a merge patch. Returns whether nothing is left to do.
    pub(crate) async fn request_as_apiserver(&self, method: Method, path: &str, object: &Value) -> bool {
        let failed = self.send_as_apiserver(method.clone(), path, object).await.err();
        if let Some(status) = failed {
            let name = &object["metadata"]["name"];
            tracing::error!(%name, path, %method, %status, "failed to send the API server's own request");
        }
        failed.is_none()
    }

    async fn send_as_apiserver(&self, method: Method, path: &str, object: &Value) -> Result<(), StatusCode> {
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
        if status.is_success() || is_benign_error(&method, status) { Ok(()) } else { Err(status) }
    }
}

/// Whether an error leaves nothing to do: the object exists already or was changed, or the object to change or delete is
/// gone.
fn is_benign_error(method: &Method, status: StatusCode) -> bool {
    status == StatusCode::CONFLICT
        || (status == StatusCode::NOT_FOUND && matches!(*method, Method::DELETE | Method::PATCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_and_absence_are_benign_errors() {
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
            assert_eq!(is_benign_error(&method, StatusCode::from_u16(status).unwrap()), expected, "{method} {status}");
        }
    }
}
