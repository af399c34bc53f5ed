//! Labels of namespaces, for `namespaceSelector`.

use crate::cache_updates::apply_event;
use informer::{CacheEvent, Cached, SharedInformer, View};
use k8s_openapi::api::core::v1::Namespace;
use std::{collections::BTreeMap, sync::Arc};

/// Name and labels of a namespace.
#[derive(Debug, PartialEq)]
pub(crate) struct LabeledNamespace {
    name: String,
    labels: BTreeMap<String, String>,
}

impl Cached for LabeledNamespace {
    fn namespace(&self) -> &'static str {
        ""
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl View for LabeledNamespace {
    type Kind = Namespace;

    fn of(namespace: Namespace) -> Self {
        let metadata = namespace.metadata;
        Self { name: metadata.name.unwrap_or_default(), labels: metadata.labels.unwrap_or_default() }
    }
}

/// Labels by namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceLabels(BTreeMap<String, Arc<LabeledNamespace>>);

impl NamespaceLabels {
    /// Returns a label's value; `None` for a namespace that is not in the cache yet.
    pub(crate) fn label(&self, namespace: &str, key: &str) -> Option<&str> {
        self.0.get(namespace)?.labels.get(key).map(String::as_str)
    }

    /// Applies an event; returns the names of namespaces whose labels have changed.
    pub(crate) fn apply_event(
        &mut self,
        informer: &SharedInformer<LabeledNamespace>,
        event: &CacheEvent<LabeledNamespace>,
    ) -> Vec<String> {
        apply_event(&mut self.0, informer, event)
    }

    #[cfg(test)]
    pub(crate) fn insert(&mut self, namespace: Namespace) {
        let namespace = LabeledNamespace::of(namespace);
        self.0.insert(namespace.name.clone(), Arc::new(namespace));
    }
}
