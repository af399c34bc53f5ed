//! CronJob controller (`pkg/controller/cronjob`).
//!
//! [`plan`] decides which Job to start, [`schedule_times`] which scheduled times have passed; this module writes the
//! result and records Events.

mod plan;
mod schedule_changes;
mod schedule_times;
mod template;
#[cfg(test)]
mod tests;

use crate::{
    clients::Clients,
    clock::Clock,
    event_recorder::EventRecorder,
    expectations::{Expectations, ExpectedVersion},
    names,
    pod_control::{affected_owners, error_message, is_namespace_terminating},
    pod_summary::controller_of,
    worker::{self, Controller, is_code},
};
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use plan::{CronJobSnapshot, JobStart, delete_from_active_list, jobs_beyond_history_limits};
use schedule_changes::ScheduleChanges;
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "cronjob-controller";

enum Event {
    CronJob(CacheEvent<CronJob>),
    Job(CacheEvent<Job>),
}

struct CronJobController {
    client: Client,
    recorder: EventRecorder,
    clock: Clock,
    known: SharedInformer<CronJob>,
    jobs: SharedInformer<Job>,
    /// Expectations of Job writes, and of CronJob status writes.
    job_expectations: Expectations,
    status_expectations: Expectations,
    schedule_changes: ScheduleChanges,
}

impl Controller for CronJobController {
    type Event = Event;
    const NAME: &'static str = names::CRON_JOB;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::CronJob(CacheEvent::Changed { before, after: Some(cron) }) => {
                let when = |cron: &CronJob| cron.spec.as_ref().map(|s| (s.schedule.clone(), s.time_zone.clone()));
                if before.is_some_and(|before| when(&before) != when(&cron)) {
                    self.schedule_changes.insert(key(cron.as_ref()));
                }
                vec![key(cron.as_ref())]
            }
            Event::CronJob(CacheEvent::Changed { before, .. }) => {
                before.iter().map(|cron| key(cron.as_ref())).collect()
            }
            Event::Job(seen @ CacheEvent::Changed { .. }) => {
                let owned = seen.objects().filter_map(|job| Some((job, owner(job)?)));
                let keys = owned.flat_map(|(job, owner)| {
                    affected_owners(
                        &self.known,
                        job.metadata.namespace.as_deref().unwrap_or_default(),
                        Some(owner),
                        |_| false,
                    )
                });
                keys.collect()
            }
            Event::CronJob(CacheEvent::Resync) | Event::Job(CacheEvent::Resync) => self.known.keys(),
        }
    }

    /// Syncs a CronJob (`syncCronJob`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let change = self.schedule_changes.take(key);
        let Some(cron) = self.known.get_by_key(key) else {
            self.job_expectations.delete(key);
            self.status_expectations.delete(key);
            change.done();
            return Ok(None);
        };
        let Some(spec) = cron.spec.as_ref().filter(|_| self.jobs.has_synced()) else { return Ok(None) };
        let remaining_wait = self.job_expectations.remaining_wait(key, self.jobs.resource_version(), now);
        let remaining_wait =
            remaining_wait.or_else(|| self.status_expectations.remaining_wait(key, self.known.resource_version(), now));
        if remaining_wait.is_some() {
            return Ok(remaining_wait);
        }
        let mut jobs = self.jobs.in_namespace(namespace(&cron));
        jobs.retain(|job| owner(job).is_some_and(|owner| Some(&owner.uid) == cron.metadata.uid.as_ref()));
        let mut status = cron.status.clone().unwrap_or_default();
        let mut expected = ExpectedVersion::default();
        for old in jobs_beyond_history_limits(spec, &jobs) {
            // A failed deletion does not prevent the next start.
            if self.delete_job(&cron, &old.object_ref(&()), &mut expected).await.is_ok() {
                delete_from_active_list(&mut status, old.metadata.uid.as_deref().unwrap_or_default());
            }
        }
        let missing = self.missing_active_jobs(&status, &jobs).await?;
        let (zone, changed) = (self.clock.zone(), change.is_set());
        let snapshot =
            CronJobSnapshot { cron: &cron, spec, jobs: &jobs, missing: &missing, changed, zone, now: self.clock.now() };
        let mut plan = snapshot.plan(status);
        for event in &plan.events {
            self.recorder.record(&cron.object_ref(&()), event.warning, event.reason, &event.message).await;
        }
        let started = match &plan.start {
            Some(start) => self.start_job(&cron, start, &mut plan.status, &mut expected).await,
            None => Ok(()),
        };
        self.job_expectations.set(key, expected);
        self.update_status(key, &cron, plan.status).await?;
        started?;
        change.done();
        Ok(plan.requeue_after)
    }
}

fn owner(job: &Job) -> Option<&OwnerReference> {
    controller_of(job.metadata.owner_references.as_deref()?).filter(|owner| owner.kind == "CronJob")
}

fn namespace(cron: &CronJob) -> &str {
    cron.metadata.namespace.as_deref().unwrap_or_default()
}

impl CronJobController {
    fn api(&self, cron: &CronJob) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace(cron))
    }

    /// Returns the UIDs of active Jobs that do not exist. The Job informer may lag behind that of CronJobs, so
    /// missing Jobs are looked up in the API.
    async fn missing_active_jobs(
        &self,
        status: &CronJobStatus,
        jobs: &[Arc<Job>],
    ) -> Result<HashSet<String>, kube::Error> {
        let mut missing = HashSet::new();
        for active in status.active.iter().flatten() {
            let Some(uid) = active.uid.clone() else { continue };
            if jobs.iter().any(|job| job.metadata.uid.as_ref() == Some(&uid)) {
                continue;
            }
            let api: Api<Job> = Api::namespaced(self.client.clone(), active.namespace.as_deref().unwrap_or_default());
            let there = api.get_opt(active.name.as_deref().unwrap_or_default()).await?;
            if there.is_none() {
                missing.insert(uid);
            }
        }
        Ok(missing)
    }

    /// Deletes a Job with its Pods and records an Event.
    async fn delete_job(
        &self,
        cron: &CronJob,
        job: &ObjectReference,
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        let (about, name) = (cron.object_ref(&()), job.name.as_deref().unwrap_or_default());
        match self.api(cron).delete(name, &DeleteParams::background()).await {
            Ok(deleted) => {
                if let Some(last) = deleted.left() {
                    expected.observe(&last.metadata);
                }
                self.recorder.record(&about, false, "SuccessfulDelete", &format!("Deleted job {name}")).await;
                Ok(())
            }
            Err(e) if is_code(&e, 404) => Ok(()),
            Err(e) => {
                self.recorder
                    .record(&about, true, "FailedDelete", &format!("Deleted job: {}", error_message(&e)))
                    .await;
                Err(e)
            }
        }
    }

    /// Starts a Job after deleting those that it replaces, and adds it to the status.
    async fn start_job(
        &self,
        cron: &CronJob,
        start: &JobStart,
        status: &mut CronJobStatus,
        expected: &mut ExpectedVersion,
    ) -> Result<(), kube::Error> {
        for job in &start.replaces {
            self.delete_job(cron, job, expected).await?;
            delete_from_active_list(status, job.uid.as_deref().unwrap_or_default());
        }
        let (about, job) = (cron.object_ref(&()), template::job_from_template(cron, start.at));
        let made = match self.api(cron).create(&PostParams::default(), &job).await {
            Ok(made) => {
                let name = made.metadata.name.as_deref().unwrap_or_default();
                self.recorder.record(&about, false, "SuccessfulCreate", &format!("Created job {name}")).await;
                made
            }
            // The namespace controller deletes the rest.
            Err(e) if is_namespace_terminating(&e) => return Ok(()),
            Err(e) if is_code(&e, 409) => {
                // The Job was created in an interrupted sync, or belongs to another owner.
                let there = self.api(cron).get_opt(job.metadata.name.as_deref().unwrap_or_default()).await?;
                let mine = |job: &Job| owner(job).map(|owner| &owner.uid) == cron.metadata.uid.as_ref();
                let Some(there) = there.filter(mine) else { return Ok(()) };
                if plan::finished_condition(&there).is_some() {
                    status.last_schedule_time = Some(Time(start.at));
                    return Ok(());
                }
                there
            }
            Err(e) => {
                let message = format!("Error creating job: {}", error_message(&e));
                self.recorder.record(&about, true, "FailedCreate", &message).await;
                return Err(e);
            }
        };
        expected.observe(&made.metadata);
        let started = ObjectReference { resource_version: made.resource_version(), ..made.object_ref(&()) };
        status.active.get_or_insert_default().push(started);
        status.last_schedule_time = Some(Time(start.at));
        Ok(())
    }

    /// Writes the status if it has changed.
    async fn update_status(&self, key: &str, cron: &CronJob, status: CronJobStatus) -> Result<(), kube::Error> {
        if cron.status.clone().unwrap_or_default() == status {
            return Ok(());
        }
        let mut new = cron.clone();
        new.status = Some(status);
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), namespace(cron));
        let name = cron.metadata.name.as_deref().unwrap_or_default();
        match api.replace_status(name, &PostParams::default(), &new).await {
            Ok(reported) => {
                let mut expected = ExpectedVersion::default();
                expected.observe(&reported.metadata);
                self.status_expectations.set(key, expected);
                Ok(())
            }
            // If the object has changed or is gone, the watch enqueues it again.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    jobs: SharedInformer<Job>,
    clock: Clock,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let known = SharedInformer::<CronJob>::new();
    let events = stream::select(known.subscribe().map(Event::CronJob), jobs.subscribe().map(Event::Job)).boxed();
    let watched = known.clone().run(Api::all(clients.shared()), |cron| cron, stop.clone());
    let client = clients.for_service_account("cronjob-controller");
    let controller = CronJobController {
        recorder: EventRecorder::new(client.clone(), COMPONENT),
        client,
        clock,
        known,
        jobs,
        job_expectations: Expectations::default(),
        status_expectations: Expectations::default(),
        schedule_changes: ScheduleChanges::default(),
    };
    let works = worker::run(controller, events, stop);
    // The future is large, so it is boxed.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
