//! `podium run`: a throwaway cluster for some manifests, and what happens in it.

mod leftovers;
mod manifests;
mod show;
mod timeline;

use crate::{
    cli::RunArgs,
    cluster::{Access, Cluster},
    data_dir::DataDir,
    image, told,
    up::{destroy, stop_signals},
};
use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
    core::{DynamicObject, GroupVersionKind},
    discovery,
};
use manifests::Manifest;
use show::{Screen, Show};
use std::{collections::BTreeSet, net::SocketAddr, time::Duration};
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
    let screen = Screen::new();
    let temporary = std::env::temp_dir();
    for (path, error) in leftovers::remove(&temporary).await {
        let what = format!("what an earlier run left in {}", path.display());
        match error {
            None => screen.say("run", &format!("removed {what}"), Mood::Neutral),
            Some(error) => screen.say("run", &format!("could not remove {what}: {error}"), Mood::Bad),
        }
    }
    let dir = DataDir::new(&leftovers::own(&temporary))?;
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
        Cluster::start(dir, SocketAddr::from(([127, 0, 0, 1], 0)), &dir.kubeconfig(), &args.node, Access::default())
            .await?;
    screen.say("api", &format!("serves at {}", cluster.url), Mood::Good);
    let endpoint = dir.runtime_endpoint();
    cluster.wait_runtime_ready().await?;
    for file in &args.images {
        for name in image::import(&endpoint, file).await? {
            screen.say("image", &name, Mood::Neutral);
        }
    }
    cluster.wait_node_ready().await?;
    screen.say(&format!("node/{}", cluster.node), "Ready", Mood::Good);
    let mut show = Show::new(&cluster.client, screen);
    let code = tokio::select! {
        code = Box::pin(all_ended(&cluster.client, manifests, &mut show)) => code,
        () = stop.wait() => Ok(INTERRUPTED),
        () = tokio::time::sleep(args.timeout.unwrap_or(FOR_EVER)) => {
            screen.say("run", "timed out", Mood::Bad);
            Ok(TIMED_OUT)
        }
    };
    let ended = tokio::select! {
        ended = end_pods(&cluster.client) => ended,
        never = show.go_on() => match never {},
    };
    if let Err(error) = ended {
        screen.say("run", &format!("Pods could not be ended in order: {}", told(&error)), Mood::Bad);
    }
    show.last_words().await;
    cluster.stop().await;
    code
}

/// Creates everything and shows what happens until every Pod has ended.
async fn all_ended(client: &Client, manifests: &[Manifest], show: &mut Show) -> Result<i32> {
    let mut expected = BTreeSet::new();
    for manifest in manifests {
        create(client, manifest).await.with_context(|| manifest.origin.clone())?;
        if manifest.text("/kind") == "Pod" {
            let namespace = manifest.text("/metadata/namespace");
            let namespace = if namespace.is_empty() { "default" } else { namespace };
            expected.insert((namespace.to_owned(), manifest.text("/metadata/name").to_owned()));
        }
    }
    loop {
        show.step().await;
        if !expected.is_empty() && expected.iter().all(|pod| show.ended.contains_key(pod)) {
            return Ok(i32::from(!show.ended.values().all(|succeeded| *succeeded)));
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
