//! Image garbage collection worker: removes unused images by age, and when the disk is full.

use super::{
    gc_plan::{ImageFsUsage, ImageTracker, PERIOD, PresentImage, signed},
    reference::Reference,
};
use crate::{
    Shared,
    blocking::{self, BlockingTaskError},
    eviction, pods, system_stats,
};
use lifecycle::EventKind;
use parking_lot::Mutex;
use runtime::{ContainerStatus, Image, RuntimeError};
use std::{collections::HashSet, path::PathBuf, time::Duration};
use tokio::sync::{Notify, oneshot};

/// Delay after an image became unused, to collect several at once.
const DEBOUNCE: Duration = Duration::from_secs(5);

/// Requests to delete all unused images.
#[derive(Default)]
pub(crate) struct DeleteUnusedRequests {
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    requested: Notify,
}

impl DeleteUnusedRequests {
    fn take(&self) -> Vec<oneshot::Sender<()>> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Removes all unused images older than `imageMinimumGCAge`, independent of disk usage (`DeleteUnusedImages`).
pub(crate) async fn delete_unused(shared: &Shared) {
    let (done, wait) = oneshot::channel();
    let requests = &shared.images.delete_unused_requests;
    requests.waiting.lock().push(done);
    requests.requested.notify_one();
    // The sender is dropped when the kubelet stops.
    let _ = wait.await;
}

/// Failure to free enough, with upstream's message where it has one.
#[derive(Debug, thiserror::Error)]
enum GcError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("wanted to free images older than {max_age:?}, encountered errors in image deletion: {source}")]
    MaxAge { max_age: Duration, source: ImageRemovalError },
    #[error("encountered errors in image deletion: {0}")]
    Unused(#[source] ImageRemovalError),
    #[error(transparent)]
    ImageFs(#[from] ImageFsError),
    #[error("invalid capacity 0 on image filesystem")]
    InvalidCapacity,
    #[error("wanted to free {to_free} bytes, but freed {freed} bytes space with errors in image deletion: {source}")]
    Removal { to_free: u64, freed: u64, source: ImageRemovalError },
    #[error(
        "Failed to garbage collect required amount of images. Attempted to free {to_free} bytes, but only found {freed} bytes eligible to free."
    )]
    NotEnough { to_free: u64, freed: u64 },
}

impl GcError {
    /// Returns the reason of a separate Event, if there is one.
    fn reason(&self) -> Option<&'static str> {
        match self {
            Self::InvalidCapacity => Some("InvalidDiskCapacity"),
            Self::NotEnough { .. } => Some("FreeDiskSpaceFailed"),
            _ => None,
        }
    }
}

/// The runtime did not remove these images.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
struct ImageRemovalError(Vec<RuntimeError>);

/// The usage of the image file system is unknown.
#[derive(Debug, thiserror::Error)]
enum ImageFsError {
    #[error("failed to read file system of {}", .0.display())]
    Unreadable(PathBuf),
    #[error(transparent)]
    Task(#[from] BlockingTaskError),
}

/// Collects garbage until stopped.
pub(crate) async fn run(shared: &Shared) {
    let config = &shared.options.config.images;
    let mut tracker = ImageTracker::new(shared.now());
    let (mut failed_before, mut reported_at) = (false, None);
    loop {
        let requests = shared.images.delete_unused_requests.take();
        let result = collect_garbage(shared, &mut tracker, !requests.is_empty()).await;
        for done in requests {
            let _ = done.send(());
        }
        if let Err(error) = &result {
            tracing::warn!(%error, "image garbage collection failed");
            // An Event is recorded at most once per upstream's period.
            let now = shared.now();
            if reported_at.is_none_or(|at| now.duration_since(at) >= signed(PERIOD)) {
                // The first failure is not reported: statistics may be missing at the start.
                reported_at = failed_before.then_some(now);
                record_failure(shared, error, failed_before);
            }
        }
        failed_before = result.is_err();
        let now = shared.now();
        let (full, due) = match result {
            Ok(full) => (full, tracker.next_run(config, full, now)),
            Err(GcError::NotEnough { .. }) => (true, tracker.next_run(config, true, now)),
            // The runtime failed.
            Err(_) => (false, now + PERIOD),
        };
        let wait = tokio::time::sleep(shared.options.clock.until(due));
        let watch_unused = full || !config.image_maximum_gc_age.is_zero();
        let unused = async {
            if !watch_unused {
                std::future::pending::<()>().await;
            }
            shared.images.image_released.notified().await;
            tokio::time::sleep(DEBOUNCE).await;
        };
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = wait => {}
            () = unused => {}
            () = shared.images.delete_unused_requests.requested.notified() => {}
        }
    }
}

fn record_failure(shared: &Shared, error: &GcError, is_repeated: bool) {
    let reasons = error.reason().into_iter().chain(is_repeated.then_some("ImageGCFailed"));
    reasons.for_each(|reason| shared.recorder.record_node(EventKind::Warning, reason, error.to_string()));
}

/// Collects garbage once, `all` unused images or as many as necessary. Returns whether disk usage is above the threshold.
async fn collect_garbage(shared: &Shared, tracker: &mut ImageTracker, all: bool) -> Result<bool, GcError> {
    let config = &shared.options.config.images;
    let started = shared.now();
    let images = present_images(shared).await?;
    let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
    shared.images.prune_records(ids, started).await;
    tracker.observe(images, started);
    let old = tracker.above_max_age(config, started);
    let max_age = config.image_maximum_gc_age;
    remove(shared, tracker, &old).await.map_err(|source| GcError::MaxAge { max_age, source })?;
    let unused = if all { tracker.eligible(config, shared.now()) } else { Vec::new() };
    let unused: Vec<String> = unused.into_iter().map(|(id, _)| id).collect();
    remove(shared, tracker, &unused).await.map_err(GcError::Unused)?;
    let disk = image_fs_usage(shared).await?;
    if disk.capacity == 0 {
        return Err(GcError::InvalidCapacity);
    }
    let Some(excess) = tracker.excess(config, disk, shared.now()) else { return Ok(false) };
    let (to_free, mut freed, mut errors) = (excess.amount, 0_u64, Vec::new());
    for (id, size) in excess.images {
        if freed >= to_free {
            break;
        }
        match remove(shared, tracker, &[id]).await {
            Ok(()) => freed += size,
            Err(error) => errors.extend(error.0),
        }
    }
    if !errors.is_empty() {
        return Err(GcError::Removal { to_free, freed, source: ImageRemovalError(errors) });
    }
    if freed >= to_free { Ok(true) } else { Err(GcError::NotEnough { to_free, freed }) }
}

async fn remove(shared: &Shared, tracker: &mut ImageTracker, ids: &[String]) -> Result<(), ImageRemovalError> {
    let mut errors = Vec::new();
    for id in ids {
        tracing::info!(image = id, "removing unused image");
        match shared.runtime.remove_image(id).await {
            Ok(()) => tracker.removed(id),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ImageRemovalError(errors)) }
}

/// Returns all images, and whether each is in use.
async fn present_images(shared: &Shared) -> Result<Vec<PresentImage>, RuntimeError> {
    let images = shared.runtime.images().await?;
    // Pods are read last, so that new Pods are included.
    let containers = shared.runtime.containers().await?;
    let named = images_of_pods(shared);
    Ok(images.into_iter().map(|image| present_image(image, &containers, &named)).collect())
}

/// Returns the images of all Pods that are not terminal, which may be used at any time.
fn images_of_pods(shared: &Shared) -> HashSet<String> {
    let mut names = HashSet::new();
    for handle in shared.pods.all() {
        let pod = handle.state.borrow().clone();
        if !api::pod::is_terminal(pod.object()) {
            let spec = pods::spec(&pod);
            let images = api::pod::containers(spec).filter_map(|(_, c)| c.image.as_deref());
            let volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
            names.extend(images.chain(volumes).filter_map(|image| Reference::parse(image).ok()).map(|r| r.canonical));
        }
    }
    names
}

fn present_image(image: Image, containers: &[ContainerStatus], named: &HashSet<String>) -> PresentImage {
    let is = |name: &str| image.id == name || image.digests.iter().chain(&image.tags).any(|known| known == name);
    let runs = containers.iter().any(|c| is(&c.image_ref) || is(&c.image));
    let is_named = image.tags.iter().chain(&image.digests).any(|name| named.contains(name));
    PresentImage { in_use: image.pinned || runs || is_named, id: image.id, size: image.size }
}

async fn image_fs_usage(shared: &Shared) -> Result<ImageFsUsage, ImageFsError> {
    let path = eviction::image_fs(shared).await;
    blocking::run(move || {
        let Some(fs) = system_stats::file_system(&path) else { return Err(ImageFsError::Unreadable(path)) };
        Ok(ImageFsUsage { capacity: fs.capacity, available: fs.available })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use runtime::{ContainerId, ContainerState};

    fn container(image: &str, image_ref: &str) -> ContainerStatus {
        ContainerStatus {
            stop_signal: None,
            id: ContainerId("c".to_owned()),
            sandbox: None,
            uid: "u".to_owned(),
            name: "c".to_owned(),
            attempt: 0,
            state: ContainerState::Exited,
            created_at: Timestamp::UNIX_EPOCH,
            started_at: None,
            exit: None,
            image: image.to_owned(),
            image_ref: image_ref.to_owned(),
            spec_image: None,
        }
    }

    #[test]
    fn image_is_in_use_by_containers_pods_or_pinning() {
        for (pinned, has, named, expected) in [
            (false, None, None, false),
            (true, None, None, true),
            (false, Some(("x", "sha256:1")), None, true),
            (false, Some(("r.io/a:1", "x")), None, true),
            (false, Some(("x", "r.io/a@sha256:2")), None, true),
            (false, Some(("r.io/b:1", "sha256:3")), None, false),
            (false, None, Some("r.io/a:1"), true),
            (false, None, Some("r.io/a@sha256:2"), true),
            (false, None, Some("r.io/a:2"), false),
        ] {
            let image = Image {
                id: "sha256:1".to_owned(),
                tags: vec!["r.io/a:1".to_owned()],
                digests: vec!["r.io/a@sha256:2".to_owned()],
                size: 1,
                uid: None,
                username: String::new(),
                pinned,
            };
            let containers: Vec<_> = has.map(|(image, image_ref)| container(image, image_ref)).into_iter().collect();
            let named = named.map(str::to_owned).into_iter().collect();
            assert_eq!(present_image(image, &containers, &named).in_use, expected, "{pinned} {containers:?} {named:?}");
        }
    }
}
