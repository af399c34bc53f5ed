//! Service account controller: keeps the service account `default` in every namespace
//! (`pkg/controller/serviceaccount/serviceaccounts_controller.go`).

use crate::{
    clients::Clients,
    names,
    per_namespace::{NamespacedObject, PerNamespace},
    worker,
};
use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tokio_util::sync::CancellationToken;

struct DefaultServiceAccount;

impl NamespacedObject for DefaultServiceAccount {
    type Object = ServiceAccount;

    const CONTROLLER: &'static str = names::SERVICE_ACCOUNT;

    const NAME: &'static str = "default";

    fn desired(&self) -> ServiceAccount {
        ServiceAccount {
            metadata: ObjectMeta { name: Some(Self::NAME.into()), ..Default::default() },
            ..Default::default()
        }
    }

    fn merge_desired(&self, object: ServiceAccount) -> ServiceAccount {
        object
    }

    /// Fields that users have set are kept.
    fn is_up_to_date(&self, _: &ServiceAccount) -> bool {
        true
    }
}

pub(crate) async fn run(clients: Clients, stop: CancellationToken) {
    let controller =
        PerNamespace::new(clients.for_service_account("service-account-controller"), DefaultServiceAccount);
    let events = controller.events(&clients);
    worker::run(controller, events, stop).await;
}
