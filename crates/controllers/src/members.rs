//! The Pods that controllers of workloads count: of each only what they need, as the watch last showed it.

use crate::watch::Change;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::{BTreeMap, HashMap};

/// What one of several equal Pods may cost to lose.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Of a Pod, only this is kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Who controls it.
    pub(crate) controller: Option<OwnerReference>,
    /// Neither ended nor about to.
    pub(crate) active: bool,
    pub(crate) terminating: bool,
    pub(crate) node: Option<String>,
    pub(crate) phase: String,
    /// Since when it is ready.
    pub(crate) ready: Option<Timestamp>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) restarts: i32,
    pub(crate) cost: i64,
}

impl Member {
    pub(crate) fn of(pod: &Pod) -> Self {
        let (meta, status) = (&pod.metadata, pod.status.clone().unwrap_or_default());
        let phase = status.phase.unwrap_or_default();
        let terminating = meta.deletion_timestamp.is_some();
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready" && c.status == "True");
        let restarts = status.container_statuses.iter().flatten().map(|c| c.restart_count).max();
        let cost = meta.annotations.as_ref().and_then(|a| a.get(DELETION_COST)?.parse().ok());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            controller: controller(meta.owner_references.as_deref().unwrap_or_default()).cloned(),
            active: !terminating && !matches!(phase.as_str(), "Succeeded" | "Failed"),
            terminating,
            node: pod.spec.as_ref().and_then(|s| s.node_name.clone()).filter(|n| !n.is_empty()),
            phase,
            ready: ready.map(|c| c.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0)),
            created: meta.creation_timestamp.as_ref().map(|t| t.0),
            restarts: restarts.unwrap_or(0),
            cost: cost.unwrap_or(0),
        }
    }

    /// Whether it has been ready for as long as it should be before it counts.
    pub(crate) fn is_available(&self, after: i32, now: Timestamp) -> bool {
        self.ready.is_some_and(|since| now.duration_since(since).as_secs() >= i64::from(after))
    }
}

/// Who of the owners controls the object.
pub(crate) fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|o| o.controller == Some(true))
}

/// All Pods, by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Members {
    by_namespace: HashMap<String, BTreeMap<String, Member>>,
    /// The greatest revision that was seen.
    pub(crate) revision: u64,
    /// Whether all have been seen once.
    pub(crate) listed: bool,
}

impl Members {
    /// Folds a change in; gives the Pods that it is about, as they were and as they are.
    pub(crate) fn change(&mut self, change: Change<Pod>) -> Vec<(String, Member)> {
        match change {
            Change::Set(pod) => {
                self.saw(&pod);
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                let member = Member::of(&pod);
                let known = self.by_namespace.entry(namespace.clone()).or_default();
                let before = known.insert(member.name.clone(), member.clone());
                // What says nothing new concerns nobody.
                if before.as_ref() == Some(&member) {
                    return vec![];
                }
                before.into_iter().chain([member]).map(|member| (namespace.clone(), member)).collect()
            }
            Change::Gone(pod) => {
                self.saw(&pod);
                let namespace = pod.metadata.namespace.clone().unwrap_or_default();
                self.remove(&namespace, pod.metadata.name.as_deref().unwrap_or_default()).into_iter().collect()
            }
            Change::Listed(keys) => {
                self.listed = true;
                let known = self.by_namespace.iter();
                let all = known.flat_map(|(ns, pods)| pods.keys().map(move |name| (ns.clone(), name.clone())));
                let gone: Vec<_> = all.filter(|(ns, name)| !keys.contains(&format!("{ns}/{name}"))).collect();
                gone.iter().filter_map(|(namespace, name)| self.remove(namespace, name)).collect()
            }
        }
    }

    fn saw(&mut self, pod: &Pod) {
        let revision = pod.metadata.resource_version.as_deref().and_then(|r| r.parse().ok());
        self.revision = self.revision.max(revision.unwrap_or(0));
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Option<(String, Member)> {
        let pods = self.by_namespace.get_mut(namespace)?;
        let member = pods.remove(name)?;
        if pods.is_empty() {
            self.by_namespace.remove(namespace);
        }
        Some((namespace.to_owned(), member))
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Member> {
        self.by_namespace.get(namespace)?.get(name)
    }

    pub(crate) fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Member> {
        self.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values)
    }
}
