//! Static Pods: Pods of this node that come from manifests on its disk (`staticPodPath`), with or without an API.
//!
//! They live and end as all Pods do: only where they come from, and where they are shown, is particular about them.
//! A manifest that goes is a deletion, with the Pod's own grace period; one that changes is another Pod, which starts when
//! the one before has left nothing (LIFECYCLE.md 3.3).

mod manifest;
mod watch;

pub use manifest::PodRules;

use crate::{Shared, actor::PodMessage, blocking, pods};
use api::static_pod::is_static;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Pod as ApiPod, apimachinery::pkg::apis::meta::v1::Time};
use lifecycle::Event;
use manifest::{Manifests, Rules};
use std::{path::Path, sync::Arc};

/// What the directory says is what runs, until told to stop.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let config = &shared.options.config;
    let Some(path) = config.static_pod_path.clone().filter(|path| !path.as_os_str().is_empty()) else {
        // There may be some of the time when there was one.
        reconcile(shared, &[]);
        return shared.mirrors.begin();
    };
    let (mut manifests, mut watch) = (Manifests::default(), watch::Watch::new(&path));
    let (mut desired, mut known) = (Vec::new(), false);
    loop {
        match read(shared, &path, manifests).await {
            Ok((now, pods)) => {
                (manifests, desired, known) = (now, pods, true);
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the manifests of static Pods cannot be read");
                manifests = Manifests::default();
            }
        }
        // What cannot be read says nothing: all goes on as it was.
        if known {
            reconcile(shared, &desired);
            shared.mirrors.begin();
        }
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = watch.changed() => {}
            () = shared.pods.removed.notified() => {}
            () = tokio::time::sleep(config.file_check_frequency) => {}
        }
    }
}

async fn read(shared: &Shared, path: &Path, mut manifests: Manifests) -> Result<(Manifests, Vec<Arc<ApiPod>>), String> {
    let (path, rules) = (path.to_owned(), Rules::of(shared));
    blocking::run(move || {
        let pods = manifests.read(&path, &rules)?;
        Ok((manifests, pods))
    })
    .await
}

/// Starts what is to run and does not, and ends what runs and is not to.
fn reconcile(shared: &Arc<Shared>, desired: &[Arc<ApiPod>]) {
    let uid = |pod: &ApiPod| pod.metadata.uid.clone().unwrap_or_default();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        let wanted = desired.iter().any(|d| uid(d) == pod.uid());
        // What only the shutdown of the node ended makes room for itself: it runs again after that.
        let again = pod.is_shut_down() && shared.shutdown.is_over();
        if is_static(pod.object()) && (!wanted || again) && pod.object().metadata.deletion_timestamp.is_none() {
            tracing::info!(pod = pod.name(), again, "the static Pod goes: its manifest is gone, or it is to run again");
            let _ = handle.messages.send(PodMessage::Event(Event::Updated(Arc::new(ended(pod.object(), shared.now())))));
        }
    }
    for pod in desired {
        let name = (pod.metadata.namespace.as_deref().unwrap_or(""), pod.metadata.name.as_deref().unwrap_or(""));
        // One that ends still has the name: when it is forgotten, its successor's turn comes.
        let taken = shared.pods.all().iter().any(|handle| {
            let known = handle.state.borrow();
            is_static(known.object()) && (known.namespace(), known.name()) == name
        });
        if !taken {
            pods::start(shared, Arc::clone(pod));
        }
    }
}

/// The same Pod, deleted at this moment with its own grace period.
fn ended(pod: &ApiPod, now: Timestamp) -> ApiPod {
    let mut pod = pod.clone();
    let own = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let grace = own.unwrap_or(api::pod::DEFAULT_GRACE_PERIOD_SECONDS).max(0);
    let end = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
    pod.metadata.deletion_timestamp = Some(Time(end));
    pod.metadata.deletion_grace_period_seconds = Some(grace);
    pod
}
