//! Messages of `FailedScheduling` (`FitError` in `pkg/scheduler/framework/types.go`).

use crate::filter_and_score::FilterStatus;
use std::collections::BTreeMap;

pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";
pub(crate) const UNSCHEDULABLE_NODE: &str = "node(s) were unschedulable";
/// Since 1.35 without the taint, which users of the namespace may not be allowed to see.
pub(crate) const UNTOLERATED_TAINT: &str = "node(s) had untolerated taint(s)";
pub(crate) const NODE_AFFINITY: &str = "node(s) didn't match Pod's node affinity/selector";
pub(crate) const NOT_IN_NODE_NAMES: &str = "node(s) didn't satisfy plugin(s) [NodeAffinity]";
pub(crate) const NODE_PORTS: &str = "node(s) didn't have free ports for the requested pod ports";
pub(crate) const TOO_MANY_PODS: &str = "Too many pods";
pub(crate) const SCHEDULING_GATED: &str = "Scheduling is blocked due to non-empty scheduling gates";
pub(crate) const READ_WRITE_ONCE_POD_CONFLICT: &str =
    "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
pub(crate) const VOLUME_NODE_AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
pub(crate) const NO_AVAILABLE_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
pub(crate) const VOLUME_NOT_FOUND: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
pub(crate) const POD_AFFINITY: &str = "node(s) didn't match pod affinity rules";
pub(crate) const POD_ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
pub(crate) const EXISTING_ANTI_AFFINITY: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
pub(crate) const TOPOLOGY_SPREAD: &str = "node(s) didn't match pod topology spread constraints";
pub(crate) const TOPOLOGY_SPREAD_MISSING_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// PostFilter message of the plugin `DynamicResources` for Pods without resource claims; it precedes that of
/// preemption.
const NO_CLAIMS_TO_DEALLOCATE: &str = "no new claims to deallocate";
pub(crate) const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
pub(crate) const PREEMPTION_NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
pub(crate) const NEVER_PREEMPTS: &str = "not eligible due to preemptionPolicy=Never.";
pub(crate) const WAITS_FOR_VICTIMS: &str = "not eligible due to a terminating pod on the nominated node.";

/// Maximum length of an event's note, in bytes.
const MAX_NOTE_LENGTH: usize = 1024;

pub(crate) fn insufficient(resource: &str) -> String {
    format!("Insufficient {resource}")
}

/// Returns the message for a claim whose provisioner has given up.
pub(crate) fn provisioning_failed(claim: &str) -> String {
    format!("running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC {claim:?}")
}

/// Returns the message for a reason that applies to all nodes.
pub(crate) fn no_node_available(nodes: usize, reason: &str) -> String {
    format!("0/{nodes} nodes are available: {reason}.")
}

/// Returns the same message with the result of preemption.
pub(crate) fn no_node_available_with_preemption(nodes: usize, reason: &str, never_preempts: bool) -> String {
    let never = never_preempts.then(|| NEVER_PREEMPTS.to_owned());
    let preemption = never.unwrap_or_else(|| no_node_available(nodes, &format!("{nodes} {PREEMPTION_NOT_HELPFUL}")));
    with_preemption(&no_node_available(nodes, reason), &preemption)
}

/// Returns the message with the result of preemption. With a successful preemption, [`fit_error`] is the whole
/// message.
pub(crate) fn unschedulable(statuses: &[FilterStatus], preemption: &str) -> String {
    with_preemption(&fit_error(statuses), preemption)
}

fn with_preemption(fit_error: &str, preemption: &str) -> String {
    format!("{fit_error} {NO_CLAIMS_TO_DEALLOCATE}, preemption: {preemption}")
}

/// Formats the reasons of all nodes.
pub(crate) fn fit_error(statuses: &[FilterStatus]) -> String {
    format_reasons(statuses.len(), statuses.iter().flat_map(|r| r.reasons.iter().map(String::as_str)))
}

/// Formats `0/3 nodes are available: 1 This, 2 That.` Upstream sorts the counted reasons as strings.
pub(crate) fn format_reasons<'a>(nodes: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut counts = BTreeMap::new();
    for reason in reasons {
        *counts.entry(reason).or_insert(0) += 1;
    }
    let mut counts: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    counts.sort();
    format!("0/{nodes} nodes are available: {}.", counts.join(", "))
}

/// Truncates a message to the maximum length of an event's note.
pub(crate) fn truncate_note(message: &str) -> String {
    const ELLIPSIS: &str = " ...";
    if message.len() <= MAX_NOTE_LENGTH {
        return message.to_owned();
    }
    format!("{}{ELLIPSIS}", api::text::truncate(message, MAX_NOTE_LENGTH - ELLIPSIS.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_note_is_truncated_to_limit() {
        assert_eq!(truncate_note("short"), "short");
        let cut = truncate_note(&"é".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with("é ..."), "{cut}");
    }
}
