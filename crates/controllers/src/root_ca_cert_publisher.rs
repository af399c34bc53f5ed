//! Root CA publisher: keeps the ConfigMap `kube-root-ca.crt` in every namespace, by which Pods verify the API server
//! (`pkg/controller/certificates/rootcacertpublisher`).

use crate::{
    clients::Clients,
    names,
    per_namespace::{NamespacedObject, PerNamespace},
    worker,
};
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

const FILE: &str = "ca.crt";

struct RootCa {
    pem: String,
}

impl NamespacedObject for RootCa {
    type Object = ConfigMap;

    const CONTROLLER: &'static str = names::ROOT_CA_CERTIFICATE_PUBLISHER;

    const NAME: &'static str = "kube-root-ca.crt";

    fn desired(&self) -> ConfigMap {
        let description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(Self::NAME.into()),
                annotations: Some(BTreeMap::from([("kubernetes.io/description".into(), description.into())])),
                ..Default::default()
            },
            data: Some(BTreeMap::from([(FILE.into(), self.pem.clone())])),
            ..Default::default()
        }
    }

    fn merge_desired(&self, object: ConfigMap) -> ConfigMap {
        ConfigMap { data: self.desired().data, ..object }
    }

    fn is_up_to_date(&self, object: &ConfigMap) -> bool {
        object.data.as_ref().is_some_and(|d| d.get(FILE) == Some(&self.pem))
    }
}

pub(crate) async fn run(clients: Clients, pem: String, stop: CancellationToken) {
    let controller = PerNamespace::new(clients.for_service_account("root-ca-cert-publisher"), RootCa { pem });
    let events = controller.events(&clients);
    worker::run(controller, events, stop).await;
}
