//! `podium run`: a throwaway cluster for some manifests, and what happens in it.

mod completion;
mod image_pulls;
mod manifests;
mod progress;
mod run_dirs;
mod teardown;
mod timeline;

use crate::{
    api_address::ApiAddress,
    cli::RunArgs,
    cluster::{ApiServerOptions, Cluster},
    data_dir::DataDir,
    format_error, image,
    up::{StopSignals, destroy, stop_signals},
};
use anyhow::{Context, Result, anyhow};
use completion::Goal;
use kube::{
    Client, Resource,
    core::{DynamicObject, GroupVersionKind},
    discovery,
};
use manifests::Manifest;
use progress::{Screen, Show};
use std::{path::Path, time::Duration};
use timeline::Mood;

/// What `timeout(1)` exits with.
const TIMED_OUT: i32 = 124;
/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;
/// Longer than anybody waits, and no overflow.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Runs the manifests and gives the exit code.
pub(crate) async fn run(args: RunArgs) -> Result<i32> {
    let manifests = manifests::read(&args.files)?;
    for file in args.images.iter().filter(|file| *file != Path::new("-")) {
        // Before there is a cluster to take down.
        std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let screen = Screen::new();
    let parent = run_dirs::parent();
    for (path, error) in run_dirs::remove(&parent).await {
        let what = format!("what an earlier run left in {}", path.display());
        match error {
            None => screen.say("run", &format!("removed {what}"), Mood::Neutral),
            Some(error) => screen.say("run", &format!("could not remove {what}: {error}"), Mood::Bad),
        }
    }
    let dir = run_dirs::create(&parent)?;
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
    let cluster =
        Cluster::start(dir, &ApiAddress::loopback(), &dir.kubeconfig(), &args.node, ApiServerOptions::default())
            .await?;
    screen.say("api", &format!("serves at {}", cluster.url), Mood::Good);
    let prepared = tokio::select! {
        done = prepare(&cluster, dir, args, screen) => done.map(|()| true),
        () = stop.wait() => Ok(false),
    };
    let code = match prepared {
        Ok(true) => watched(&cluster, args, manifests, screen, &mut stop).await,
        Ok(false) => Ok(INTERRUPTED),
        Err(error) => Err(error),
    };
    cluster.stop().await;
    code
}

/// Imports the images and waits for the node.
async fn prepare(cluster: &Cluster, dir: &DataDir, args: &RunArgs, screen: Screen) -> Result<()> {
    cluster.wait_runtime_ready().await?;
    for file in &args.images {
        for name in image::import(&dir.runtime_endpoint(), file).await? {
            screen.say("image", &name, Mood::Neutral);
        }
    }
    cluster.wait_node_ready().await?;
    screen.say(&format!("node/{}", cluster.node), "Ready", Mood::Good);
    Ok(())
}

/// Carries the manifests out, shows what happens, ends everything, and gives the exit code.
async fn watched(
    cluster: &Cluster,
    args: &RunArgs,
    manifests: &[Manifest],
    screen: Screen,
    stop: &mut StopSignals,
) -> Result<i32> {
    let mut show = Show::new(&cluster.client, screen);
    let code = tokio::select! {
        code = Box::pin(carried_out(&cluster.client, manifests, &mut show)) => code,
        () = stop.wait() => Ok(INTERRUPTED),
        () = tokio::time::sleep(args.timeout.unwrap_or(FOR_EVER)) => {
            screen.say("run", "timed out", Mood::Bad);
            Ok(TIMED_OUT)
        }
    };
    let ended = tokio::select! {
        ended = Box::pin(teardown::end_all(&cluster.client)) => ended,
        // Who asks twice does not want to wait.
        () = stop.wait() => Err(anyhow!("interrupted again")),
        never = show.go_on() => match never {},
    };
    if let Err(error) = ended {
        screen.say("run", &format!("Pods could not be ended in order: {}", format_error(&error)), Mood::Bad);
    }
    show.last_words().await;
    code
}

/// Creates everything and shows what happens until the exit code is known.
async fn carried_out(client: &Client, manifests: &[Manifest], show: &mut Show) -> Result<i32> {
    let mut goal = Goal::default();
    for manifest in manifests {
        let created = create(client, manifest).await.with_context(|| manifest.origin.clone())?;
        goal.add(manifest, &created);
    }
    if goal.is_nothing() {
        show.screen.say("run", "nothing of the manifests runs a Pod: there is nothing to wait for", Mood::Neutral);
    }
    loop {
        if let Some(code) = goal.exit_code(&show.ended) {
            return Ok(code);
        }
        show.step().await;
    }
}

async fn create(client: &Client, manifest: &Manifest) -> Result<DynamicObject> {
    let (group, version) = manifest.text("/apiVersion").rsplit_once('/').unwrap_or(("", manifest.text("/apiVersion")));
    let gvk = GroupVersionKind::gvk(group, version, manifest.text("/kind"));
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk).await.map_err(|error| {
        // The kind, or its group.
        let is_unknown = matches!(&error, kube::Error::Discovery(_))
            || matches!(&error, kube::Error::Api(status) if status.code == 404);
        let unknown = || anyhow!("the cluster serves no {} of {}", gvk.kind, gvk.api_version());
        if is_unknown { unknown() } else { error.into() }
    })?;
    let mut object = manifest.object.clone();
    let namespaced = capabilities.scope == discovery::Scope::Namespaced;
    if namespaced && manifest.text("/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = "default".into();
    }
    let namespace = object["metadata"]["namespace"].as_str().filter(|_| namespaced);
    let path = DynamicObject::url_path(&resource, namespace);
    // As kubectl asks for it: a field that nobody knows is a mistake.
    let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&object)?)?;
    Ok(client.request(request).await?)
}
