//! Creates objects that must exist before requests are served: system namespaces and priority classes, RBAC defaults.

use crate::{ApiServer, customresources::custom_resource_definitions};
use auth::authorization::bootstrap_policy::{self, BootstrapObject, ReconcileOperation, reconcile};
use futures::future::join_all;
use http::Method;
use kinds::priority_class;
use serde_json::{Value, json};
use store::{Key, Scope};

const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl ApiServer {
    /// Creates the system namespaces and priority classes that do not exist yet.
    pub async fn bootstrap(&self) {
        self.bootstrap_namespaces().await;
        self.publish_client_cas().await;
        // Resumes deletions of definitions that the last run did not finish.
        custom_resource_definitions::reconcile(&self.custom_resources()).await;
        for class in priority_class::SYSTEM_PRIORITY_CLASSES
            .iter()
            .filter_map(|(name, ..)| priority_class::system_priority_class(name))
        {
            self.loopback().ensure_created("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await;
        }
    }

    /// Creates the default StorageClass, as kind and k3s have one: this provisioner creates volumes when the Pod is scheduled.
    /// It is created once only, so users may change or delete it, and not at all when there is any other.
    pub async fn bootstrap_storage_class(&self, name: &str, provisioner: &str) {
        if !self.registry.store.list(&Scope::resource("storageclasses"), None, None).objects.is_empty() {
            return;
        }
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        });
        self.loopback().ensure_created("/apis/storage.k8s.io/v1/storageclasses", &class).await;
    }

    pub(crate) async fn bootstrap_namespaces(&self) {
        for name in
            NAMESPACES.into_iter().filter(|name| self.registry.store.get(&Key::new("namespaces", "", *name)).is_none())
        {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            self.loopback().ensure_created("/api/v1/namespaces", &body).await;
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
        let Some(stored) = self.registry.store.get(&Key::new("configmaps", "kube-system", name)) else {
            return self.loopback().ensure_created(all, &object).await;
        };
        let existing: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        if existing["data"] != object["data"] {
            object["metadata"] = existing["metadata"].clone();
            self.loopback().request(Method::PUT, &format!("{all}/{name}"), &object).await;
        }
    }

    /// Creates upstream's default roles and bindings, and reconciles existing ones; concurrently, so that few commits hold
    /// them. Until this is done, requests wait, except those of `system:masters`.
    pub fn bootstrap_rbac(&self) -> impl Future<Output = ()> + Send + 'static {
        let (server, bootstrap) = (self.clone(), self.registry.authorizer.rbac().begin_bootstrap());
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
            let (Some(existing), None) = (self.registry.store.get(&key(old)), self.registry.store.get(&key(new)))
            else {
                continue;
            };
            let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
            let object = bootstrap_policy::split_cluster_role_binding(&existing, new);
            self.loopback().create_object("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &object).await;
        }
    }

    async fn reconcile_default(&self, desired: BootstrapObject) {
        let BootstrapObject { resource, namespace, name, object } = desired;
        let scope = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        let collection = format!("/apis/rbac.authorization.k8s.io/v1/{scope}{resource}");
        let Some(existing) = self.registry.store.get(&Key::new(resource, namespace, name.as_str())) else {
            return self.loopback().ensure_created(&collection, &object).await;
        };
        let existing: Value = serde_json::from_slice(&existing.data).unwrap_or_default();
        let path = format!("{collection}/{name}");
        match reconcile(&existing, &object) {
            ReconcileOperation::None => {}
            ReconcileOperation::Update(new) => drop(self.loopback().request(Method::PUT, &path, &new).await),
            ReconcileOperation::Recreate => {
                self.loopback().request(Method::DELETE, &path, &Value::Null).await;
                self.loopback().create_object(&collection, &object).await;
            }
        }
    }
}
