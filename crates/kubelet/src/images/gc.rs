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
use std::{collections::HashSet, fmt::Display, path::PathBuf, time::Duration};
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

/// Result of one garbage collection.
#[derive(Debug, Default)]
struct GcOutcome {
    /// Whether disk usage is above the threshold.
    full: bool,
    /// Failure to free enough.
    failure: Option<GcFailure>,
    /// Whether the runtime failed: the next attempt is delayed.
    stuck: bool,
}

/// Failure to free enough.
#[derive(Debug)]
struct GcFailure {
    /// Reason of a separate Event, if there is one.
    reason: Option<&'static str>,
    text: String,
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
        let outcome = collect_garbage(shared, &mut tracker, !requests.is_empty()).await;
        for done in requests {
            let _ = done.send(());
        }
        if let Some(failure) = &outcome.failure {
            tracing::warn!(error = failure.text, "image garbage collection failed");
            // An Event is recorded at most once per upstream's period.
            let now = shared.now();
            if reported_at.is_none_or(|at| now.duration_since(at) >= signed(PERIOD)) {
                // The first failure is not reported: statistics may be missing at the start.
                reported_at = failed_before.then_some(now);
                record_failure(shared, failure, failed_before);
            }
        }
        failed_before = outcome.failure.is_some();
        let now = shared.now();
        let due = if outcome.stuck { now + PERIOD } else { tracker.next_run(config, outcome.full, now) };
        let wait = tokio::time::sleep(shared.options.clock.until(due));
        let watch_unused = outcome.full || !config.image_maximum_gc_age.is_zero();
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

fn record_failure(shared: &Shared, failure: &GcFailure, is_repeated: bool) {
    let reasons = failure.reason.into_iter().chain(is_repeated.then_some("ImageGCFailed"));
    reasons.for_each(|reason| shared.recorder.record_node(EventKind::Warning, reason, failure.text.clone()));
}

async fn collect_garbage(shared: &Shared, tracker: &mut ImageTracker, all: bool) -> GcOutcome {
    let config = &shared.options.config.images;
    let failed = |reason, text| Some(GcFailure { reason, text });
    let stuck = |error: &dyn Display| {
        let failure = failed(None, error.to_string());
        GcOutcome { failure, stuck: true, ..GcOutcome::default() }
    };
    let started = shared.now();
    let images = match present_images(shared).await {
        Ok(images) => images,
        Err(error) => return stuck(&error),
    };
    let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
    shared.images.prune_records(ids, started).await;
    tracker.observe(images, started);
    let old = tracker.above_max_age(config, started);
    if let Err(errors) = remove(shared, tracker, &old).await {
        let max = config.image_maximum_gc_age;
        let text =
            format_args!("wanted to free images older than {max:?}, encountered errors in image deletion: {errors}");
        return stuck(&text);
    }
    let unused = if all { tracker.eligible(config, shared.now()) } else { Vec::new() };
    let unused: Vec<String> = unused.into_iter().map(|(id, _)| id).collect();
    if let Err(errors) = remove(shared, tracker, &unused).await {
        return stuck(&format_args!("encountered errors in image deletion: {errors}"));
    }
    let disk = match image_fs_usage(shared).await {
        Ok(disk) => disk,
        Err(error) => return stuck(&error),
    };
    if disk.capacity == 0 {
        let failure = failed(Some("InvalidDiskCapacity"), "invalid capacity 0 on image filesystem".to_owned());
        return GcOutcome { failure, stuck: true, ..GcOutcome::default() };
    }
    let Some(excess) = tracker.excess(config, disk, shared.now()) else { return GcOutcome::default() };
    let (mut freed, mut errors) = (0_u64, Vec::new());
    for (id, size) in excess.images {
        if freed >= excess.amount {
            break;
        }
        match remove(shared, tracker, &[id]).await {
            Ok(()) => freed += size,
            Err(error) => errors.extend(error.0),
        }
    }
    let wanted = excess.amount;
    if !errors.is_empty() {
        let errors = ImageRemovalError(errors);
        return stuck(&format_args!(
            "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {errors}"
        ));
    }
    if freed >= wanted {
        return GcOutcome { full: true, ..GcOutcome::default() };
    }
    let error = format!(
        "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
    );
    GcOutcome { full: true, failure: failed(Some("FreeDiskSpaceFailed"), error), stuck: false }
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
    let wanted = image.tags.iter().chain(&image.digests).any(|name| named.contains(name));
    PresentImage { in_use: image.pinned || runs || wanted, id: image.id, size: image.size }
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
