//! Decides the next step for a claim (`syncClaim`). Does no I/O.

use super::{RecordedEvent, is_unbound};
use api::persistent_volume_claim::{
    BOUND_BY_CONTROLLER, SELECTED_NODE, annotation, check_volume_satisfies_claim, claim_ref, claim_storage_class,
    find_matching_volume, has_storage_class, is_volume_bound_to_claim, volume_name,
};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use std::{cmp::Reverse, sync::Arc};

/// Input besides the claim.
pub(super) struct ClaimContext<'a> {
    pub(super) volumes: &'a [Arc<PersistentVolume>],
    pub(super) classes: &'a [Arc<StorageClass>],
    /// Name of an unscheduled Pod that uses the claim.
    pub(super) pod: Option<&'a str>,
}

/// The next step for a claim.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The claim stays pending.
    Wait(Option<RecordedEvent>),
    /// Set the default class on a claim without a class.
    AssignDefaultClass(String),
    /// Bind the claim to this volume, or complete the binding.
    Bind(Arc<PersistentVolume>),
    /// Provision a volume.
    Provision,
    /// The claim's volume is lost with its data.
    Lost(RecordedEvent),
}

pub(super) fn plan(claim: &PersistentVolumeClaim, context: &ClaimContext<'_>) -> Step {
    if !is_unbound(claim) {
        return plan_bound_claim(claim, context);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Step::Wait(None);
    }
    match volume_name(claim) {
        Some(name) => plan_prebound_claim(claim, name, context),
        None => plan_unbound_claim(claim, context),
    }
}

fn volume<'a>(context: &'a ClaimContext<'_>, name: &str) -> Option<&'a Arc<PersistentVolume>> {
    context.volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name))
}

fn plan_bound_claim(claim: &PersistentVolumeClaim, context: &ClaimContext<'_>) -> Step {
    let lost =
        |cause: &str| Step::Lost(RecordedEvent::warning("ClaimLost", format!("{cause}. Data on the volume is lost!")));
    let Some(name) = volume_name(claim) else { return lost("Bound claim has lost reference to PersistentVolume") };
    let Some(volume) = volume(context, name) else { return lost("Bound claim has lost its PersistentVolume") };
    match claim_ref(volume) {
        Some(to) if to.uid != claim.metadata.uid => Step::Lost(RecordedEvent::warning(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        )),
        _ => Step::Bind(Arc::clone(volume)),
    }
}

/// Plans a claim whose `spec.volumeName` was set by its user.
fn plan_prebound_claim(claim: &PersistentVolumeClaim, name: &str, context: &ClaimContext<'_>) -> Step {
    let Some(volume) = volume(context, name) else { return Step::Wait(None) };
    if claim_ref(volume).is_some() && !is_volume_bound_to_claim(volume, claim) {
        let by_user = annotation(&claim.metadata, BOUND_BY_CONTROLLER).is_none();
        let message = format!("volume {name:?} already bound to a different claim.");
        return Step::Wait(by_user.then(|| RecordedEvent::warning("FailedBinding", message)));
    }
    match check_volume_satisfies_claim(volume, claim) {
        Some(message) if claim_ref(volume).is_none() => Step::Wait(Some(RecordedEvent::warning(
            "VolumeMismatch",
            format!("Cannot bind to requested volume {name:?}: {message}"),
        ))),
        _ => Step::Bind(Arc::clone(volume)),
    }
}

fn plan_unbound_claim(claim: &PersistentVolumeClaim, context: &ClaimContext<'_>) -> Step {
    const NO_CLASS: &str = "no persistent volumes available for this claim and no storage class is set";
    if !has_storage_class(claim)
        && let Some(class) = default_class(context.classes)
    {
        return Step::AssignDefaultClass(class);
    }
    let name = claim_storage_class(claim);
    let class = context.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name));
    let delayed = class.is_some_and(|class| waits_for_consumer(class));
    if let Some(found) = find_matching_volume(claim, context.volumes.iter().map(Arc::as_ref), None, delayed) {
        let found = context.volumes.iter().find(|volume| std::ptr::eq(volume.as_ref(), found));
        return found.map_or(Step::Wait(None), |volume| Step::Bind(Arc::clone(volume)));
    }
    if delayed && annotation(&claim.metadata, SELECTED_NODE).is_none() {
        return Step::Wait(Some(match context.pod {
            Some(pod) => RecordedEvent::normal("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            None => {
                RecordedEvent::normal("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
            }
        }));
    }
    if name.is_empty() { Step::Wait(Some(RecordedEvent::normal("FailedBinding", NO_CLASS))) } else { Step::Provision }
}

fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Returns the newest default class; of equally new ones the first by name.
fn default_class(classes: &[Arc<StorageClass>]) -> Option<String> {
    const MARK: &str = "storageclass.kubernetes.io/is-default-class";
    let marked = classes.iter().filter(|class| annotation(&class.metadata, MARK) == Some("true"));
    let newest = marked.min_by_key(|class| {
        (Reverse(class.metadata.creation_timestamp.as_ref().map(|t| t.0)), class.metadata.name.clone())
    });
    newest?.metadata.name.clone()
}
