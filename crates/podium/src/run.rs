//! `podium run`: runs manifests in a temporary cluster and prints a timeline of its Pods.

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
    image::ImageTarget,
    up::{StopSignals, destroy, stop_signals},
};
use anyhow::{Context, Result, anyhow};
use completion::Completion;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    core::{DynamicObject, GroupVersionKind},
    discovery,
    runtime::wait::await_condition,
};
use manifests::Manifest;
use progress::{ClusterTimeline, Printer};
use std::{path::Path, time::Duration};
use timeline::Severity;

/// Exit code of `timeout(1)`.
const EXIT_TIMED_OUT: i32 = 124;
/// Exit code of a program that SIGINT terminated (128 + 2).
const EXIT_INTERRUPTED: i32 = 130;
/// Timeout of a run without `--timeout`: 136 years. `Duration::MAX` would overflow in time arithmetic.
const NO_TIMEOUT: Duration = Duration::from_secs(1 << 32);

/// Taint of a node that is not ready (upstream's `TaintNodeNotReady`).
const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Maximum time until the taint is removed.
const UNTAINT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the manifests and returns the exit code.
pub(crate) async fn run(args: RunArgs) -> Result<i32> {
    let manifests = manifests::read(&args.files)?;
    for file in args.images.iter().filter(|file| *file != Path::new("-")) {
        // A missing file is reported before the cluster starts.
        std::fs::File::open(file).with_context(|| format!("failed to read {}", file.display()))?;
    }
    let printer = Printer::new();
    let parent = run_dirs::parent();
    for (path, error) in run_dirs::remove_abandoned(&parent).await {
        let path = path.display();
        match error {
            None => {
                printer.print("run", &format!("removed the data directory of an earlier run: {path}"), Severity::Info);
            }
            Some(error) => {
                let text = format!("failed to remove the data directory of an earlier run: {path}: {error}");
                printer.print("run", &text, Severity::Failure);
            }
        }
    }
    let dir = run_dirs::create(&parent)?;
    let lock = dir.lock()?;
    let code = in_cluster(&dir, &args, &manifests, printer).await;
    let destroyed = destroy(&dir).await;
    drop(lock);
    let code = code?;
    destroyed?;
    Ok(code)
}

async fn in_cluster(dir: &DataDir, args: &RunArgs, manifests: &[Manifest], printer: Printer) -> Result<i32> {
    let mut stop = stop_signals()?;
    let options = ApiServerOptions { temporary: true, ..ApiServerOptions::default() };
    let cluster = Cluster::start(dir, &ApiAddress::loopback(), &dir.kubeconfig(), &args.node, options).await?;
    printer.print("api", &format!("serves at {}", cluster.url), Severity::Success);
    let prepared = tokio::select! {
        done = prepare(&cluster, dir, args, printer) => done.map(|()| None),
        () = stop.wait() => Ok(Some(EXIT_INTERRUPTED)),
        () = tokio::time::sleep(args.timeout.unwrap_or(NO_TIMEOUT)) => {
            printer.print("run", "timed out: the node is not Ready", Severity::Failure);
            Ok(Some(EXIT_TIMED_OUT))
        }
    };
    let code = match prepared {
        Ok(None) => run_manifests(&cluster, args, manifests, printer, &mut stop).await,
        Ok(Some(code)) => Ok(code),
        Err(error) => Err(error),
    };
    cluster.stop().await;
    code
}

/// Imports the images and waits for the node.
async fn prepare(cluster: &Cluster, dir: &DataDir, args: &RunArgs, printer: Printer) -> Result<()> {
    for file in &args.images {
        for name in image::import(&ImageTarget::new(dir, &args.node.image_store), file).await? {
            printer.print("image", &name, Severity::Info);
        }
    }
    cluster.wait_node_ready().await;
    wait_untainted(&cluster.client, &cluster.node).await?;
    printer.print(&format!("node/{}", cluster.node), "Ready", Severity::Success);
    Ok(())
}

/// Waits until the node lifecycle controller has removed the taint of a node that was not ready: the scheduler would refuse a Pod
/// that comes earlier, and the timeline begin with that failure.
async fn wait_untainted(client: &Client, node: &str) -> Result<()> {
    let removed = await_condition(Api::<Node>::all(client.clone()), node, |node: Option<&Node>| {
        node.is_some_and(|node| !has_taint(node, NOT_READY_TAINT))
    });
    // The run fails later with a reason, or its Pods tolerate the taint.
    match tokio::time::timeout(UNTAINT_TIMEOUT, removed).await {
        Ok(removed) => removed.map(drop).context("failed to watch the node"),
        Err(_) => Ok(()),
    }
}

fn has_taint(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

/// Applies the manifests, prints the timeline, deletes all workloads, and returns the exit code.
async fn run_manifests(
    cluster: &Cluster,
    args: &RunArgs,
    manifests: &[Manifest],
    printer: Printer,
    stop: &mut StopSignals,
) -> Result<i32> {
    let mut timeline = ClusterTimeline::new(&cluster.client, printer);
    let code = tokio::select! {
        code = Box::pin(apply_manifests(&cluster.client, manifests, &mut timeline)) => code,
        () = stop.wait() => Ok(EXIT_INTERRUPTED),
        () = tokio::time::sleep(args.timeout.unwrap_or(NO_TIMEOUT)) => {
            printer.print("run", "timed out", Severity::Failure);
            Ok(EXIT_TIMED_OUT)
        }
    };
    let terminated = tokio::select! {
        terminated = Box::pin(teardown::delete_workloads(&cluster.client)) => terminated,
        // A second signal skips the graceful termination.
        () = stop.wait() => Err(anyhow!("interrupted again")),
        never = timeline.run() => match never {},
    };
    if let Err(error) = terminated {
        printer.print(
            "run",
            &format!("failed to terminate the Pods gracefully: {}", format_error(&error)),
            Severity::Failure,
        );
    }
    timeline.drain_logs().await;
    code
}

/// Creates all objects and prints the timeline until the exit code is known.
async fn apply_manifests(client: &Client, manifests: &[Manifest], timeline: &mut ClusterTimeline) -> Result<i32> {
    timeline.skip_past_events().await;
    let mut completion = Completion::default();
    for manifest in manifests {
        let created = create(client, manifest).await.with_context(|| manifest.origin.clone())?;
        completion.add(manifest, &created);
    }
    if completion.runs_no_pods() {
        timeline.printer.print("run", "the manifests run no Pods: there is nothing to wait for", Severity::Info);
    }
    loop {
        if let Some(code) = completion.exit_code(&timeline.finished) {
            return Ok(code);
        }
        timeline.next().await;
    }
}

async fn create(client: &Client, manifest: &Manifest) -> Result<DynamicObject> {
    let (group, version) = manifest.text("/apiVersion").rsplit_once('/').unwrap_or(("", manifest.text("/apiVersion")));
    let gvk = GroupVersionKind::gvk(group, version, manifest.text("/kind"));
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk).await.map_err(|error| {
        // The kind or its API group is unknown.
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
    // Strict field validation is kubectl's default: unknown fields are errors.
    let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&object)?)?;
    Ok(client.request(request).await?)
}
