//! `podium run`: a throwaway cluster for some manifests, and what happens in it.

mod manifests;
mod timeline;

use crate::{
    cli::RunArgs,
    cluster::Cluster,
    data_dir::DataDir,
    image,
    up::{destroy, stop_signals},
};
use anyhow::{Context, Result};
use futures::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, LogParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery,
    runtime::watcher,
};
use manifests::Manifest;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::{Duration, Instant},
};
use timeline::{Line, Mood, Timeline};
use tokio::sync::mpsc;

/// What `timeout(1)` exits with.
const TIMED_OUT: i32 = 124;

/// Prints lines with the time since the start.
#[derive(Clone, Copy)]
struct Screen {
    start: Instant,
    color: bool,
}

impl Screen {
    fn line(self, line: &Line) {
        let ms = self.start.elapsed().as_millis();
        let (on, off) = match (self.color, line.mood) {
            (true, Mood::Good) => ("\x1b[32m", "\x1b[0m"),
            (true, Mood::Bad) => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        println!("{ms:>7} ms  {:<24} {on}{}{off}", line.subject, line.text);
    }

    fn say(self, subject: &str, text: &str, mood: Mood) {
        self.line(&Line { subject: subject.to_owned(), text: text.to_owned(), mood });
    }
}

/// Runs the manifests and gives the exit code.
pub(crate) async fn run(args: RunArgs) -> Result<i32> {
    let manifests = manifests::read(&args.files)?;
    let screen = Screen { start: Instant::now(), color: std::io::IsTerminal::is_terminal(&std::io::stdout()) };
    let temporary = std::env::temp_dir().join(format!("podium-run-{}", std::process::id()));
    let dir = DataDir::new(&temporary)?;
    let lock = dir.lock()?;
    let code = in_cluster(&dir, &args, &manifests, screen).await;
    let removed = destroy(&dir).await;
    drop(lock);
    let code = code?;
    removed?;
    Ok(code)
}

async fn in_cluster(dir: &DataDir, args: &RunArgs, manifests: &[Manifest], screen: Screen) -> Result<i32> {
    let mut stop = stop_signals()?;
    let cluster = Cluster::start(dir, SocketAddr::from(([127, 0, 0, 1], 0)), &dir.kubeconfig(), &args.node).await?;
    screen.say("api", &format!("serves at {}", cluster.url), Mood::Good);
    let endpoint = args.node.runtime_endpoint.clone().unwrap_or_else(|| runtime::containerd::endpoint(dir.root()));
    for file in &args.images {
        for name in image::import(&endpoint, file).await? {
            screen.say("image", &name, Mood::Neutral);
        }
    }
    cluster.wait_node_ready().await?;
    screen.say(&format!("node/{}", cluster.node), "Ready", Mood::Good);
    let timeout = args.timeout.unwrap_or(Duration::MAX);
    let code = tokio::select! {
        code = Box::pin(follow(&cluster.client, manifests, screen)) => code,
        () = stop.wait() => Ok(130),
        () = tokio::time::sleep(timeout.min(Duration::from_secs(u64::from(u32::MAX)))) => {
            screen.say("run", "timed out", Mood::Bad);
            Ok(TIMED_OUT)
        }
    };
    if let Err(error) = end_pods(&cluster.client).await {
        screen.say("run", &format!("Pods could not be ended in order: {error}"), Mood::Bad);
    }
    cluster.stop().await;
    code
}

/// Creates everything and tells what happens until every Pod has ended.
async fn follow(client: &Client, manifests: &[Manifest], screen: Screen) -> Result<i32> {
    let mut expected = BTreeSet::new();
    let mut pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).boxed();
    let mut events = watcher(Api::<Event>::all(client.clone()), watcher::Config::default()).boxed();
    let (log, mut lines) = mpsc::channel(256);
    let (mut timeline, mut followed, mut ended) = (Timeline::default(), BTreeSet::new(), BTreeMap::new());
    for manifest in manifests {
        create(client, manifest).await.with_context(|| manifest.origin.clone())?;
        if manifest.text("/kind") == "Pod" {
            let namespace = manifest.text("/metadata/namespace");
            let namespace = if namespace.is_empty() { "default" } else { namespace };
            expected.insert((namespace.to_owned(), manifest.text("/metadata/name").to_owned()));
        }
    }
    loop {
        tokio::select! {
            Some(event) = pods.next() => match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    timeline.observe(&pod).iter().for_each(|l| screen.line(l));
                    follow_logs(client, &pod, &mut followed, &log);
                    if api::pod::is_terminal(&pod) {
                        let meta = &pod.metadata;
                        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
                        ended.insert(key, api::pod::phase(&pod) == "Succeeded");
                    }
                }
                Ok(watcher::Event::Delete(pod)) => screen.line(&timeline.removed(&pod)),
                _ => {}
            },
            Some(event) = events.next() => if let Ok(watcher::Event::Apply(event)) = event {
                let mood = if event.type_.as_deref() == Some("Warning") { Mood::Bad } else { Mood::Neutral };
                let subject = format!("pod/{}", event.involved_object.name.unwrap_or_default());
                let text = format!("[{}] {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default());
                screen.say(&subject, &text, mood);
            },
            Some((subject, text)) = lines.recv() => screen.say(&subject, &format!("| {text}"), Mood::Neutral),
        }
        if !expected.is_empty() && expected.iter().all(|p| ended.contains_key(p)) {
            // The last words of a container come a moment after its end.
            while let Ok(Some((subject, text))) = tokio::time::timeout(Duration::from_millis(300), lines.recv()).await {
                screen.say(&subject, &format!("| {text}"), Mood::Neutral);
            }
            return Ok(i32::from(!ended.values().all(|succeeded| *succeeded)));
        }
    }
}

async fn create(client: &Client, manifest: &Manifest) -> Result<()> {
    let (group, version) = manifest.text("/apiVersion").rsplit_once('/').unwrap_or(("", manifest.text("/apiVersion")));
    let gvk = GroupVersionKind::gvk(group, version, manifest.text("/kind"));
    let (resource, capabilities) =
        discovery::pinned_kind(client, &gvk).await.context("the cluster does not serve this kind")?;
    let mut object = manifest.object.clone();
    let namespaced = capabilities.scope == discovery::Scope::Namespaced;
    if namespaced && manifest.text("/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = "default".into();
    }
    let object: DynamicObject = serde_json::from_value(object)?;
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let api: Api<DynamicObject> = if namespaced {
        Api::namespaced_with(client.clone(), &namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}

/// Follows the log of each container that was started, once.
fn follow_logs(client: &Client, pod: &Pod, followed: &mut BTreeSet<String>, log: &mpsc::Sender<(String, String)>) {
    let status = pod.status.as_ref();
    let lists =
        [status.and_then(|s| s.init_container_statuses.as_ref()), status.and_then(|s| s.container_statuses.as_ref())];
    for container in lists.into_iter().flatten().flatten() {
        let Some(id) = container.container_id.clone().filter(|id| followed.insert(id.clone())) else { continue };
        let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
        let (name, log) = (pod.metadata.name.clone().unwrap_or_default(), log.clone());
        let params = LogParams { container: Some(container.name.clone()), follow: true, ..LogParams::default() };
        let subject = format!("pod/{name} {}", container.name);
        tokio::spawn(async move {
            let Ok(stream) = api.log_stream(&name, &params).await else {
                return tracing::debug!(id, "a log could not be followed");
            };
            let mut lines = stream.lines();
            while let Some(Ok(line)) = lines.next().await {
                if log.send((subject.clone(), line)).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Ends every Pod gracefully and waits for that.
async fn end_pods(client: &Client) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let pods = all.list(&ListParams::default()).await?;
    let mut longest = 30;
    for pod in &pods {
        longest = longest.max(pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30));
        let api: Api<Pod> = Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"));
        api.delete(pod.metadata.name.as_deref().unwrap_or(""), &DeleteParams::default()).await?;
    }
    let limit = Duration::from_secs(u64::try_from(longest).unwrap_or(30) + 10);
    let gone = async {
        while !all.list(&ListParams::default()).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::time::timeout(limit, gone).await.context("Pods did not end in time")?
}
