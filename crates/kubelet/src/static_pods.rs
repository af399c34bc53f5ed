//! Static Pods: Pods from manifests on the node's disk (`staticPodPath`), with or without an API.
//!
//! Their lifecycle is that of all Pods; only their source and their mirror Pods differ. Removing a manifest deletes the
//! Pod with its own grace period. A changed manifest is a new Pod, which starts when the old one has been cleaned up
//! (upstream's `podWorkers.allowStaticPodStart`).

mod manifest;
mod watch;

pub use manifest::PodDefaulter;

use crate::{Shared, blocking, pod_worker::PodMessage, pods};
use api::static_pod::is_static;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Pod as ApiPod, apimachinery::pkg::apis::meta::v1::Time};
use lifecycle::PodLifecycleEvent;
use manifest::{Manifests, Rules};
use std::{io, path::Path, sync::Arc};

/// Runs the static Pods of the manifest directory until cancelled.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let config = &shared.options.config;
    let Some(path) = config.static_pod_path.clone().filter(|path| !path.as_os_str().is_empty()) else {
        // Static Pods of an earlier configuration may remain.
        reconcile(shared, &[]);
        mark_read(shared);
        return shared.mirror_pods.start();
    };
    let (mut manifests, mut watch) = (Manifests::default(), watch::Watch::new(&path));
    let (mut desired, mut manifests_read) = (Vec::new(), false);
    loop {
        match read(shared, &path, manifests).await {
            Ok((now, pods)) => {
                (manifests, desired, manifests_read) = (now, pods, true);
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "failed to read static Pod manifests");
                manifests = Manifests::default();
            }
        }
        // A failed read changes nothing.
        if manifests_read {
            reconcile(shared, &desired);
            mark_read(shared);
            shared.mirror_pods.start();
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = watch.changed() => {}
            () = shared.pods.removed.notified() => {}
            () = tokio::time::sleep(config.file_check_frequency) => {}
        }
    }
}

fn mark_read(shared: &Shared) {
    if shared.pods.sources.manifests_are_read() {
        shared.pods.request_relist();
    }
}

async fn read(shared: &Shared, path: &Path, mut manifests: Manifests) -> io::Result<(Manifests, Vec<Arc<ApiPod>>)> {
    let (path, rules) = (path.to_owned(), Rules::of(shared));
    blocking::run(move || {
        let pods = manifests.read(&path, &rules)?;
        Ok((manifests, pods))
    })
    .await
}

/// Starts missing static Pods, and terminates those without a manifest.
fn reconcile(shared: &Arc<Shared>, desired: &[Arc<ApiPod>]) {
    let uid = |pod: &ApiPod| pod.metadata.uid.clone().unwrap_or_default();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let is_desired = desired.iter().any(|d| uid(d) == pod.uid());
        // A Pod that a cancelled node shutdown terminated is restarted.
        let again = pod.is_shut_down() && shared.shutdown.is_over();
        if is_static(pod.object()) && (!is_desired || again) && pod.object().metadata.deletion_timestamp.is_none() {
            tracing::info!(pod = pod.name(), again, "terminating a static Pod");
            let _ = handle.messages.send(PodMessage::Event(PodLifecycleEvent::Updated(Arc::new(mark_deleted(
                pod.object(),
                shared.now(),
            )))));
        }
    }
    for pod in desired {
        let name = (pod.metadata.namespace.as_deref().unwrap_or(""), pod.metadata.name.as_deref().unwrap_or(""));
        // A terminating Pod keeps its name; its successor starts when it has been removed.
        let name_in_use = shared.pods.all().iter().any(|handle| {
            let pod_state = handle.state.borrow();
            is_static(pod_state.object()) && (pod_state.namespace(), pod_state.name()) == name
        });
        if !name_in_use {
            pods::start(shared, Arc::clone(pod));
        }
    }
}

/// Returns the Pod as deleted now with its own grace period.
fn mark_deleted(pod: &ApiPod, now: Timestamp) -> ApiPod {
    let mut pod = pod.clone();
    let grace_period = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let grace = grace_period.unwrap_or(api::pod::DEFAULT_GRACE_PERIOD_SECONDS).max(0);
    let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    pod.metadata.deletion_timestamp = Some(Time(end));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}
