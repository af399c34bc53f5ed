//! Progress output of a run: the timeline, Events and logs of Pods, one line each.

use super::{
    completion::FinishedKey,
    image_pulls::{self, ImagePullEvents},
    timeline::{Line, Severity, Timeline, display_name},
};
use crate::print::print_line;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::{
    api::{
        batch::v1::Job,
        core::v1::{Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::LogParams,
    runtime::{WatchStreamExt, watcher, watcher::Event as Watched},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, task::JoinSet};

/// Timeout for the remaining logs of terminated Pods.
const LOG_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Prints lines with the time since the start.
#[derive(Clone, Copy)]
pub(super) struct Printer {
    start: Instant,
    color: bool,
}

impl Printer {
    /// Starts the clock. Only a terminal gets colours.
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), color: std::io::IsTerminal::is_terminal(&std::io::stdout()) }
    }

    fn print_line(self, line: &Line) {
        let ms = self.start.elapsed().as_millis();
        let (on, off) = match (self.color, line.severity) {
            (true, Severity::Success) => ("\x1b[32m", "\x1b[0m"),
            (true, Severity::Failure) => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        print_line!("{ms:>7} ms  {:<24} {on}{}{off}", line.subject, line.text);
    }

    pub(super) fn print(self, subject: &str, text: &str, severity: Severity) {
        self.print_line(&Line { subject: subject.to_owned(), text: text.to_owned(), severity });
    }
}

/// Watches a cluster and prints its Pods, Jobs, Events and logs.
///
/// The watches are kube's, not the crate `informer`'s: a command that prints what happens has no cache, and must not print
/// Events of a list, which happened before it was started.
pub(super) struct ClusterTimeline {
    client: Client,
    pub(super) printer: Printer,
    pods: BoxStream<'static, watcher::Result<Watched<Pod>>>,
    jobs: BoxStream<'static, watcher::Result<Watched<Job>>>,
    events: BoxStream<'static, watcher::Result<Watched<Event>>>,
    log: mpsc::Sender<(String, String)>,
    lines: mpsc::Receiver<(String, String)>,
    timeline: Timeline,
    pull_events: ImagePullEvents,
    /// IDs of containers whose log is streamed.
    streamed: BTreeSet<String>,
    log_tasks: JoinSet<()>,
    /// Finished Pods and Jobs, and whether they succeeded.
    pub(super) finished: BTreeMap<FinishedKey, bool>,
}

impl ClusterTimeline {
    pub(super) fn new(client: &Client, printer: Printer) -> Self {
        let (log, lines) = mpsc::channel(256);
        Self {
            client: client.clone(),
            printer,
            pods: watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff().boxed(),
            jobs: watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff().boxed(),
            events: watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff().boxed(),
            log,
            lines,
            timeline: Timeline::default(),
            pull_events: ImagePullEvents::default(),
            streamed: BTreeSet::new(),
            log_tasks: JoinSet::new(),
            finished: BTreeMap::new(),
        }
    }

    /// Skips the Events that have happened. Without this, [`Self::next`] would skip those until its first list.
    pub(super) async fn skip_past_events(&mut self) {
        while let Some(event) = self.events.next().await
            && !matches!(event, Ok(Watched::InitDone))
        {}
    }

    /// Waits for the next event or log line and prints it.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            Some(event) = self.pods.next() => match event {
                Ok(Watched::Apply(pod) | Watched::InitApply(pod)) => self.handle_pod(&pod),
                Ok(Watched::Delete(pod)) => self.printer.print_line(&self.timeline.removed(&pod)),
                _ => {}
            },
            Some(event) = self.jobs.next() => if let Ok(Watched::Apply(job) | Watched::InitApply(job)) = event {
                self.handle_job(&job);
            },
            Some(event) = self.events.next() => if let Ok(Watched::Apply(event)) = event {
                self.handle_event(&event);
            },
            Some((subject, text)) = self.lines.recv() => self.printer.print(&subject, &format!("| {text}"), Severity::Info),
        }
    }

    /// Prints events and log lines until it is dropped.
    pub(super) async fn run(&mut self) -> Infallible {
        loop {
            self.next().await;
        }
    }

    /// Prints the remaining log lines.
    pub(super) async fn drain_logs(&mut self) {
        let all = async {
            loop {
                tokio::select! {
                    biased;
                    Some((subject, text)) = self.lines.recv() => {
                        self.printer.print(&subject, &format!("| {text}"), Severity::Info);
                    }
                    done = self.log_tasks.join_next() => if done.is_none() && self.lines.is_empty() {
                        return;
                    },
                }
            }
        };
        let _ = tokio::time::timeout(LOG_DRAIN_TIMEOUT, all).await;
    }

    fn handle_pod(&mut self, pod: &Pod) {
        self.timeline.observe(pod).iter().for_each(|line| self.printer.print_line(line));
        self.stream_logs(pod);
        if api::pod::is_terminal(pod) {
            self.finished.insert(object_key("Pod", &pod.metadata), api::pod::phase(pod) == "Succeeded");
        } else if let Some(reason) = image_pulls::permanent_image_failure(pod) {
            self.mark_failed(pod, &reason);
        }
    }

    /// Marks a Pod that can never start, and the Job that owns it, as failed. The Job would wait for the Pod.
    fn mark_failed(&mut self, pod: &Pod, reason: &str) {
        let owners = pod.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Job");
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let jobs = owners.map(|owner| ("Job", namespace.clone(), owner.name.clone())).collect::<Vec<_>>();
        for key in jobs.into_iter().chain([object_key("Pod", &pod.metadata)]) {
            if !self.finished.contains_key(&key) {
                let subject = format!("{}/{}", key.0.to_lowercase(), display_name(Some(&key.1), Some(&key.2)));
                self.printer.print(&subject, &format!("will never start: {reason}"), Severity::Failure);
                self.finished.insert(key, false);
            }
        }
    }

    fn handle_job(&mut self, job: &Job) {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        let is = |type_| conditions.into_iter().flatten().any(|c| c.type_ == type_ && c.status == "True");
        let (complete, failed) = (is("Complete"), is("Failed"));
        if (complete || failed) && self.finished.insert(object_key("Job", &job.metadata), complete).is_none() {
            let subject =
                format!("job/{}", display_name(job.metadata.namespace.as_deref(), job.metadata.name.as_deref()));
            let (text, severity) =
                if complete { ("Complete", Severity::Success) } else { ("Failed", Severity::Failure) };
            self.printer.print(&subject, text, severity);
        }
    }

    fn handle_event(&mut self, event: &Event) {
        let severity = if event.type_.as_deref() == Some("Warning") { Severity::Failure } else { Severity::Info };
        let object = &event.involved_object;
        let subject = format!(
            "{}/{}",
            object.kind.as_deref().unwrap_or_default().to_lowercase(),
            display_name(object.namespace.as_deref(), object.name.as_deref())
        );
        if let Some(text) = self.pull_events.text(&subject, event) {
            self.printer.print(&subject, &text, severity);
        }
    }

    /// Streams the log of each started container once.
    fn stream_logs(&mut self, pod: &Pod) {
        let status = pod.status.as_ref();
        let init = status.and_then(|s| s.init_container_statuses.as_ref());
        let app = status.and_then(|s| s.container_statuses.as_ref());
        for container in [init, app].into_iter().flatten().flatten() {
            let Some(id) = container.container_id.clone() else { continue };
            if self.streamed.insert(id) {
                self.stream_log(pod, &container.name);
            }
        }
    }

    fn stream_log(&mut self, pod: &Pod, container: &str) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (name, log) = (pod.metadata.name.clone().unwrap_or_default(), self.log.clone());
        let params = LogParams { container: Some(container.to_owned()), follow: true, ..LogParams::default() };
        let subject = format!("pod/{name} {container}");
        self.log_tasks.spawn(async move {
            let stream = match api.log_stream(&name, &params).await {
                Ok(stream) => stream,
                Err(error) => return tracing::warn!(%error, subject, "failed to stream the container log"),
            };
            let mut lines = stream.lines();
            while let Ok(Some(line)) = lines.try_next().await {
                if log.send((subject.clone(), line)).await.is_err() {
                    return;
                }
            }
        });
    }
}

fn object_key(kind: &'static str, meta: &ObjectMeta) -> FinishedKey {
    (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
