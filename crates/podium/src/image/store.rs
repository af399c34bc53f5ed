//! Commands on the image store of the machine.

use super::{StoreTarget, progress_bar};
use crate::{container_runtime::open_image_store, print::print_line};
use anyhow::{Context, Result};
use distribution::{LayerProgress, PullOptions};
use images::ImageStore;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use runtime::Image;
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// Maximum time to wait for other processes that add images.
const PRUNE_TIMEOUT: Duration = Duration::from_secs(60);

/// Opens the store as its cluster sees it.
fn open(target: &StoreTarget) -> Result<ImageStore> {
    let store = open_image_store(&target.root)?;
    match &target.cluster {
        Some(cluster) => Ok(store.of_cluster(cluster)?),
        None => Ok(store),
    }
}

/// Runs blocking work on the store.
async fn with_store<T: Send + 'static>(
    target: StoreTarget,
    work: impl FnOnce(&ImageStore) -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(move || work(&open(&target)?)).await?
}

pub(super) async fn import(target: StoreTarget, file: &Path) -> Result<Vec<String>> {
    let file = file.to_owned();
    with_store(target, move |store| {
        let (reader, size): (Box<dyn Read + Send>, Option<u64>) = if file == Path::new("-") {
            (Box::new(io::stdin()), None)
        } else {
            let opened = File::open(&file).with_context(|| format!("failed to read {}", file.display()))?;
            let size = opened.metadata()?.len();
            (Box::new(opened), Some(size))
        };
        let bar = progress_bar(&file, size)?;
        let names = store.import(reader, |read| bar.set_position(read));
        bar.finish_and_clear();
        names.with_context(|| file.display().to_string())
    })
    .await
}

pub(super) async fn list(target: StoreTarget) -> Result<Vec<Image>> {
    let images = with_store(target, |store| Ok(store.list()?)).await?;
    Ok(images.into_iter().map(engine::describe_image).collect())
}

pub(super) async fn pull(target: StoreTarget, images: &[String]) -> Result<()> {
    let store = with_store(target, |store| Ok(store.clone())).await?;
    for image in images {
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}")?);
        bar.set_message(image.clone());
        let layers = parking_lot::Mutex::new(BTreeMap::new());
        let show = |progress: LayerProgress| {
            let mut layers = layers.lock();
            layers.insert(progress.digest.to_string(), (progress.received, progress.size));
            bar.set_length(layers.values().map(|(_, size)| size).sum());
            bar.set_position(layers.values().map(|(received, _)| received).sum());
        };
        let options =
            PullOptions { certs_dirs: crate::container_runtime::registry_hosts_dirs(), ..PullOptions::default() };
        let pulled = engine::pull_image(&store, image, &options, &show).await;
        bar.finish_and_clear();
        print_line!("{}", pulled?);
    }
    Ok(())
}

pub(super) async fn remove(target: StoreTarget, images: Vec<String>) -> Result<()> {
    with_store(target, move |store| {
        for image in images {
            store.remove(&image)?.iter().for_each(|name| print_line!("{name}"));
        }
        Ok(())
    })
    .await
}

pub(super) async fn prune(target: StoreTarget) -> Result<()> {
    let collected = with_store(target, |store| Ok(store.collect(PRUNE_TIMEOUT)?)).await?;
    collected.problems.iter().for_each(|problem| crate::print::error(format_args!("warning: {problem}")));
    let (blobs, layers) = (collected.blobs, collected.layers);
    print_line!("Removed {blobs} blobs ({}) and {layers} unpacked layers", HumanBytes(collected.blob_bytes));
    Ok(())
}

pub(super) async fn save(target: StoreTarget, images: Vec<String>, output: &Path) -> Result<()> {
    let output: PathBuf = output.to_owned();
    with_store(target, move |store| {
        let names: Vec<&str> = images.iter().map(String::as_str).collect();
        if output == Path::new("-") {
            return Ok(store.save(&names, &mut io::stdout().lock())?);
        }
        let mut file =
            files::create_private(&output).with_context(|| format!("failed to create {}", output.display()))?;
        store.save(&names, &mut file)?;
        Ok(file.flush()?)
    })
    .await
}
