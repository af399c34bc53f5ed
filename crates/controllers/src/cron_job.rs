//! CronJobs: Jobs that are started again and again, when their time has come (`pkg/controller/cronjob`).
//!
//! What is to be done is decided by [`plan`], what time has come by [`missed`]; here it is carried out, and told.

mod missed;
mod plan;
mod template;
#[cfg(test)]
mod tests;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::clock::Clock;
use crate::members::controller;
use crate::pod_control::{concerned, is_ending, said};
use crate::recorder::Recorder;
use crate::worker::{self, Controller, is_code};
use crate::written::{Revision, Written};
use futures::stream::{self, StreamExt};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use plan::{Facts, Start, drop_active, excess};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const COMPONENT: &str = "cronjob-controller";

enum Event {
    CronJob(Seen<CronJob>),
    Job(Seen<Job>),
}

struct CronJobs {
    client: Client,
    recorder: Recorder,
    clock: Clock,
    known: Cache<CronJob>,
    jobs: Cache<Job>,
    /// Writes of Jobs, and of CronJobs.
    made: Written,
    reported: Written,
    /// Those whose schedule has changed since they were reconciled.
    changed: HashSet<String>,
}

impl Controller for CronJobs {
    type Event = Event;
    const NAME: &'static str = "CronJobs";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::CronJob(Seen::One { before, after: Some(cron) }) => {
                let when = |cron: &CronJob| cron.spec.as_ref().map(|s| (s.schedule.clone(), s.time_zone.clone()));
                if before.is_some_and(|before| when(&before) != when(&cron)) {
                    self.changed.insert(key(cron.as_ref()));
                }
                vec![key(cron.as_ref())]
            }
            Event::CronJob(Seen::One { before, .. }) => {
                for gone in before.iter().map(|cron| key(cron.as_ref())) {
                    self.made.forget(&gone);
                    self.reported.forget(&gone);
                    self.changed.remove(&gone);
                }
                vec![]
            }
            Event::Job(seen @ Seen::One { .. }) => {
                let owned = seen.both().filter_map(|job| Some((job, owner(job)?)));
                let keys = owned.flat_map(|(job, owner)| {
                    concerned(&self.known, job.metadata.namespace.as_deref().unwrap_or_default(), Some(owner), |_| {
                        false
                    })
                });
                keys.collect()
            }
            Event::CronJob(Seen::All) | Event::Job(Seen::All) => self.known.keys(),
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(cron) = self.known.at(key).filter(|_| self.jobs.listed()) else { return Ok(None) };
        let Some(spec) = cron.spec.as_ref() else { return Ok(None) };
        let outstanding = self.made.outstanding(key, self.jobs.revision(), now);
        let outstanding = outstanding.or_else(|| self.reported.outstanding(key, self.known.revision(), now));
        if outstanding.is_some() {
            return Ok(outstanding);
        }
        let mut jobs = self.jobs.in_namespace(namespace(&cron));
        jobs.retain(|job| owner(job).is_some_and(|owner| Some(&owner.uid) == cron.metadata.uid.as_ref()));
        let mut status = cron.status.clone().unwrap_or_default();
        let mut written = Revision::default();
        for old in excess(spec, &jobs) {
            // That one could not be deleted is no reason to start none.
            if self.delete(&cron, &old.object_ref(&()), &mut written).await.is_ok() {
                drop_active(&mut status, old.metadata.uid.as_deref().unwrap_or_default());
            }
        }
        let missing = self.missing(&status, &jobs).await?;
        let (zone, changed) = (self.clock.zone(), self.changed.remove(key));
        let facts = Facts { cron: &cron, spec, jobs: &jobs, missing: &missing, changed, zone, now: self.clock.now() };
        let mut plan = facts.plan(status);
        for told in &plan.told {
            self.recorder.tell(&cron.object_ref(&()), told.warning, told.reason, &told.message).await;
        }
        let started = match &plan.start {
            Some(start) => self.start(&cron, start, &mut plan.status, &mut written).await,
            None => Ok(()),
        };
        self.made.note(key, written, now);
        self.report(key, &cron, plan.status, now).await?;
        started.map(|()| plan.again)
    }
}

fn owner(job: &Job) -> Option<&OwnerReference> {
    controller(job.metadata.owner_references.as_deref()?).filter(|owner| owner.kind == "CronJob")
}

fn namespace(cron: &CronJob) -> &str {
    cron.metadata.namespace.as_deref().unwrap_or_default()
}

impl CronJobs {
    fn api(&self, cron: &CronJob) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace(cron))
    }

    /// UIDs of those that were running, and are not there any more. The watch of Jobs may be behind that of CronJobs:
    /// what it does not show is asked for.
    async fn missing(&self, status: &CronJobStatus, jobs: &[Arc<Job>]) -> Result<HashSet<String>, kube::Error> {
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

    /// Deletes a Job with its Pods, and tells so.
    async fn delete(&self, cron: &CronJob, job: &ObjectReference, written: &mut Revision) -> Result<(), kube::Error> {
        let (about, name) = (cron.object_ref(&()), job.name.as_deref().unwrap_or_default());
        match self.api(cron).delete(name, &DeleteParams::background()).await {
            Ok(deleted) => {
                if let Some(last) = deleted.left() {
                    written.saw(&last.metadata);
                }
                self.recorder.tell(&about, false, "SuccessfulDelete", &format!("Deleted job {name}")).await;
                Ok(())
            }
            Err(e) if is_code(&e, 404) => Ok(()),
            Err(e) => {
                self.recorder.tell(&about, true, "FailedDelete", &format!("Deleted job: {}", said(&e))).await;
                Err(e)
            }
        }
    }

    /// Starts a Job, after those have gone that give way to it, and notes it in the status.
    async fn start(
        &self,
        cron: &CronJob,
        start: &Start,
        status: &mut CronJobStatus,
        written: &mut Revision,
    ) -> Result<(), kube::Error> {
        for job in &start.instead_of {
            self.delete(cron, job, written).await?;
            drop_active(status, job.uid.as_deref().unwrap_or_default());
        }
        let (about, job) = (cron.object_ref(&()), template::job(cron, start.at));
        let made = match self.api(cron).create(&PostParams::default(), &job).await {
            Ok(made) => {
                let name = made.metadata.name.as_deref().unwrap_or_default();
                self.recorder.tell(&about, false, "SuccessfulCreate", &format!("Created job {name}")).await;
                made
            }
            // A namespace that goes takes all with it.
            Err(e) if is_ending(&e) => return Ok(()),
            Err(e) if is_code(&e, 409) => {
                // It was made before, and could not be noted; or it is somebody else's.
                let there = self.api(cron).get_opt(job.metadata.name.as_deref().unwrap_or_default()).await?;
                let mine = |job: &Job| owner(job).map(|owner| &owner.uid) == cron.metadata.uid.as_ref();
                let Some(there) = there.filter(mine) else { return Ok(()) };
                if plan::ended(&there).is_some() {
                    status.last_schedule_time = Some(Time(start.at));
                    return Ok(());
                }
                there
            }
            Err(e) => {
                let message = format!("Error creating job: {}", said(&e));
                self.recorder.tell(&about, true, "FailedCreate", &message).await;
                return Err(e);
            }
        };
        written.saw(&made.metadata);
        let started = ObjectReference { resource_version: made.resource_version(), ..made.object_ref(&()) };
        status.active.get_or_insert_default().push(started);
        status.last_schedule_time = Some(Time(start.at));
        Ok(())
    }

    /// Writes the status, if it is another.
    async fn report(
        &mut self,
        key: &str,
        cron: &CronJob,
        status: CronJobStatus,
        now: Instant,
    ) -> Result<(), kube::Error> {
        if cron.status.clone().unwrap_or_default() == status {
            return Ok(());
        }
        let mut new = cron.clone();
        new.status = Some(status);
        let api: Api<CronJob> = Api::namespaced(self.client.clone(), namespace(cron));
        let name = cron.metadata.name.as_deref().unwrap_or_default();
        match api.replace_status(name, &PostParams::default(), &new).await {
            Ok(reported) => {
                let mut written = Revision::default();
                written.saw(&reported.metadata);
                self.reported.note(key, written, now);
                Ok(())
            }
            // It has changed, or gone, meanwhile: the watch says so.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    jobs: Cache<Job>,
    clock: Clock,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let known = Cache::<CronJob>::new();
    let events = stream::select(known.changes().map(Event::CronJob), jobs.changes().map(Event::Job)).boxed();
    let watched = known.clone().follow(Api::all(clients.shared()), |cron| cron, stop.clone());
    let client = clients.of("cronjob-controller");
    let controller = CronJobs {
        recorder: Recorder::new(client.clone(), COMPONENT),
        client,
        clock,
        known,
        jobs,
        made: Written::default(),
        reported: Written::default(),
        changed: HashSet::new(),
    };
    let works = worker::run(controller, events, stop);
    // What they do at once is large: it lies on the heap.
    Box::pin(async move {
        futures::join!(watched, works);
    })
}
