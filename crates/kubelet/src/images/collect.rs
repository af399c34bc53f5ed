//! Images that nobody uses any more are removed: after a while, and when the disk fills up.

use super::{
    gc::{Collector, Disk, PERIOD, Present, signed},
    reference::Reference,
};
use crate::{Shared, blocking, eviction, figures, pods};
use lifecycle::EventKind;
use parking_lot::Mutex;
use runtime::{ContainerStatus, Image};
use std::{collections::HashSet, time::Duration};
use tokio::sync::{Notify, oneshot};

/// How long one waits for more to become unused before one looks.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who waits for all unused images to go.
#[derive(Default)]
pub(crate) struct Wishes {
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    bell: Notify,
}

impl Wishes {
    fn take(&self) -> Vec<oneshot::Sender<()>> {
        std::mem::take(&mut *self.waiting.lock())
    }
}

/// Removes all unused images that have been there for `imageMinimumGCAge`, whatever room there is (`DeleteUnusedImages`).
pub(crate) async fn delete_unused(shared: &Shared) {
    let (done, wait) = oneshot::channel();
    let wishes = &shared.images.wishes;
    wishes.waiting.lock().push(done);
    wishes.bell.notify_one();
    // Nobody looks at images any more: the kubelet stops.
    let _ = wait.await;
}

/// What one look came to.
#[derive(Debug, Default)]
struct Outcome {
    /// Whether the disk is fuller than it should be.
    full: bool,
    /// Why there is more than there should be.
    failure: Option<Failure>,
    /// The runtime refuses something: it is asked again after a longer while.
    stuck: bool,
}

/// Why there is more than there should be.
#[derive(Debug)]
struct Failure {
    /// The reason of an event of its own, if it has one.
    reason: Option<&'static str>,
    text: String,
}

/// Looks at the images until told to stop.
pub(crate) async fn run(shared: &Shared) {
    let config = &shared.options.config.images;
    let mut collector = Collector::new(shared.now());
    let (mut failed_before, mut told) = (false, None);
    loop {
        let wishes = shared.images.wishes.take();
        let outcome = look(shared, &mut collector, !wishes.is_empty()).await;
        for done in wishes {
            let _ = done.send(());
        }
        if let Some(failure) = &outcome.failure {
            tracing::warn!(error = failure.text, "image garbage collection failed");
            // Once for each of upstream's looks, however often there is a reason to look.
            let now = shared.now();
            if told.is_none_or(|at| now.duration_since(at) >= signed(PERIOD)) {
                // Failing once is no news: figures may be missing at the start.
                told = failed_before.then_some(now);
                tell(shared, failure, failed_before);
            }
        }
        failed_before = outcome.failure.is_some();
        let now = shared.now();
        let due = if outcome.stuck { now + PERIOD } else { collector.next(config, outcome.full, now) };
        let wait = tokio::time::sleep(shared.options.clock.until(due));
        let heed = outcome.full || !config.image_maximum_gc_age.is_zero();
        let unused = async {
            if !heed {
                std::future::pending::<()>().await;
            }
            shared.images.unused.notified().await;
            tokio::time::sleep(PATIENCE).await;
        };
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = wait => {}
            () = unused => {}
            () = shared.images.wishes.bell.notified() => {}
        }
    }
}

fn tell(shared: &Shared, failure: &Failure, again: bool) {
    let reasons = failure.reason.into_iter().chain(again.then_some("ImageGCFailed"));
    reasons.for_each(|reason| shared.recorder.record_node(EventKind::Warning, reason, failure.text.clone()));
}

async fn look(shared: &Shared, collector: &mut Collector, all: bool) -> Outcome {
    let config = &shared.options.config.images;
    let failed = |reason, text| Some(Failure { reason, text });
    let stuck = |error| Outcome { failure: failed(None, error), stuck: true, ..Outcome::default() };
    let began = shared.now();
    let images = match present(shared).await {
        Ok(images) => images,
        Err(error) => return stuck(error),
    };
    let ids: HashSet<String> = images.iter().map(|image| image.id.clone()).collect();
    shared.images.forget_all_but(ids, began).await;
    collector.see(images, began);
    let old = collector.too_old(config, began);
    if let Err(errors) = remove(shared, collector, &old).await {
        let max = config.image_maximum_gc_age;
        let text = format!("wanted to free images older than {max:?}, encountered errors in image deletion: {errors}");
        return stuck(text);
    }
    let unused = if all { collector.free_to_go(config, shared.now()) } else { Vec::new() };
    let unused: Vec<String> = unused.into_iter().map(|(id, _)| id).collect();
    if let Err(errors) = remove(shared, collector, &unused).await {
        return stuck(format!("encountered errors in image deletion: {errors}"));
    }
    let disk = match disk(shared).await {
        Ok(disk) => disk,
        Err(error) => return stuck(error),
    };
    if disk.capacity == 0 {
        let failure = failed(Some("InvalidDiskCapacity"), "invalid capacity 0 on image filesystem".to_owned());
        return Outcome { failure, stuck: true, ..Outcome::default() };
    }
    let Some(excess) = collector.excess(config, disk, shared.now()) else { return Outcome::default() };
    let (mut freed, mut errors) = (0_u64, Vec::new());
    for (id, size) in excess.images {
        if freed >= excess.amount {
            break;
        }
        match remove(shared, collector, &[id]).await {
            Ok(()) => freed += size,
            Err(error) => errors.push(error),
        }
    }
    let wanted = excess.amount;
    if !errors.is_empty() {
        return stuck(format!(
            "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {}",
            errors.join(", ")
        ));
    }
    if freed >= wanted {
        return Outcome { full: true, ..Outcome::default() };
    }
    let error = format!(
        "Failed to garbage collect required amount of images. Attempted to free {wanted} bytes, but only found {freed} bytes eligible to free."
    );
    Outcome { full: true, failure: failed(Some("FreeDiskSpaceFailed"), error), stuck: false }
}

async fn remove(shared: &Shared, collector: &mut Collector, ids: &[String]) -> Result<(), String> {
    let mut errors = Vec::new();
    for id in ids {
        tracing::info!(image = id, "removing an unused image");
        match shared.runtime.remove_image(id).await {
            Ok(()) => collector.removed(id),
            Err(error) => errors.push(error.to_string()),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join(", ")) }
}

/// All images, and whether each is in use.
async fn present(shared: &Shared) -> Result<Vec<Present>, String> {
    let images = shared.runtime.images().await.map_err(|e| e.to_string())?;
    // Pods are asked last: whoever came in between counts.
    let containers = shared.runtime.containers().await.map_err(|e| e.to_string())?;
    let named = named_by_pods(shared);
    Ok(images.into_iter().map(|image| with_use(image, &containers, &named)).collect())
}

/// The images of all Pods that have not ended: one of them may be about to be used.
fn named_by_pods(shared: &Shared) -> HashSet<String> {
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

fn with_use(image: Image, containers: &[ContainerStatus], named: &HashSet<String>) -> Present {
    let is = |name: &str| image.id == name || image.digests.iter().chain(&image.tags).any(|known| known == name);
    let runs = containers.iter().any(|c| is(&c.image_ref) || is(&c.image));
    let wanted = image.tags.iter().chain(&image.digests).any(|name| named.contains(name));
    Present { in_use: image.pinned || runs || wanted, id: image.id, size: image.size }
}

async fn disk(shared: &Shared) -> Result<Disk, String> {
    let path = eviction::image_fs(shared).await;
    blocking::run(move || {
        let fs = figures::file_system(&path).ok_or_else(|| format!("{} cannot be measured", path.display()))?;
        Ok(Disk { capacity: fs.capacity, available: fs.available })
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
    fn an_image_is_in_use_when_a_container_or_a_pod_has_it_or_the_runtime_needs_it() {
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
            assert_eq!(with_use(image, &containers, &named).in_use, expected, "{pinned} {containers:?} {named:?}");
        }
    }
}
