//! Job controller (`pkg/controller/job`).
//!
//! [`mod@plan`] decides which Pods to create and delete, [`tracking`] counts Pods; this module writes the result and
//! records Events.

mod backoff;
mod indexes;
mod plan;
mod policies;
mod snapshot;
mod template;
#[cfg(test)]
mod tests;
mod tracking;

use crate::{
    clients::Clients,
    expectations::{Expectations, ExpectedVersion},
    names,
    pod_control::{Failure, PodControl, affected_owners, matches},
    pod_summary::{JOB_TRACKING_FINALIZER, PodSummary},
    worker::{self, Controller, is_code},
};
use backoff::BackoffRecord;
use futures::stream::{self, StreamExt};
use informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use kube::{Api, Client, Resource, api::PostParams};
use parking_lot::Mutex;
use plan::{Plan, PodAction, plan};
use snapshot::{JobSnapshot, is_finished, job_summary};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracking::{Outcome, finalize_status, track_job_status};

const COMPONENT: &str = "job-controller";
/// Name of this controller in `spec.managedBy`.
const JOB_CONTROLLER_NAME: &str = "kubernetes.io/job-controller";
/// Prefix of the key of an orphan Pod: it has the tracking finalizer, but its Job is gone.
const ORPHAN_KEY_PREFIX: &str = "orphan:";

enum Event {
    Job(CacheEvent<Job>),
    Pod(CacheEvent<PodSummary>),
}

struct JobController {
    client: Client,
    control: PodControl,
    known: SharedInformer<Job>,
    pods: SharedInformer<PodSummary>,
    /// Expectations of Pod writes, and of Job status writes.
    pod_expectations: Expectations,
    status_expectations: Expectations,
    /// Back-off by Job, with the Job's UID.
    backoffs: Mutex<HashMap<String, (Option<String>, BackoffRecord)>>,
}

impl Controller for JobController {
    type Event = Event;
    const NAME: &'static str = names::JOB;

    fn observe(&self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Job(CacheEvent::Changed { after: Some(job), .. }) => vec![key(job.as_ref())],
            Event::Job(CacheEvent::Changed { before: Some(job), .. }) => {
                let pods = self.pods.in_namespace(job.metadata.namespace.as_deref().unwrap_or_default());
                let orphans = pods.iter().flat_map(|pod| self.orphan_key(pod));
                orphans.chain([key(job.as_ref())]).collect()
            }
            Event::Job(CacheEvent::Changed { .. }) => vec![],
            Event::Pod(seen @ CacheEvent::Changed { .. }) => {
                let orphan = seen.objects().last().and_then(|pod| self.orphan_key(pod));
                seen.objects().flat_map(|pod| self.jobs_of(pod)).chain(orphan).collect()
            }
            Event::Job(CacheEvent::Resync) | Event::Pod(CacheEvent::Resync) => {
                let pods = self.pods.all();
                self.known.keys().into_iter().chain(pods.iter().filter_map(|pod| self.orphan_key(pod))).collect()
            }
        }
    }

    /// Syncs a Job (`syncJob`).
    async fn reconcile(&self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        if !(self.known.has_synced() && self.pods.has_synced()) {
            return Ok(None);
        }
        if let Some(pod) = key.strip_prefix(ORPHAN_KEY_PREFIX) {
            return self.remove_orphan_finalizer(pod).await;
        }
        let Some(job) = self.known.get_by_key(key) else {
            self.pod_expectations.delete(key);
            self.status_expectations.delete(key);
            self.backoffs.lock().remove(key);
            return Ok(None);
        };
        let Some(spec) = job.spec.as_ref().filter(|s| s.managed_by.as_deref().is_none_or(|m| m == JOB_CONTROLLER_NAME))
        else {
            return Ok(None);
        };
        let remaining_wait = self.pod_expectations.remaining_wait(key, self.pods.resource_version(), now);
        let remaining_wait =
            remaining_wait.or_else(|| self.status_expectations.remaining_wait(key, self.known.resource_version(), now));
        if remaining_wait.is_some() {
            return Ok(remaining_wait);
        }
        let all = self.pods.in_namespace(job.metadata.namespace.as_deref().unwrap_or_default());
        let mine = self.control.claim_pods(job.as_ref(), &spec.selector.clone().unwrap_or_default(), all).await?;
        if job.status.as_ref().is_some_and(is_finished) {
            self.backoffs.lock().remove(key);
            let mut expected = ExpectedVersion::default();
            for pod in mine.iter().filter(|pod| job_summary(pod).tracked) {
                self.control.remove_finalizer(pod, JOB_TRACKING_FINALIZER, &mut expected).await?;
            }
            self.pod_expectations.set(key, expected);
            return Ok(None);
        }
        Box::pin(self.sync_job(key, &job, spec, &mine)).await
    }
}

impl JobController {
    /// Returns the keys of the Jobs that a Pod affects.
    fn jobs_of(&self, pod: &PodSummary) -> Vec<String> {
        let selector = |job: &Job| job.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selects = |job: &Job| selector(job).is_some_and(|selector| matches(&selector, &pod.labels));
        affected_owners(&self.known, &pod.namespace, pod.controller.as_ref(), selects)
    }

    /// Returns the key of an orphan Pod: it has the tracking finalizer, but its Job is gone.
    fn orphan_key(&self, pod: &PodSummary) -> Option<String> {
        let owner = pod.controller.as_ref().filter(|owner| owner.kind == "Job");
        let job = owner.and_then(|owner| {
            let job = self.known.get(&pod.namespace, &owner.name)?;
            Some(job).filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))
        });
        (job_summary(pod).tracked && job.is_none()).then(|| format!("{ORPHAN_KEY_PREFIX}{}", key(pod)))
    }

    /// Removes the finalizer of an orphan Pod, which no Job will count (`syncOrphanPod`).
    async fn remove_orphan_finalizer(&self, pod: &str) -> Result<Option<Duration>, kube::Error> {
        if let Some(pod) = self.pods.get_by_key(pod).filter(|pod| self.orphan_key(pod).is_some()) {
            self.control.remove_finalizer(&pod, JOB_TRACKING_FINALIZER, &mut ExpectedVersion::default()).await?;
        }
        Ok(None)
    }

    fn backoff_record(&self, key: &str, job: &Job) -> BackoffRecord {
        let backoffs = self.backoffs.lock();
        let known = backoffs.get(key).filter(|(uid, _)| *uid == job.metadata.uid);
        known.map(|(_, record)| *record).unwrap_or_default()
    }

    async fn sync_job(
        &self,
        key: &str,
        job: &Job,
        spec: &JobSpec,
        mine: &[Arc<PodSummary>],
    ) -> Result<Option<Duration>, kube::Error> {
        let backoff = self.backoff_record(key, job);
        let snapshot = JobSnapshot::new(job, spec, mine, backoff, Timestamp::now());
        let plan = plan(&snapshot);
        let mut expected = ExpectedVersion::default();
        let (outcome, failure) = self.apply_pod_action(job, spec, &plan, &mut expected).await;
        // Expect the created Pods whatever fails from here on.
        self.pod_expectations.set(key, expected);
        // In a terminating namespace no Pod is created, which is not a failure. Terminal Pods then need not wait for
        // replacements.
        let many = usize::try_from(outcome.done).unwrap_or(0);
        let namespace_terminating =
            failure.is_none() && matches!(&plan.action, PodAction::Create(new) if many < new.len());
        let tracked = track_job_status(&snapshot, &plan, outcome);
        let mut job = job.clone();
        if !self.update_status(key, &mut job, tracked.status).await? {
            return Ok(None);
        }
        let backoff = backoff.after(&snapshot.newly_succeeded(), &snapshot.newly_failed());
        self.backoffs.lock().insert(key.to_owned(), (job.metadata.uid.clone(), backoff));
        let about = job.object_ref(&());
        for (reason, message) in tracked.events {
            self.control.recorder.record(&about, false, reason, message).await;
        }
        let mut pods_with_finalizer: HashSet<&str> =
            mine.iter().filter(|pod| job_summary(pod).tracked).map(|pod| pod.uid.as_str()).collect();
        let unreplaceable = mine
            .iter()
            .filter(|pod| namespace_terminating && pod.terminating && pod.is_terminal() && job_summary(pod).tracked);
        for pod in tracked.release.into_iter().chain(unreplaceable.map(Arc::as_ref)) {
            if !pods_with_finalizer.contains(pod.uid.as_str()) {
                continue;
            }
            self.control.remove_finalizer(pod, JOB_TRACKING_FINALIZER, &mut expected).await?;
            self.pod_expectations.set(key, expected);
            pods_with_finalizer.remove(pod.uid.as_str());
        }
        let mut status = job.status.clone().unwrap_or_default();
        let ended = finalize_status(&mut status, tracked.end.as_ref(), &pods_with_finalizer);
        let updated = self.update_status(key, &mut job, status).await?;
        if let Some(end) = tracked.end.filter(|_| ended && updated) {
            if end.type_ == "Complete" {
                self.control.recorder.record(&about, false, "Completed", "Job completed").await;
            } else {
                let (reason, message) = (end.reason.unwrap_or_default(), end.message.unwrap_or_default());
                self.control.recorder.record(&about, true, &reason, &message).await;
            }
        }
        match failure {
            Some((_, error)) => Err(error),
            None => Ok(plan.requeue_after.map(|again| again.max(Duration::from_millis(10)))),
        }
    }

    /// Creates or deletes the planned Pods.
    async fn apply_pod_action(
        &self,
        job: &Job,
        spec: &JobSpec,
        plan: &Plan<'_>,
        expected: &mut ExpectedVersion,
    ) -> (Outcome, Option<Failure>) {
        let about = job.object_ref(&());
        let (pods, counted) = match &plan.action {
            PodAction::Nothing => return (Outcome::default(), None),
            PodAction::Create(new) => {
                let pods: Vec<_> = new.iter().map(|new| template::pod(job, spec, new)).collect();
                let (made, failure) = self.control.create_pods(&about, &pods, expected).await;
                let done = i32::try_from(made).unwrap_or(i32::MAX);
                return (Outcome { done, failed: failure.is_some() }, failure);
            }
            PodAction::Terminate(pods) => (pods, true),
            PodAction::Remove(pods) => (pods, false),
        };
        let mut done = 0;
        for pod in pods {
            let finalizer_removed = if counted {
                Ok(())
            } else {
                self.control.remove_finalizer(pod, JOB_TRACKING_FINALIZER, expected).await
            };
            let deleted = match finalizer_removed {
                Ok(()) => self.control.delete_pod(&about, pod, expected).await.map(drop),
                Err(e) => Err(("FailedDelete", e)),
            };
            match deleted {
                Ok(()) => done += 1,
                Err(failure) => return (Outcome { done, failed: true }, Some(failure)),
            }
        }
        (Outcome { done, failed: false }, None)
    }

    /// Writes the status if it has changed. Returns whether the API has it: finalizers are only removed after a
    /// successful write.
    async fn update_status(&self, key: &str, job: &mut Job, status: JobStatus) -> Result<bool, kube::Error> {
        if job.status.as_ref() == Some(&status) {
            return Ok(true);
        }
        job.status = Some(status);
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let name = job.metadata.name.clone().unwrap_or_default();
        *job = match api.replace_status(&name, &PostParams::default(), job).await {
            Ok(job) => job,
            // If the object has changed or is gone, the watch enqueues it again.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => return Ok(false),
            Err(e) => return Err(e),
        };
        let mut expected = ExpectedVersion::default();
        expected.observe(&job.metadata);
        self.status_expectations.set(key, expected);
        Ok(true)
    }
}

/// Subscribes to the informers when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    known: SharedInformer<Job>,
    pods: SharedInformer<PodSummary>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = stream::select(known.subscribe().map(Event::Job), pods.subscribe().map(Event::Pod)).boxed();
    let client = clients.for_service_account("job-controller");
    let controller = JobController {
        control: PodControl::new(client.clone(), COMPONENT).with_finalizer(JOB_TRACKING_FINALIZER),
        client,
        known,
        pods,
        pod_expectations: Expectations::default(),
        status_expectations: Expectations::default(),
        backoffs: Mutex::default(),
    };
    // The future is large, so it is boxed.
    Box::pin(worker::run(controller, events, stop))
}
