//! The words of `FailedScheduling` (`pkg/scheduler/framework/types.go`, `FitError`), in one place.

use crate::ask::Refusal;
use std::collections::BTreeMap;

pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";
pub(crate) const CORDONED: &str = "node(s) were unschedulable";
/// Since 1.35 without the taint, which may be nobody's business in the Pod's namespace.
pub(crate) const TAINTED: &str = "node(s) had untolerated taint(s)";
pub(crate) const AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
pub(crate) const NOT_NAMED: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
pub(crate) const PORTS: &str = "node(s) didn't have free ports for the requested pod ports";
pub(crate) const TOO_MANY_PODS: &str = "Too many pods";
pub(crate) const GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";
pub(crate) const CLAIMED: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
pub(crate) const UNBOUND: &str = "pod has unbound immediate PersistentVolumeClaims";
pub(crate) const VOLUME_ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";
pub(crate) const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
pub(crate) const VOLUME_GONE: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
pub(crate) const COMPANY: &str = "node(s) didn't match pod affinity rules";
pub(crate) const SHUNNED: &str = "node(s) didn't match pod anti-affinity rules";
pub(crate) const SHUNNING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
pub(crate) const UNEVEN: &str = "node(s) didn't match pod topology spread constraints";
pub(crate) const NO_DOMAIN: &str = "node(s) didn't match pod topology spread constraints (missing required label)";
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// What the plugin `DynamicResources` says of every Pod without claims, before the one for preemption has its say.
const NO_CLAIMS: &str = "no new claims to deallocate";
pub(crate) const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
pub(crate) const NO_HELP: &str = "Preemption is not helpful for scheduling";
pub(crate) const NEVER_PREEMPTS: &str = "not eligible due to preemptionPolicy=Never.";
pub(crate) const WAITS_FOR_VICTIMS: &str = "not eligible due to a terminating pod on the nominated node.";

/// The longest note that an event may have.
const NOTE_LIMIT: usize = 1024;

pub(crate) fn insufficient(resource: &str) -> String {
    format!("Insufficient {resource}")
}

/// A claim is missing; those of ephemeral volumes come a moment after their Pod.
pub(crate) fn no_claim(name: &str, is_own: bool) -> String {
    if is_own {
        return format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}");
    }
    format!("persistentvolumeclaim {name:?} not found")
}

/// Whoever was to make a volume has given up.
pub(crate) fn not_made(claim: &str) -> String {
    format!("running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC {claim:?}")
}

/// What keeps a Pod away from every node.
pub(crate) fn nowhere(nodes: usize, why: &str) -> String {
    format!("0/{nodes} nodes are available: {why}.")
}

/// The same, where the plugin for preemption is asked, too.
pub(crate) fn nowhere_by_nodes(nodes: usize, why: &str, never_preempts: bool) -> String {
    let never = never_preempts.then(|| NEVER_PREEMPTS.to_owned());
    let second = never.unwrap_or_else(|| nowhere(nodes, &format!("{nodes} {NO_HELP}")));
    with_preemption(&nowhere(nodes, why), &second)
}

/// The whole message, with what is to be said of preemption. When others go for the Pod, [`refused`] is all.
pub(crate) fn unschedulable(refusals: &[Refusal], preemption: &str) -> String {
    with_preemption(&refused(refusals), preemption)
}

fn with_preemption(first: &str, second: &str) -> String {
    format!("{first} {NO_CLAIMS}, preemption: {second}")
}

/// Why each node refuses the Pod.
pub(crate) fn refused(refusals: &[Refusal]) -> String {
    counted(refusals.len(), refusals.iter().flat_map(|r| r.reasons.iter().map(String::as_str)))
}

/// `0/3 nodes are available: 1 This, 2 That.` Upstream sorts the counted reasons as strings.
pub(crate) fn counted<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let mut counts: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    counts.sort();
    format!("0/{nodes} nodes are available: {}.", counts.join(", "))
}

/// Shortens a message to what an event can hold.
pub(crate) fn note(message: &str) -> String {
    const ELLIPSIS: &str = " ...";
    if message.len() <= NOTE_LIMIT {
        return message.to_owned();
    }
    format!("{}{ELLIPSIS}", api::text::beginning(message, NOTE_LIMIT - ELLIPSIS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_to_the_limit_of_an_event() {
        assert_eq!(note("short"), "short");
        let cut = note(&"é".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with("é ..."), "{cut}");
    }
}
