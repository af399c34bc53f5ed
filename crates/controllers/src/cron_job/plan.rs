//! Decides which Job a CronJob starts, and its status (`syncCronJob`).

use super::{
    schedule_times::{NeverScheduled, ScheduleTimes},
    template::job_name,
};
use api::cron::Schedule;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Snapshot of a CronJob and its Jobs.
pub(super) struct CronJobSnapshot<'a> {
    pub(super) cron: &'a CronJob,
    pub(super) spec: &'a CronJobSpec,
    /// The Jobs that the CronJob controls.
    pub(super) jobs: &'a [Arc<Job>],
    /// UIDs of active Jobs that no longer exist.
    pub(super) missing: &'a HashSet<String>,
    /// Whether the schedule has just changed: the sync waits for its next time. An earlier sync for another reason
    /// counts missed times of the new schedule since the last Job (`updateCronJob`).
    pub(super) changed: bool,
    /// Time zone of schedules without `timeZone`.
    pub(super) zone: &'a TimeZone,
    pub(super) now: Timestamp,
}

/// An Event to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedEvent {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a sync does.
#[derive(Debug)]
pub(super) struct Plan {
    /// The status before a Job is started.
    pub(super) status: CronJobStatus,
    pub(super) events: Vec<RecordedEvent>,
    pub(super) start: Option<JobStart>,
    /// Delay of the next sync without an event.
    pub(super) requeue_after: Option<Duration>,
}

/// A Job to start.
#[derive(Debug, PartialEq)]
pub(super) struct JobStart {
    /// Its scheduled time.
    pub(super) at: Timestamp,
    /// Active Jobs that it replaces.
    pub(super) replaces: Vec<ObjectReference>,
}

/// Returns the type of the condition that finished the Job.
pub(super) fn finished_condition(job: &Job) -> Option<&str> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    let end = conditions.find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    end.map(|condition| condition.type_.as_str())
}

/// Returns the oldest finished Jobs beyond the history limits (`cleanupFinishedJobs`).
pub(super) fn jobs_beyond_history_limits(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
    let mut jobs_beyond_history_limits = Vec::new();
    for (end, limit) in limits {
        let Some(limit) = limit else { continue };
        let mut all: Vec<&Arc<Job>> = jobs.iter().filter(|job| finished_condition(job) == Some(end)).collect();
        let started = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        // Jobs that never started are last.
        all.sort_by_key(|job| (started(job).is_none(), started(job), job.metadata.name.clone()));
        let count = all.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        jobs_beyond_history_limits.extend(all.into_iter().take(count).cloned());
    }
    jobs_beyond_history_limits
}

fn event(warning: bool, reason: &'static str, message: String) -> RecordedEvent {
    RecordedEvent { warning, reason, message }
}

fn uid(job: &Job) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

/// Removes a Job from the active list (`deleteFromActiveList`).
pub(super) fn delete_from_active_list(status: &mut CronJobStatus, uid: &str) {
    let active = status.active.take().unwrap_or_default();
    let left: Vec<_> = active.into_iter().filter(|job| job.uid.as_deref() != Some(uid)).collect();
    status.active = Some(left).filter(|left| !left.is_empty());
}

impl CronJobSnapshot<'_> {
    /// Plans a sync from the current status.
    pub(super) fn plan(&self, status: CronJobStatus) -> Plan {
        let mut plan = Plan { status, events: Vec::new(), start: None, requeue_after: None };
        self.sync_active_jobs(&mut plan);
        if self.cron.metadata.deletion_timestamp.is_some() {
            return plan;
        }
        let (zone, schedule) = match self.schedule() {
            Ok(known) => known,
            Err(error) => {
                plan.events.extend(error);
                return plan;
            }
        };
        self.plan_start(&ScheduleTimes { schedule: &schedule, zone: &zone }, &mut plan);
        plan
    }

    /// Updates the active list and the last successful time.
    fn sync_active_jobs(&self, plan: &mut Plan) {
        for job in self.jobs {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let active = plan.status.active.iter().flatten().any(|known| known.uid.as_deref() == Some(uid(job)));
            match finished_condition(job) {
                None if !active => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    plan.events.push(event(true, "UnexpectedJob", message));
                }
                Some(end) if active => {
                    delete_from_active_list(&mut plan.status, uid(job));
                    let message = format!("Saw completed job: {name}, condition: {end}");
                    plan.events.push(event(false, "SawCompletedJob", message));
                }
                _ => {}
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.as_ref());
            if let Some(time) = completed.filter(|_| finished_condition(job) == Some("Complete")) {
                let last = &mut plan.status.last_successful_time;
                if last.as_ref().is_none_or(|last| last.0 < time.0) {
                    *last = Some(time.clone());
                }
            }
        }
        for uid in self.missing {
            let mut active = plan.status.active.iter().flatten();
            let name = active.find(|job| job.uid.as_ref() == Some(uid)).and_then(|job| job.name.clone());
            if let Some(name) = name {
                plan.events.push(event(false, "MissingJob", format!("Active job went missing: {name}")));
                delete_from_active_list(&mut plan.status, uid);
            }
        }
    }

    /// Returns time zone and schedule; an error is an Event, or `None` if the CronJob is suspended.
    fn schedule(&self) -> Result<(TimeZone, Schedule), Option<RecordedEvent>> {
        let zone = match self.spec.time_zone.as_deref() {
            None => self.zone.clone(),
            Some(name) => TimeZone::get(name).map_err(|_| {
                let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
                Some(event(true, "UnknownTimeZone", message))
            })?,
        };
        if self.spec.suspend == Some(true) {
            return Err(None);
        }
        let text = &self.spec.schedule;
        let schedule = Schedule::parse(text).map_err(|error| {
            Some(event(true, "UnparseableSchedule", format!("unparseable schedule: {text:?} : {error}")))
        })?;
        Ok((zone, schedule))
    }

    /// Returns the time after which scheduled times count.
    fn earliest(&self) -> Timestamp {
        let status = self.cron.status.as_ref();
        let last = status.and_then(|status| status.last_schedule_time.as_ref()).map(|time| time.0);
        let created = self.cron.metadata.creation_timestamp.as_ref().map(|time| time.0);
        last.or(created).unwrap_or(self.now)
    }

    fn plan_start(&self, times: &ScheduleTimes<'_>, plan: &mut Plan) {
        let (now, earliest) = (self.now, self.earliest());
        let deadline = self.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
        let latest = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
        // Times before the starting deadline are skipped. Upstream's Event `MissSchedule` for them is unreachable.
        let come = match times.most_recent(latest.map_or(earliest, |latest| earliest.max(latest)), now) {
            Ok(come) => come,
            Err(NeverScheduled) => {
                let text = "time difference between two schedules is less than 1 second";
                let message = format!("invalid schedule: {} : {text}", self.spec.schedule);
                return plan.events.push(event(true, "InvalidSchedule", message));
            }
        };
        plan.requeue_after = times.until_next(earliest, now);
        let Some(at) = come.last.filter(|_| !self.changed) else { return };
        if come.has_too_many_missed() {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            plan.events.push(event(true, "TooManyMissedTimes", message.to_owned()));
        }
        let active = plan.status.active.clone().unwrap_or_default();
        let name = job_name(self.cron, at);
        let done = plan.status.last_schedule_time.as_ref() == Some(&Time(at));
        if done || active.iter().any(|job| job.name.as_ref() == Some(&name)) {
            return;
        }
        let policy = self.spec.concurrency_policy.as_deref().unwrap_or("Allow");
        if policy == "Forbid" && !active.is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            return plan.events.push(event(false, "JobAlreadyActive", message.to_owned()));
        }
        let replaces = if policy == "Replace" { active } else { vec![] };
        plan.start = Some(JobStart { at, replaces });
    }
}
