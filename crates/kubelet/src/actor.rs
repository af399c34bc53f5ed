//! One task per Pod: facts come in, are folded in and kept, and what follows from them is carried out.
//!
//! A container that hangs blocks its own Pod and no other.

use crate::{Shared, actions, checkpoint, reconcile::Reconcile, status, volumes};
use api::{resources::Amounts, static_pod::is_static};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as ApiPod, PodStatus};
use lifecycle::{Action, ActionKey, Event, History, Pod, observe, plan, status as derive_status};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{mpsc, oneshot, watch};

/// An action that failed is not asked for again before this has passed.
const RETRY: Duration = Duration::from_secs(1);

/// What comes into a Pod's mailbox.
pub(crate) enum Mail {
    Fact(Event),
    /// What the runtime had when the Pod was known at this durable revision.
    Relisted(lifecycle::RuntimeView, u64),
    /// An action failed, and is tried again after a while.
    Paused(ActionKey),
    /// An action ended, with what it has to say.
    Ended(ActionKey, Result<Vec<Event>, String>),
    /// A status was written, or the Pod is gone from the API.
    Written(Box<PodStatus>, bool),
    /// Somebody asks what happened lately.
    Tell(oneshot::Sender<Vec<lifecycle::Line>>),
}

/// How others reach a Pod's task.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) mail: mpsc::UnboundedSender<Mail>,
    /// What is known about the Pod.
    pub(crate) known: watch::Receiver<Arc<Pod>>,
    /// Held by whoever makes, changes or removes the Pod's volumes.
    pub(crate) volumes: Arc<tokio::sync::Mutex<()>>,
}

pub(crate) fn spawn(shared: Arc<Shared>, mut pod: Pod) -> Handle {
    let takes_over = Event::KubeletStarted { at: shared.started, random: shared.options.random };
    observe(&mut pod, takes_over, &shared.options.policy, shared.now());
    let (mail, inbox) = mpsc::unbounded_channel();
    let (publish, known) = watch::channel(Arc::new(pod.clone()));
    let actor = Actor {
        shared,
        history: History::new(&pod),
        pod,
        mail: mail.clone(),
        publish,
        running: HashMap::new(),
        failures: HashMap::new(),
        told: None,
        saved: None,
        shown: None,
        writing: false,
        reconcile: Reconcile::default(),
        footprint: Amounts::new(),
        missed_list: false,
    };
    tokio::spawn(actor.run(inbox));
    Handle { mail, known, volumes: Arc::default() }
}

struct Actor {
    shared: Arc<Shared>,
    pod: Pod,
    history: History,
    mail: mpsc::UnboundedSender<Mail>,
    publish: watch::Sender<Arc<Pod>>,
    /// Actions in flight, and whether each may change what a list of the runtime shows.
    running: HashMap<ActionKey, bool>,
    /// How often in a row each has failed.
    failures: HashMap<ActionKey, u32>,
    /// The object of which others were told.
    told: Option<Arc<ApiPod>>,
    /// The newest durable revision on disk.
    saved: Option<u64>,
    /// The newest status that was handed to the API.
    shown: Option<PodStatus>,
    writing: bool,
    /// Whether somebody else changed the status in the API.
    reconcile: Reconcile,
    /// What it took of the node when others were told last.
    footprint: Amounts,
    /// Whether a list of the runtime came when it could not be used.
    missed_list: bool,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Mail>) {
        let stop = self.shared.stop.clone();
        while let Some(wake) = self.step() {
            let sleep = wake.map_or(Duration::from_secs(3600), |at| {
                self.shared.options.clock.until(at).max(Duration::from_millis(1))
            });
            tokio::select! {
                () = stop.cancelled() => return,
                mail = inbox.recv() => match mail {
                    Some(mail) => self.take(mail),
                    None => return,
                },
                () = tokio::time::sleep(sleep) => {}
            }
            while let Ok(mail) = inbox.try_recv() {
                self.take(mail);
            }
        }
        // Also what was made for it and never used: a Pod may go before it has a sandbox.
        if let Err(error) = volumes::remove_pod_dirs(&self.shared, &self.pod).await {
            tracing::warn!(%error, pod = self.pod.name(), "directories of a Pod that is gone are left");
        }
        let dir = self.shared.paths.checkpoints();
        if let Err(error) = checkpoint::remove(&dir, self.pod.uid()) {
            tracing::error!(%error, pod = self.pod.name(), "a checkpoint could not be removed");
        }
        self.shared.pods.forget(self.pod.uid());
        self.shared.probes.forget(self.pod.uid());
    }

    fn take(&mut self, mail: Mail) {
        let now = self.shared.now();
        match mail {
            Mail::Fact(event) => self.observe(event, now),
            // A list that is older than what is known would make new things look lost; the next one comes.
            Mail::Relisted(view, revision) => {
                self.missed_list = !self.at_rest() || self.pod.durable_revision() != revision;
                if !self.missed_list {
                    self.observe(Event::Relisted(view), now);
                }
            }
            // Meanwhile it changes nothing, and a list may show what stands in its way. What fails for long asks for few.
            Mail::Paused(key) => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.missed_list |= failures.is_power_of_two();
                self.running.insert(key, false);
            }
            Mail::Ended(key, result) => {
                self.running.remove(&key);
                if result.is_ok() {
                    self.failures.remove(&key);
                }
                let events = result.unwrap_or_else(|message| {
                    tracing::warn!(pod = self.pod.name(), %key, %message, "an action failed and will be tried again");
                    vec![Event::Failed { key, message }]
                });
                for event in events {
                    self.observe(event, now);
                }
            }
            Mail::Written(status, there) => {
                self.writing = false;
                if there {
                    self.observe(Event::StatusWritten(status), now);
                }
            }
            Mail::Tell(asked) => {
                let _ = asked.send(self.history.lines(&self.pod, &self.shared.options.policy, now));
            }
        }
    }

    fn observe(&mut self, event: Event, now: Timestamp) {
        let policy = &self.shared.options.policy;
        self.history.push(&event, policy, now);
        observe(&mut self.pod, event, policy, now);
    }

    /// Keeps, publishes, reports and starts what follows from what is known. `None` when the Pod is to be forgotten.
    fn step(&mut self) -> Option<Option<Timestamp>> {
        let now = self.shared.now();
        let plan = plan(&self.pod, &self.shared.options.policy, now);
        self.begin(&plan.actions, now);
        if self.saved != Some(self.pod.durable_revision()) {
            let dir = self.shared.paths.checkpoints();
            if let Err(error) = checkpoint::save(&dir, &self.pod) {
                // Nothing is done that might be forgotten.
                tracing::error!(%error, pod = self.pod.name(), "a checkpoint could not be written");
                return Some(Some(now + RETRY));
            }
            self.saved = Some(self.pod.durable_revision());
        }
        self.publish.send_replace(Arc::new(self.pod.clone()));
        self.make_room();
        if self.told.as_ref().is_none_or(|told| !Arc::ptr_eq(told, self.pod.object())) {
            self.told = Some(Arc::clone(self.pod.object()));
            self.shared.pods.touch(self.pod.uid().to_owned());
        }
        self.report(now);
        for action in plan.actions {
            match action {
                // The last steps wait until nothing is in flight that might still make something.
                Action::Forget if self.running.is_empty() => return None,
                Action::Forget => {}
                Action::DeleteFromApi if !self.running.is_empty() || self.writing => {}
                action => self.start(action),
            }
        }
        if self.missed_list && self.at_rest() {
            self.missed_list = false;
            self.shared.pods.want_list();
        }
        Some([plan.wake, self.reconcile.wake()].into_iter().flatten().min())
    }

    /// Whether nothing is in flight that may change what a list of the runtime shows.
    fn at_rest(&self) -> bool {
        !self.running.values().any(|changes| *changes)
    }

    /// Tells others when the Pod takes less of the node than it did, now that they can see it.
    fn make_room(&mut self) {
        if !self.running.keys().any(ActionKey::is_resize) {
            self.shared.pods.shows_resize(self.pod.uid());
        }
        let footprint = self.pod.footprint();
        let less = self.footprint.iter().any(|(name, had)| footprint.get(name).is_none_or(|has| has < had));
        self.footprint = footprint;
        if less {
            self.shared.pods.room_was_made();
        }
    }

    /// Takes note of the containers that are about to be started, so that it is on disk before they are.
    fn begin(&mut self, actions: &[Action], now: Timestamp) {
        let starts = actions.iter().filter(|a| matches!(a, Action::StartContainer { .. })).map(Action::key);
        let new: Vec<_> = starts.filter(|key| !self.running.contains_key(key)).collect();
        for key in new {
            self.observe(Event::Begun(key), now);
        }
    }

    fn report(&mut self, now: Timestamp) {
        let status = derive_status(&self.pod, &self.shared.options.policy, now);
        if self.writing || self.pod.awaits_admission(now) {
            return;
        }
        let shown = self.shown.as_ref().is_some_and(|shown| same(shown, &status));
        // What shows a static Pod is looked after by those that make it.
        let own = is_static(self.pod.object());
        if shown && (own || !self.reconcile.is_due(self.pod.object(), &status, now)) {
            return;
        }
        self.writing = true;
        self.shown = Some(status.clone());
        if own {
            // Whether and when there is an API to show it makes no difference to the Pod.
            self.shared.mirrors.show(self.pod.object(), status.clone());
            let _ = self.mail.send(Mail::Written(Box::new(status), true));
            return;
        }
        let (shared, object, mail) = (Arc::clone(&self.shared), Arc::clone(self.pod.object()), self.mail.clone());
        tokio::spawn(async move {
            let there = status::write(&shared, &object, &status).await;
            let _ = mail.send(Mail::Written(Box::new(status), there));
        });
    }

    fn start(&mut self, action: Action) {
        let key = action.key();
        if self.running.contains_key(&key) {
            return;
        }
        // A probe or a hook may be in flight at any time, and for as long as it likes.
        let changes = !matches!(action, Action::Probe { .. } | Action::RunHook { .. });
        self.running.insert(key.clone(), changes);
        if let Action::Record(event) = &action {
            self.shared.recorder.record(self.pod.object(), event.clone());
            let _ = self.mail.send(Mail::Ended(key.clone(), Ok(vec![Event::Done(key)])));
            return;
        }
        let (shared, pod, mail) = (Arc::clone(&self.shared), self.pod.clone(), self.mail.clone());
        tokio::spawn(async move {
            let result = Box::pin(actions::carry_out(&shared, &pod, action, &mail)).await;
            if result.is_err() {
                let _ = mail.send(Mail::Paused(key.clone()));
                tokio::time::sleep(RETRY).await;
            }
            let _ = mail.send(Mail::Ended(key, result));
        });
    }
}

/// Whether two statuses say the same; the time of a transition counts only when something changed.
fn same(a: &PodStatus, b: &PodStatus) -> bool {
    let strip = |s: &PodStatus| {
        let mut s = s.clone();
        for c in s.conditions.iter_mut().flatten() {
            c.last_transition_time = None;
        }
        s
    };
    strip(a) == strip(b)
}
