//! Images: the kubelet's calls to the image store of the machine.

use crate::{state::Inner, steps::failed};
use distribution::{BlobStore, Progress, PullOptions, Pulled};
use images::{ImageStore, Lease};
use runtime::{Image, RegistryAuth, RuntimeError, StopSignal};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, time::timeout};

/// Maximum time to wait for processes that add images.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that a call waits for the import of the first images, the default deadline of the kubelet's calls. The kubelet
/// repeats them.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs blocking work on the store.
async fn with_store<T: Send + 'static>(
    store: &ImageStore,
    work: impl FnOnce(&ImageStore) -> Result<T, images::Error> + Send + 'static,
) -> Result<Result<T, images::Error>, RuntimeError> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || work(&store)).await.map_err(|error| RuntimeError::Failed(error.to_string()))
}

/// Converts an image of the store.
#[must_use]
pub fn describe_image(image: images::Image) -> Image {
    Image {
        id: image.id.to_string(),
        tags: image.tags,
        digests: image.digests,
        size: image.size,
        uid: image.uid,
        username: image.username,
        pinned: image.pinned,
    }
}

/// Waits until the images are imported that the cluster begins with: each image may be one of them.
///
/// # Errors
/// If the import takes longer than a call may take.
async fn imported(mut imported: watch::Receiver<bool>) -> Result<(), RuntimeError> {
    match timeout(IMPORT_TIMEOUT, imported.wait_for(|imported| *imported)).await {
        // An import that was given up has ended, too.
        Ok(_) => Ok(()),
        Err(_) => Err(RuntimeError::Failed("image archives are still being imported".to_owned())),
    }
}

/// Finds an image; `None` if it is not there.
async fn image(inner: &Inner, reference: &str) -> Result<Option<images::Image>, RuntimeError> {
    let wanted = reference.to_owned();
    match with_store(&inner.options.images, move |store| store.image(&wanted)).await? {
        Ok(image) => Ok(Some(image)),
        Err(images::Error::NotFound(_)) => Ok(None),
        // A pull repairs it.
        Err(error) if error.is_invalid_content() => {
            tracing::warn!(reference, %error, "ignoring a damaged image");
            Ok(None)
        }
        Err(error) => Err(failed(format!("find image {reference:?}"))(error)),
    }
}

pub(crate) async fn find(inner: &Inner, reference: &str) -> Result<Option<Image>, RuntimeError> {
    imported(inner.options.images_imported.clone()).await?;
    Ok(image(inner, reference).await?.map(describe_image))
}

pub(crate) async fn stop_signal(inner: &Inner, reference: &str) -> Result<Option<StopSignal>, RuntimeError> {
    let signal = image(inner, reference).await?.and_then(|image| image.stop_signal);
    Ok(signal.and_then(|signal| StopSignal::parse(&signal)))
}

pub(crate) async fn list(inner: &Inner) -> Result<Vec<Image>, RuntimeError> {
    let images = with_store(&inner.options.images, ImageStore::list).await?.map_err(failed("list images"))?;
    Ok(images.into_iter().map(describe_image).collect())
}

/// Removes an image for this cluster, and the content that nothing else uses: the kubelet's image garbage collection expects
/// free space. An image that another cluster needs stays.
pub(crate) async fn remove(inner: &Inner, reference: &str) -> Result<(), RuntimeError> {
    let removed = reference.to_owned();
    let remove = move |store: &ImageStore| {
        if store.remove_for_cluster(&removed)?.is_empty() {
            return Ok(());
        }
        match store.collect(COLLECT_TIMEOUT) {
            Ok(collected) => {
                collected
                    .problems
                    .iter()
                    .for_each(|problem| tracing::warn!(problem, "found damage in the image store"));
                Ok(())
            }
            // Another process adds an image: the next removal collects.
            Err(images::Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    };
    match with_store(&inner.options.images, remove).await? {
        Ok(()) | Err(images::Error::NotFound(_)) => Ok(()),
        Err(error) => Err(failed(format!("remove image {reference:?}"))(error)),
    }
}

/// Pulls an image for the kubelet.
///
/// # Errors
/// With the text of the registry.
pub(crate) async fn pull(inner: &Inner, reference: &str, auth: Option<&RegistryAuth>) -> Result<String, RuntimeError> {
    // Otherwise an archive would move a tag back that was pulled.
    imported(inner.options.images_imported.clone()).await?;
    let options = PullOptions {
        credentials: auth.cloned().into_iter().collect(),
        certs_dirs: inner.options.registry_hosts_dirs.clone(),
        ..PullOptions::default()
    };
    pull_image(&inner.options.images, reference, &options, &|_| {}).await
}

/// Pulls an image, unpacks it, names it, and returns its ID. Other processes see it when it is complete. Blobs that are found to
/// be damaged when they are unpacked are fetched again.
///
/// # Errors
/// With the text of the registry.
pub async fn pull_image(
    store: &ImageStore,
    reference: &str,
    options: &PullOptions,
    progress: Progress<'_>,
) -> Result<String, RuntimeError> {
    let lease = with_store(store, ImageStore::lease).await?.map_err(failed("pull image"))?;
    let blobs: Arc<dyn BlobStore> = Arc::new(lease.clone());
    let mut is_repaired = false;
    loop {
        let pulled = distribution::pull(reference, options, &blobs, progress).await;
        let pulled = pulled.map_err(|error| RuntimeError::Failed(error.to_string()))?;
        let (id, lease) = (pulled.image_id, lease.clone());
        let unpack = move |_: &ImageStore| unpack(&lease, &pulled, !is_repaired);
        let error = match with_store(store, unpack).await? {
            Ok(Unpacked::Complete) => return Ok(id.to_string()),
            Ok(Unpacked::Incomplete) => {
                is_repaired = true;
                continue;
            }
            Err(error) => error,
        };
        return Err(RuntimeError::Failed(format!("failed to pull and unpack image {reference:?}: {error}")));
    }
}

/// Result of unpacking a pulled image.
enum Unpacked {
    /// The image has its names.
    Complete,
    /// Damaged blobs were removed.
    Incomplete,
}

fn unpack(lease: &Lease, pulled: &Pulled, may_repair: bool) -> Result<Unpacked, images::Error> {
    let manifest = &pulled.image_manifest_digest;
    let unpacked = lease
        .unpack(manifest)
        .and_then(|()| lease.tag_pulled(&pulled.name.to_string(), &pulled.manifest_digest, manifest));
    match unpacked {
        Ok(_) => Ok(Unpacked::Complete),
        Err(error) if may_repair && error.is_invalid_content() && lease.remove_damaged(manifest)? => {
            tracing::warn!(image = %pulled.name, %error, "fetching damaged blobs again");
            Ok(Unpacked::Incomplete)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
