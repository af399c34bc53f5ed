//! ConfigMaps and Secrets that a Pod refers to, asked for once per action and only when there is a reference.

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

/// What every namespace has a moment after it was made.
const ROOT_CA: &str = "kube-root-ca.crt";
/// How long that moment may take.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// Waits a moment for the certificates that the cluster itself puts into each namespace.
async fn arrival(api: Api<ConfigMap>) {
    let there = kube::runtime::wait::await_condition(api, ROOT_CA, |object: Option<&ConfigMap>| object.is_some());
    // Whether they came is seen by whoever asks for them again.
    let _ = tokio::time::timeout(MOMENT, there).await;
}

/// What was asked for in one action; `None` for what does not exist.
pub(crate) struct Objects<'a> {
    shared: &'a Shared,
    namespace: &'a str,
    config_maps: HashMap<String, Option<Arc<ConfigMap>>>,
    secrets: HashMap<String, Option<Arc<Secret>>>,
}

impl<'a> Objects<'a> {
    pub(crate) fn new(shared: &'a Shared, namespace: &'a str) -> Self {
        Self { shared, namespace, config_maps: HashMap::new(), secrets: HashMap::new() }
    }

    /// A ConfigMap.
    ///
    /// # Errors
    /// In upstream's words when it does not exist, unless that is allowed (`None` then).
    pub(crate) async fn config_map(&mut self, name: &str, optional: bool) -> Result<Option<Arc<ConfigMap>>, String> {
        if !self.config_maps.contains_key(name) {
            let mut found = get(self.shared, self.namespace, name).await?;
            if found.is_none() && name == ROOT_CA {
                arrival(Api::namespaced(self.shared.client.clone(), self.namespace)).await;
                found = get(self.shared, self.namespace, name).await?;
            }
            self.config_maps.insert(name.to_owned(), found);
        }
        present(self.config_maps.get(name).cloned().flatten(), "configmap", name, optional)
    }

    /// A Secret, like [`Self::config_map`].
    pub(crate) async fn secret(&mut self, name: &str, optional: bool) -> Result<Option<Arc<Secret>>, String> {
        if !self.secrets.contains_key(name) {
            let found = get(self.shared, self.namespace, name).await?;
            self.secrets.insert(name.to_owned(), found);
        }
        present(self.secrets.get(name).cloned().flatten(), "secret", name, optional)
    }
}

fn present<K>(found: Option<Arc<K>>, kind: &str, name: &str, optional: bool) -> Result<Option<Arc<K>>, String> {
    if found.is_none() && !optional {
        return Err(format!("{kind} {name:?} not found"));
    }
    Ok(found)
}

async fn get<K>(shared: &Shared, namespace: &str, name: &str) -> Result<Option<Arc<K>>, String>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(shared.client.clone(), namespace);
    let found = within_deadline(api.get_opt(name)).await;
    found.map(|o| o.map(Arc::new)).map_err(|e| e.to_string())
}
