//! Jobs: Pods that are run until enough of them have ended well (`pkg/controller/job`).
//!
//! What is to be done is decided by [`plan`], how Pods are counted by [`track`]; here it is carried out, and told.

mod backoff;
mod facts;
mod indexes;
mod plan;
mod policy;
mod template;
#[cfg(test)]
mod tests;
mod track;

use crate::cache::{Cache, Seen, key};
use crate::clients::Clients;
use crate::members::{Member, TRACKING};
use crate::pod_control::{Failure, PodControl, concerned, matches};
use crate::worker::{self, Controller, is_code};
use crate::written::{Revision, Written};
use backoff::Backoff;
use facts::{Facts, is_finished, part};
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use plan::{Plan, Todo, plan};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use track::{Outcome, settle, track};

const COMPONENT: &str = "job-controller";
/// Who else may care for a Job is named in its spec.
const MANAGER: &str = "kubernetes.io/job-controller";
/// Before the key of a Pod that is held for a Job that is not there.
const ORPHAN: &str = "orphan:";

enum Event {
    Job(Seen<Job>),
    Pod(Seen<Member>),
}

struct Jobs {
    client: Client,
    control: PodControl,
    known: Cache<Job>,
    pods: Cache<Member>,
    /// Writes of Pods, and of Jobs.
    made: Written,
    reported: Written,
    backoffs: HashMap<String, Backoff>,
}

impl Controller for Jobs {
    type Event = Event;
    const NAME: &'static str = "Jobs";

    fn observe(&mut self, event: Event, _now: Instant) -> Vec<String> {
        match event {
            Event::Job(Seen::One { after: Some(job), .. }) => vec![key(job.as_ref())],
            Event::Job(Seen::One { before: Some(job), .. }) => {
                let key = key(job.as_ref());
                self.made.forget(&key);
                self.reported.forget(&key);
                self.backoffs.remove(&key);
                let pods = self.pods.in_namespace(job.metadata.namespace.as_deref().unwrap_or_default());
                pods.iter().flat_map(|pod| self.orphan(pod)).collect()
            }
            Event::Job(Seen::One { .. }) => vec![],
            Event::Pod(seen @ Seen::One { .. }) => {
                let orphan = seen.both().last().and_then(|pod| self.orphan(pod));
                seen.both().flat_map(|pod| self.concerned(pod)).chain(orphan).collect()
            }
            Event::Job(Seen::All) | Event::Pod(Seen::All) => {
                let pods = self.pods.all();
                self.known.keys().into_iter().chain(pods.iter().filter_map(|pod| self.orphan(pod))).collect()
            }
        }
    }

    async fn reconcile(&mut self, key: &str, now: Instant) -> Result<Option<Duration>, kube::Error> {
        if !(self.known.listed() && self.pods.listed()) {
            return Ok(None);
        }
        if let Some(pod) = key.strip_prefix(ORPHAN) {
            return self.let_go(pod).await;
        }
        let Some(job) = self.known.at(key) else { return Ok(None) };
        let Some(spec) = job.spec.as_ref().filter(|s| s.managed_by.as_deref().is_none_or(|m| m == MANAGER)) else {
            return Ok(None);
        };
        let outstanding = self.made.outstanding(key, self.pods.revision(), now);
        let outstanding = outstanding.or_else(|| self.reported.outstanding(key, self.known.revision(), now));
        if outstanding.is_some() {
            return Ok(outstanding);
        }
        let all = self.pods.in_namespace(job.metadata.namespace.as_deref().unwrap_or_default());
        let mine = self.control.claim(job.as_ref(), &spec.selector.clone().unwrap_or_default(), all).await?;
        if job.status.as_ref().is_some_and(is_finished) {
            self.backoffs.remove(key);
            let mut written = Revision::default();
            for pod in mine.iter().filter(|pod| part(pod).tracked) {
                self.control.unhold(pod, TRACKING, &mut written).await?;
            }
            self.made.note(key, written, now);
            return Ok(None);
        }
        Box::pin(self.sync(key, &job, spec, &mine, now)).await
    }
}

impl Jobs {
    /// The Jobs that a Pod is a matter of: its own, or all that select it when it has none.
    fn concerned(&self, pod: &Member) -> Vec<String> {
        let selector = |job: &Job| job.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selects = |job: &Job| selector(job).is_some_and(|selector| matches(&selector, &pod.labels));
        concerned(&self.known, &pod.namespace, pod.controller.as_ref(), selects)
    }

    /// The key of a Pod that is held for a Job that is not there.
    fn orphan(&self, pod: &Member) -> Option<String> {
        let owner = pod.controller.as_ref().filter(|owner| owner.kind == "Job");
        let job = owner.and_then(|owner| {
            let job = self.known.get(&pod.namespace, &owner.name)?;
            Some(job).filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))
        });
        (part(pod).tracked && job.is_none()).then(|| format!("{ORPHAN}{}", key(pod)))
    }

    /// Nobody will count it: nothing needs to hold it.
    async fn let_go(&mut self, pod: &str) -> Result<Option<Duration>, kube::Error> {
        if let Some(pod) = self.pods.at(pod).filter(|pod| self.orphan(pod).is_some()) {
            self.control.unhold(&pod, TRACKING, &mut Revision::default()).await?;
        }
        Ok(None)
    }

    async fn sync(
        &mut self,
        key: &str,
        job: &Job,
        spec: &JobSpec,
        mine: &[Arc<Member>],
        now: Instant,
    ) -> Result<Option<Duration>, kube::Error> {
        let backoff = self.backoffs.get(key).copied().unwrap_or_default();
        let facts = Facts::new(job, spec, mine, backoff, Timestamp::now());
        let plan = plan(&facts);
        let mut written = Revision::default();
        let (outcome, failure) = self.carry_out(job, spec, &plan, &mut written).await;
        // Whatever fails from here on, what was made is waited for.
        self.made.note(key, written, now);
        // In a namespace that goes, none is made, and that is no failure: nothing need wait to be replaced.
        let many = usize::try_from(outcome.done).unwrap_or(0);
        let goes = failure.is_none() && matches!(&plan.todo, Todo::Make(new) if many < new.len());
        let tracked = track(&facts, &plan, outcome);
        let mut job = job.clone();
        if !self.report(key, &mut job, tracked.status, now).await? {
            return Ok(None);
        }
        self.backoffs.insert(key.to_owned(), backoff.after(&facts.newly_succeeded(), &facts.newly_failed()));
        let about = job.object_ref(&());
        for (reason, message) in tracked.told {
            self.control.recorder.tell(&about, false, reason, message).await;
        }
        let mut held: HashSet<&str> = mine.iter().filter(|pod| part(pod).tracked).map(|pod| pod.uid.as_str()).collect();
        let in_vain = mine.iter().filter(|pod| goes && pod.terminating && pod.ended() && part(pod).tracked);
        for pod in tracked.release.into_iter().chain(in_vain.map(Arc::as_ref)) {
            if !held.contains(pod.uid.as_str()) {
                continue;
            }
            self.control.unhold(pod, TRACKING, &mut written).await?;
            self.made.note(key, written, now);
            held.remove(pod.uid.as_str());
        }
        let mut status = job.status.clone().unwrap_or_default();
        let ended = settle(&mut status, tracked.end.as_ref(), &held);
        let told = self.report(key, &mut job, status, now).await?;
        if let Some(end) = tracked.end.filter(|_| ended && told) {
            if end.type_ == "Complete" {
                self.control.recorder.tell(&about, false, "Completed", "Job completed").await;
            } else {
                let (reason, message) = (end.reason.unwrap_or_default(), end.message.unwrap_or_default());
                self.control.recorder.tell(&about, true, &reason, &message).await;
            }
        }
        match failure {
            Some((_, error)) => Err(error),
            None => Ok(plan.again.map(|again| again.max(Duration::from_millis(10)))),
        }
    }

    /// Makes or deletes what is to be made or deleted.
    async fn carry_out(
        &self,
        job: &Job,
        spec: &JobSpec,
        plan: &Plan<'_>,
        written: &mut Revision,
    ) -> (Outcome, Option<Failure>) {
        let about = job.object_ref(&());
        let (pods, counted) = match &plan.todo {
            Todo::Nothing => return (Outcome::default(), None),
            Todo::Make(new) => {
                let pods: Vec<_> = new.iter().map(|new| template::pod(job, spec, new)).collect();
                let (made, failure) = self.control.make(&about, &pods, written).await;
                let done = i32::try_from(made).unwrap_or(i32::MAX);
                return (Outcome { done, failed: failure.is_some() }, failure);
            }
            Todo::End(pods) => (pods, true),
            Todo::Drop(pods) => (pods, false),
        };
        let mut done = 0;
        for pod in pods {
            let unheld = if counted { Ok(()) } else { self.control.unhold(pod, TRACKING, written).await };
            let deleted = match unheld {
                Ok(()) => self.control.delete(&about, pod, written).await.map(drop),
                Err(e) => Err(("FailedDelete", e)),
            };
            match deleted {
                Ok(()) => done += 1,
                Err(failure) => return (Outcome { done, failed: true }, Some(failure)),
            }
        }
        (Outcome { done, failed: false }, None)
    }

    /// Writes the status, if it is another. Gives whether that is what it is now: nothing may be done on the strength of
    /// one that was not written.
    async fn report(&mut self, key: &str, job: &mut Job, status: JobStatus, now: Instant) -> Result<bool, kube::Error> {
        if job.status.as_ref() == Some(&status) {
            return Ok(true);
        }
        job.status = Some(status);
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let name = job.metadata.name.clone().unwrap_or_default();
        *job = match api.replace_status(&name, &PostParams::default(), job).await {
            Ok(job) => job,
            // It has changed, or gone, meanwhile: the watch says so.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => return Ok(false),
            Err(e) => return Err(e),
        };
        let mut written = Revision::default();
        written.saw(&job.metadata);
        self.reported.note(key, written, now);
        Ok(true)
    }
}

/// It hears of changes from now on, not only once it runs.
pub(crate) fn run(
    clients: Clients,
    known: Cache<Job>,
    pods: Cache<Member>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = stream::select(known.changes().map(Event::Job), pods.changes().map(Event::Pod)).boxed();
    let client = clients.of("job-controller");
    let controller = Jobs {
        control: PodControl::new(client.clone(), COMPONENT).holding(TRACKING),
        client,
        known,
        pods,
        made: Written::default(),
        reported: Written::default(),
        backoffs: HashMap::new(),
    };
    // What it does at once is large: it lies on the heap.
    Box::pin(worker::run(controller, events, stop))
}
