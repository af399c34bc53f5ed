//! ConfigMaps and Secrets that a Pod refers to, read at most once per action.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

/// Failure to read a ConfigMap or Secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// ConfigMap that the controller manager creates in each new namespace.
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
/// Maximum wait for it.
pub(crate) const ROOT_CA_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the root CA ConfigMap of a new namespace.
async fn wait_root_ca(api: Api<ConfigMap>) {
    let exists =
        kube::runtime::wait::await_condition(api, ROOT_CA_CONFIG_MAP, |object: Option<&ConfigMap>| object.is_some());
    // The caller reads the ConfigMap again.
    let _ = tokio::time::timeout(ROOT_CA_TIMEOUT, exists).await;
}

/// Objects that were read during one action; `None` for a missing object.
pub(crate) struct ObjectCache<'a> {
    shared: &'a Shared,
    namespace: &'a str,
    config_maps: HashMap<String, Option<Arc<ConfigMap>>>,
    secrets: HashMap<String, Option<Arc<Secret>>>,
}

impl<'a> ObjectCache<'a> {
    pub(crate) fn new(shared: &'a Shared, namespace: &'a str) -> Self {
        Self { shared, namespace, config_maps: HashMap::new(), secrets: HashMap::new() }
    }

    /// Returns a ConfigMap.
    ///
    /// # Errors
    /// Fails with upstream's message if it is missing, unless it is optional.
    pub(crate) async fn config_map(
        &mut self,
        name: &str,
        optional: bool,
    ) -> Result<Option<Arc<ConfigMap>>, ObjectError> {
        if !self.config_maps.contains_key(name) {
            let mut found = get(self.shared, self.namespace, name).await?;
            if found.is_none() && name == ROOT_CA_CONFIG_MAP {
                wait_root_ca(Api::namespaced(self.shared.client.clone(), self.namespace)).await;
                found = get(self.shared, self.namespace, name).await?;
            }
            self.config_maps.insert(name.to_owned(), found);
        }
        present(self.config_maps.get(name).cloned().flatten(), "configmap", name, optional)
    }

    /// Returns a Secret, like [`Self::config_map`].
    pub(crate) async fn secret(&mut self, name: &str, optional: bool) -> Result<Option<Arc<Secret>>, ObjectError> {
        if !self.secrets.contains_key(name) {
            let found = get(self.shared, self.namespace, name).await?;
            self.secrets.insert(name.to_owned(), found);
        }
        present(self.secrets.get(name).cloned().flatten(), "secret", name, optional)
    }
}

fn present<K>(
    found: Option<Arc<K>>,
    kind: &'static str,
    name: &str,
    optional: bool,
) -> Result<Option<Arc<K>>, ObjectError> {
    if found.is_none() && !optional {
        return Err(ObjectError::NotFound { kind, name: name.to_owned() });
    }
    Ok(found)
}

async fn get<K>(shared: &Shared, namespace: &str, name: &str) -> Result<Option<Arc<K>>, kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(shared.client.clone(), namespace);
    let found = within_deadline(api.get_opt(name)).await?;
    Ok(found.map(Arc::new))
}
