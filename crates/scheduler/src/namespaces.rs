//! Namespaces by their labels, for `namespaceSelector`.

use crate::listing::Listing;
use api::lean::Lean;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// The labels of namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(BTreeMap<String, BTreeMap<String, String>>);

impl Namespaces {
    /// A label's value; those of a namespace that is not known (yet) are none.
    pub(crate) fn label(&self, namespace: &str, key: &str) -> Option<&str> {
        self.0.get(namespace)?.get(key).map(String::as_str)
    }

    /// Folds what the watch has shown into what is known; gives the name of one whose labels are new.
    pub(crate) fn fold(&mut self, listing: &mut Listing, event: Event<Lean<Namespace>>) -> Option<String> {
        listing.fold(&mut self.0, event, |namespace| namespace.metadata.labels.unwrap_or_default())
    }
}
