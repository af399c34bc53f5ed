//! Labels of namespaces, for `namespaceSelector`.

use crate::reflector::ListState;
use api::without_managed_fields::WithoutManagedFields;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// Labels by namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceLabels(BTreeMap<String, BTreeMap<String, String>>);

impl NamespaceLabels {
    /// Returns a label's value; `None` for a namespace that is not in the cache yet.
    pub(crate) fn label(&self, namespace: &str, key: &str) -> Option<&str> {
        self.0.get(namespace)?.get(key).map(String::as_str)
    }

    /// Applies a watch event; returns the name of a namespace whose labels have changed.
    pub(crate) fn apply_event(
        &mut self,
        list: &mut ListState,
        event: Event<WithoutManagedFields<Namespace>>,
    ) -> Option<String> {
        list.apply_event(&mut self.0, event, |namespace| namespace.metadata.labels.unwrap_or_default())
    }
}
