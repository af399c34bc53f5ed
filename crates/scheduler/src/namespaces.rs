//! Namespaces by their labels, for `namespaceSelector`.

use crate::listing::Listing;
use api::lean::Lean;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher::Event;
use std::collections::{BTreeMap, HashMap};

/// The labels of namespaces.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(HashMap<String, BTreeMap<String, String>>);

impl Namespaces {
    /// A label's value; those of a namespace that is not known (yet) are none.
    pub(crate) fn label(&self, namespace: &str, key: &str) -> Option<&str> {
        self.0.get(namespace)?.get(key).map(String::as_str)
    }

    /// Folds what the watch has shown into what is known; gives the name of one whose labels are new.
    pub(crate) fn fold(&mut self, listing: &mut Listing, event: Event<Lean<Namespace>>) -> Option<String> {
        match event {
            Event::Init => listing.seen.clear(),
            Event::InitApply(Lean(namespace)) => {
                listing.seen.extend(namespace.metadata.name.clone());
                return self.set(namespace);
            }
            Event::InitDone => {
                let seen = std::mem::take(&mut listing.seen);
                self.0.retain(|name, _| seen.contains(name));
                listing.complete = true;
            }
            Event::Apply(Lean(namespace)) => return self.set(namespace),
            Event::Delete(Lean(namespace)) => {
                self.0.remove(namespace.metadata.name.as_deref().unwrap_or_default());
            }
        }
        None
    }

    pub(crate) fn set(&mut self, namespace: Namespace) -> Option<String> {
        let name = namespace.metadata.name?;
        let labels = namespace.metadata.labels.unwrap_or_default();
        let is_new = self.0.get(&name) != Some(&labels);
        self.0.insert(name.clone(), labels);
        is_new.then_some(name)
    }
}
