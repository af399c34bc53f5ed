//! Conditions of an autoscaler (`setCondition`).

use crate::clock::truncate_to_seconds;
use jiff::Timestamp;
use k8s_openapi::{api::autoscaling::v2::HorizontalPodAutoscalerCondition, apimachinery::pkg::apis::meta::v1::Time};

/// Reason and message of a condition.
pub(super) type ReasonAndMessage<'a> = (&'a str, &'a str);

/// The conditions of the status.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conditions {
    all: Vec<HorizontalPodAutoscalerCondition>,
    now: Timestamp,
}

impl Conditions {
    pub(super) fn new(all: Vec<HorizontalPodAutoscalerCondition>, now: Timestamp) -> Self {
        Self { all, now: truncate_to_seconds(now) }
    }

    pub(super) fn into_list(self) -> Option<Vec<HorizontalPodAutoscalerCondition>> {
        Some(self.all).filter(|all| !all.is_empty())
    }

    /// Whether the scale can be read and updated.
    pub(super) fn set_able_to_scale(&mut self, is: bool, reason: ReasonAndMessage<'_>) {
        self.set("AbleToScale", is, reason);
    }

    /// Whether the desired replicas could be computed.
    pub(super) fn set_scaling_active(&mut self, is: bool, reason: ReasonAndMessage<'_>) {
        self.set("ScalingActive", is, reason);
    }

    /// Whether the desired replicas were limited.
    pub(super) fn set_scaling_limited(&mut self, is: bool, reason: ReasonAndMessage<'_>) {
        self.set("ScalingLimited", is, reason);
    }

    fn set(&mut self, type_: &str, is: bool, (reason, message): ReasonAndMessage<'_>) {
        let status = if is { "True" } else { "False" };
        let at = self.all.iter().position(|c| c.type_ == type_);
        let at = at.unwrap_or_else(|| {
            self.all.push(HorizontalPodAutoscalerCondition { type_: type_.to_owned(), ..Default::default() });
            self.all.len().saturating_sub(1)
        });
        let Some(condition) = self.all.get_mut(at) else { return };
        if condition.status != status {
            condition.last_transition_time = Some(Time(self.now));
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message.to_owned());
    }
}
