//! What is to be done with a Job's Pods (`syncJob`, `manageJob`).

use super::backoff::{BackoffRecord, finished};
use super::facts::{Facts, condition, count, part};
use super::indexes::Indexes;
use super::policy::{Verdict, succeeded};
use crate::int_or_string::saturating_sum;
use crate::pod_summary::PodSummary;
use crate::replica_set::pods_to_delete;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::JobCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// No more Pods are made or deleted at once.
const BURST: i32 = 500;
pub(super) const FAILING: &str = "FailureTarget";
pub(super) const SUCCEEDING: &str = "SuccessCriteriaMet";

#[derive(Debug, PartialEq)]
pub(super) enum Todo<'a> {
    Nothing,
    /// The Job ends: these end with it, and are counted.
    End(Vec<&'a PodSummary>),
    /// There are too many, or it is suspended: these go, and are not counted.
    Drop(Vec<&'a PodSummary>),
    Make(Vec<New>),
}

/// A Pod that is to be made: its index, and how many of that index failed before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct New {
    pub(super) index: Option<i32>,
    pub(super) failures: i32,
    pub(super) ignored: i32,
}

#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) todo: Todo<'a>,
    /// How the Job ends, if it does.
    pub(super) ends: Option<JobCondition>,
    /// When to look again without a change.
    pub(super) again: Option<Duration>,
}

impl Facts<'_> {
    pub(super) fn condition(&self, type_: &str, status: &str, reason: &str, message: &str) -> JobCondition {
        JobCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()).filter(|r| !r.is_empty()),
            message: Some(message.to_owned()).filter(|m| !m.is_empty()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        }
    }

    /// Why the Job ends, if it does.
    fn ends(&self) -> Option<JobCondition> {
        if let Some(met) = condition(&self.status, SUCCEEDING) {
            return Some(met.clone());
        }
        let said = |c: &Option<String>| c.clone().unwrap_or_default();
        if let Some(target) = condition(&self.status, FAILING) {
            return Some(self.condition("Failed", "True", &said(&target.reason), &said(&target.message)));
        }
        let failing = |reason, message: &str| Some(self.condition(FAILING, "True", reason, message));
        let verdicts = self.pods.iter().filter(|pod| self.is_failed(pod)).map(|pod| self.verdict(pod));
        for verdict in verdicts {
            if let Verdict::FailsJob(message) = verdict {
                return failing("PodFailurePolicy", &message);
            }
        }
        if self.failed() > self.spec.backoff_limit.unwrap_or(6) || self.restarts_too_often() {
            return failing("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.deadline().is_some_and(|left| !left.is_positive()) {
            return failing("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        if !self.is_indexed() {
            return None;
        }
        let indexes = self.succeeded_indexes();
        if let Some(failed) = self.failed_indexes() {
            if self.spec.max_failed_indexes.is_some_and(|most| failed.total() > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return failing("MaxFailedIndexesExceeded", message);
            }
            if !failed.is_empty() && failed.total() + indexes.total() >= self.completions() {
                return failing("FailedIndexes", "Job has failed indexes");
            }
        }
        let why = succeeded(self.spec.success_policy.as_ref(), self.completions(), &indexes)?;
        Some(self.condition(SUCCEEDING, "True", "SuccessPolicy", &why))
    }

    /// Containers that are restarted count as Pods that fail (`pastBackoffLimitOnFailure`).
    fn restarts_too_often(&self) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let running = self.pods.iter().filter(|pod| matches!(pod.phase.as_str(), "Running" | "Pending"));
        let restarts = saturating_sum(running.map(|pod| part(pod).restarts));
        policy == Some("OnFailure") && restarts >= self.spec.backoff_limit.unwrap_or(6).max(1)
    }

    /// How long it may still be active.
    fn deadline(&self) -> Option<SignedDuration> {
        let seconds = self.spec.active_deadline_seconds.filter(|_| !self.is_suspended())?;
        let start = self.status.start_time.as_ref()?.0;
        Some(SignedDuration::from_secs(seconds).saturating_sub(self.now.duration_since(start)))
    }

    /// The last failed Pod of each index that waits for another one: it stays until that is there, which learns from it
    /// how many there were (`getPodsWithDelayedDeletionPerIndex`).
    pub(super) fn waiting_for_another(&self) -> BTreeMap<i32, &PodSummary> {
        let mut last: BTreeMap<i32, &PodSummary> = BTreeMap::new();
        let Some(failed) = self.failed_indexes() else { return last };
        let (active, succeeded) = (self.active_indexes(), self.succeeded_indexes());
        let order = |pod: &PodSummary| (part(pod).failures.saturating_add(part(pod).ignored), finished(pod));
        for pod in self.pods.iter().filter(|pod| part(pod).tracked && self.is_failed(pod)) {
            let Some(index) = self.index(pod) else { continue };
            if active.has(index) || succeeded.has(index) || failed.has(index) {
                continue;
            }
            let known = last.entry(index).or_insert(pod);
            if order(pod) >= order(known) {
                *known = pod;
            }
        }
        last
    }

    fn active_indexes(&self) -> Indexes {
        self.active().into_iter().filter_map(|pod| part(pod).index).collect()
    }
}

pub(super) fn plan<'a>(facts: &Facts<'a>) -> Plan<'a> {
    if let Some(ends) = facts.ends() {
        return Plan { todo: Todo::End(facts.active()), ends: Some(ends), again: None };
    }
    let deadline = facts.deadline().and_then(|left| Duration::try_from(left).ok());
    if facts.is_deleted() {
        return Plan { todo: Todo::Nothing, ends: None, again: deadline };
    }
    let (todo, pause) = manage(facts);
    let again = [deadline, pause].into_iter().flatten().min();
    Plan { todo, ends: None, again }
}

/// Pods to be made or deleted, and how long to wait for that.
fn manage<'a>(facts: &Facts<'a>) -> (Todo<'a>, Option<Duration>) {
    let active = facts.active();
    let many = count(&active);
    if facts.is_suspended() {
        let excess = too_many(facts, active, many);
        return (if excess.is_empty() { Todo::Nothing } else { Todo::Drop(excess) }, None);
    }
    let wanted = match facts.spec.completions {
        // Once one has succeeded, the others may end as they like.
        None if facts.succeeded() > 0 => many,
        None => facts.parallelism(),
        Some(completions) => completions.saturating_sub(facts.succeeded()).min(facts.parallelism()).max(0),
    };
    let excess = too_many(facts, active, (many - wanted).max(0));
    if !excess.is_empty() {
        return (Todo::Drop(excess), None);
    }
    let ending = if facts.replaces_failed_only() { facts.terminating() } else { 0 };
    let missing = (wanted - ending - many).min(BURST);
    if missing <= 0 {
        return (Todo::Nothing, None);
    }
    if facts.is_limited_per_index() {
        return make_when_due(facts, missing);
    }
    let backoff = facts.backoff.after(&facts.newly_succeeded(), &facts.newly_failed());
    if let Some(left) = backoff.left(facts.now) {
        return (Todo::Nothing, Some(left));
    }
    let new = |index| New { index, failures: 0, ignored: 0 };
    let all = if facts.is_indexed() {
        pending(facts, missing).into_iter().map(|index| new(Some(index))).collect()
    } else {
        (0..missing).map(|_| new(None)).collect()
    };
    (Todo::Make(all), None)
}

/// Each index waits for itself.
fn make_when_due<'a>(facts: &Facts<'a>, missing: i32) -> (Todo<'a>, Option<Duration>) {
    let waiting = facts.waiting_for_another();
    let (mut all, mut next) = (Vec::new(), None);
    for index in pending(facts, missing) {
        let Some(pod) = waiting.get(&index) else {
            all.push(New { index: Some(index), failures: 0, ignored: 0 });
            continue;
        };
        let (failures, ignored) = (part(pod).failures, part(pod).ignored);
        if let Some(left) =
            BackoffRecord::of_index(failures.saturating_add(ignored).saturating_add(1), finished(pod)).left(facts.now)
        {
            next = Some(next.map_or(left, |n: Duration| n.min(left)));
            continue;
        }
        let counts = facts.verdict(pod) != Verdict::Ignored;
        let (failures, ignored) =
            if counts { (failures.saturating_add(1), ignored) } else { (failures, ignored.saturating_add(1)) };
        all.push(New { index: Some(index), failures, ignored });
    }
    (if all.is_empty() { Todo::Nothing } else { Todo::Make(all) }, next)
}

/// The first indexes that have no Pod yet (`firstPendingIndexes`).
fn pending(facts: &Facts<'_>, most: i32) -> Vec<i32> {
    let (active, succeeded, failed) = (facts.active_indexes(), facts.succeeded_indexes(), facts.failed_indexes());
    let ending = facts.pods.iter().filter(|pod| pod.terminating && facts.replaces_failed_only());
    let ending: Indexes = ending.filter(|pod| !pod.is_terminal()).filter_map(|pod| part(pod).index).collect();
    let taken = Indexes::any_of([&active, &succeeded, &ending].into_iter().chain(&failed));
    taken.missing(facts.completions()).take(usize::try_from(most).unwrap_or(0)).collect()
}

/// Those that go: all whose index the Job does not have or another Pod has too, and `least` at least
/// (`activePodsForRemoval`).
fn too_many<'a>(facts: &Facts<'_>, active: Vec<&'a PodSummary>, least: i32) -> Vec<&'a PodSummary> {
    let least = usize::try_from(least.min(BURST)).unwrap_or(0);
    let (mut go, mut stay) = (Vec::new(), active);
    if facts.is_indexed() {
        let mut of_index: BTreeMap<Option<i32>, Vec<&PodSummary>> = BTreeMap::new();
        for pod in stay.drain(..) {
            of_index.entry(facts.index(pod)).or_default().push(pod);
        }
        for (index, pods) in of_index {
            let excess = if index.is_some() { pods.len() - 1 } else { pods.len() };
            let mut sorted = pods_to_delete(pods.clone(), pods.len());
            stay.extend(sorted.split_off(excess));
            go.extend(sorted);
        }
    }
    if go.len() < least {
        go.extend(pods_to_delete(stay, least - go.len()));
    }
    go
}
