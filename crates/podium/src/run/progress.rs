//! What is shown while Pods run: their timeline, events and logs, one line each.

use super::{
    completion::Ended,
    image_pulls::{self, Pulls},
    timeline::{Line, Mood, Timeline, display_name},
};
use crate::print::print_line;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream::BoxStream};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Event, Pod},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::LogParams,
    runtime::{watcher, watcher::Event as Watched},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, task::JoinSet};

/// How long the logs of Pods that have ended may take to be read to their end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Prints lines with the time since the start.
#[derive(Clone, Copy)]
pub(super) struct Screen {
    start: Instant,
    color: bool,
}

impl Screen {
    /// The clock starts now; colours are for terminals.
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), color: std::io::IsTerminal::is_terminal(&std::io::stdout()) }
    }

    fn line(self, line: &Line) {
        let ms = self.start.elapsed().as_millis();
        let (on, off) = match (self.color, line.mood) {
            (true, Mood::Good) => ("\x1b[32m", "\x1b[0m"),
            (true, Mood::Bad) => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        print_line!("{ms:>7} ms  {:<24} {on}{}{off}", line.subject, line.text);
    }

    pub(super) fn say(self, subject: &str, text: &str, mood: Mood) {
        self.line(&Line { subject: subject.to_owned(), text: text.to_owned(), mood });
    }
}

/// Everything that happens in a cluster, as it happens.
pub(super) struct Show {
    client: Client,
    pub(super) screen: Screen,
    pods: BoxStream<'static, watcher::Result<Watched<Pod>>>,
    jobs: BoxStream<'static, watcher::Result<Watched<Job>>>,
    events: BoxStream<'static, watcher::Result<Watched<Event>>>,
    log: mpsc::Sender<(String, String)>,
    lines: mpsc::Receiver<(String, String)>,
    timeline: Timeline,
    pulls: Pulls,
    /// Ids of containers whose log is followed.
    followed: BTreeSet<String>,
    followers: JoinSet<()>,
    /// Pods and Jobs that have ended, and whether they succeeded.
    pub(super) ended: BTreeMap<Ended, bool>,
}

impl Show {
    pub(super) fn new(client: &Client, screen: Screen) -> Self {
        let (log, lines) = mpsc::channel(256);
        Self {
            client: client.clone(),
            screen,
            pods: watcher(Api::all(client.clone()), watcher::Config::default()).boxed(),
            jobs: watcher(Api::all(client.clone()), watcher::Config::default()).boxed(),
            events: watcher(Api::all(client.clone()), watcher::Config::default()).boxed(),
            log,
            lines,
            timeline: Timeline::default(),
            pulls: Pulls::default(),
            followed: BTreeSet::new(),
            followers: JoinSet::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Shows the next thing that happens.
    pub(super) async fn step(&mut self) {
        tokio::select! {
            Some(event) = self.pods.next() => match event {
                Ok(Watched::Apply(pod) | Watched::InitApply(pod)) => self.pod(&pod),
                Ok(Watched::Delete(pod)) => self.screen.line(&self.timeline.removed(&pod)),
                _ => {}
            },
            Some(event) = self.jobs.next() => if let Ok(Watched::Apply(job) | Watched::InitApply(job)) = event {
                self.job(&job);
            },
            Some(event) = self.events.next() => if let Ok(Watched::Apply(event)) = event {
                self.event(&event);
            },
            Some((subject, text)) = self.lines.recv() => self.screen.say(&subject, &format!("| {text}"), Mood::Neutral),
        }
    }

    /// Shows what happens for as long as it is polled.
    pub(super) async fn go_on(&mut self) -> Infallible {
        loop {
            self.step().await;
        }
    }

    /// Shows what the logs still hold.
    pub(super) async fn last_words(&mut self) {
        let all = async {
            loop {
                tokio::select! {
                    biased;
                    Some((subject, text)) = self.lines.recv() => {
                        self.screen.say(&subject, &format!("| {text}"), Mood::Neutral);
                    }
                    done = self.followers.join_next() => if done.is_none() && self.lines.is_empty() {
                        return;
                    },
                }
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, all).await;
    }

    fn pod(&mut self, pod: &Pod) {
        self.timeline.observe(pod).iter().for_each(|line| self.screen.line(line));
        self.follow_logs(pod);
        if api::pod::is_terminal(pod) {
            self.ended.insert(place("Pod", &pod.metadata), api::pod::phase(pod) == "Succeeded");
        } else if let Some(why) = image_pulls::never_starts(pod) {
            self.give_up(pod, &why);
        }
    }

    /// A Pod that never starts has failed, and so has its Job, which would wait for it.
    fn give_up(&mut self, pod: &Pod, why: &str) {
        let owners = pod.metadata.owner_references.iter().flatten().filter(|owner| owner.kind == "Job");
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let jobs = owners.map(|owner| ("Job", namespace.clone(), owner.name.clone())).collect::<Vec<_>>();
        for place in jobs.into_iter().chain([place("Pod", &pod.metadata)]) {
            if !self.ended.contains_key(&place) {
                let subject = format!("{}/{}", place.0.to_lowercase(), display_name(Some(&place.1), Some(&place.2)));
                self.screen.say(&subject, &format!("will never start, {why}"), Mood::Bad);
                self.ended.insert(place, false);
            }
        }
    }

    fn job(&mut self, job: &Job) {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        let is = |wanted| conditions.into_iter().flatten().any(|c| c.type_ == wanted && c.status == "True");
        let (complete, failed) = (is("Complete"), is("Failed"));
        if (complete || failed) && self.ended.insert(place("Job", &job.metadata), complete).is_none() {
            let subject =
                format!("job/{}", display_name(job.metadata.namespace.as_deref(), job.metadata.name.as_deref()));
            let (text, mood) = if complete { ("Complete", Mood::Good) } else { ("Failed", Mood::Bad) };
            self.screen.say(&subject, text, mood);
        }
    }

    fn event(&mut self, event: &Event) {
        let mood = if event.type_.as_deref() == Some("Warning") { Mood::Bad } else { Mood::Neutral };
        let about = &event.involved_object;
        let subject = format!(
            "{}/{}",
            about.kind.as_deref().unwrap_or_default().to_lowercase(),
            display_name(about.namespace.as_deref(), about.name.as_deref())
        );
        if let Some(text) = self.pulls.text(&subject, event) {
            self.screen.say(&subject, &text, mood);
        }
    }

    /// Follows the log of each container that was started, once.
    fn follow_logs(&mut self, pod: &Pod) {
        let status = pod.status.as_ref();
        let init = status.and_then(|s| s.init_container_statuses.as_ref());
        let app = status.and_then(|s| s.container_statuses.as_ref());
        for container in [init, app].into_iter().flatten().flatten() {
            let Some(id) = container.container_id.clone() else { continue };
            if self.followed.insert(id) {
                self.follow_log(pod, &container.name);
            }
        }
    }

    fn follow_log(&mut self, pod: &Pod, container: &str) {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let (name, log) = (pod.metadata.name.clone().unwrap_or_default(), self.log.clone());
        let params = LogParams { container: Some(container.to_owned()), follow: true, ..LogParams::default() };
        let subject = format!("pod/{name} {container}");
        self.followers.spawn(async move {
            let stream = match api.log_stream(&name, &params).await {
                Ok(stream) => stream,
                Err(error) => return tracing::warn!(%error, subject, "a log could not be followed"),
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

fn place(kind: &'static str, meta: &ObjectMeta) -> Ended {
    (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}
