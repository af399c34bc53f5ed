//! The `image` subcommand.

mod store;

use crate::{
    cli::{ImageCommand, ImageStoreArgs, RuntimeArgs},
    data_dir::{DataDir, RecordedRuntime},
    print::print_line,
};
use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use runtime::{CriRuntime, Image, ImportError, Runtime};
use std::path::{Path, PathBuf};
use tokio::io::AsyncRead;

pub(crate) async fn run(command: ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Import { files, runtime, image_store } => {
            let target = target(&runtime, &image_store)?;
            for file in &files {
                for name in import(&target, file).await? {
                    print_line!("{name}");
                }
            }
            Ok(())
        }
        ImageCommand::Ls { runtime, image_store } => list(&target(&runtime, &image_store)?).await,
        ImageCommand::Pull { images, image_store } => store::pull(&image_store.image_store, &images).await,
        ImageCommand::Rm { images, image_store } => store::remove(&image_store.image_store, images).await,
        ImageCommand::Prune { image_store } => store::prune(&image_store.image_store).await,
        ImageCommand::Save { images, output, image_store } => {
            store::save(&image_store.image_store, images, &output).await
        }
    }
}

/// Where the images of a data directory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageTarget {
    /// Image store of the machine.
    Store(PathBuf),
    /// CRI endpoint.
    Endpoint(String),
}

impl ImageTarget {
    /// Returns the place of the images of a data directory.
    pub(crate) fn new(dir: &DataDir, image_store: &ImageStoreArgs) -> Self {
        match dir.recorded_runtime() {
            RecordedRuntime::Engine => Self::Store(image_store.image_store.clone()),
            RecordedRuntime::Containerd => Self::Endpoint(runtime::containerd::endpoint(dir.root())),
            RecordedRuntime::External(endpoint) => Self::Endpoint(endpoint),
        }
    }
}

fn target(args: &RuntimeArgs, image_store: &ImageStoreArgs) -> Result<ImageTarget> {
    match &args.runtime_endpoint {
        Some(endpoint) => Ok(ImageTarget::Endpoint(endpoint.clone())),
        None => Ok(ImageTarget::new(&DataDir::new(&args.data_dir.data_dir)?, image_store)),
    }
}

/// Imports one archive and shows a progress bar.
pub(crate) async fn import(target: &ImageTarget, file: &Path) -> Result<Vec<String>> {
    match target {
        ImageTarget::Store(root) => store::import(root, file).await,
        ImageTarget::Endpoint(endpoint) => import_into_runtime(endpoint, file).await,
    }
}

/// Makes the progress bar of an import.
fn progress_bar(file: &Path, size: Option<u64>) -> Result<ProgressBar> {
    let bar = size.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")?);
    bar.set_message(file.display().to_string());
    Ok(bar)
}

async fn import_into_runtime(endpoint: &str, file: &Path) -> Result<Vec<String>> {
    let (mut reader, size): (Box<dyn AsyncRead + Send + Unpin>, Option<u64>) = if file == Path::new("-") {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let opened = tokio::fs::File::open(file).await.with_context(|| format!("failed to read {}", file.display()))?;
        let size = opened.metadata().await?.len();
        (Box::new(opened), Some(size))
    };
    let bar = progress_bar(file, size)?;
    let names = runtime::import(endpoint, &mut *reader, |sent| bar.set_position(sent)).await;
    bar.finish_and_clear();
    let context = match &names {
        Err(ImportError::Unreachable(_)) => format!("{}: is Podium up in this data directory?", file.display()),
        _ => file.display().to_string(),
    };
    names.context(context)
}

async fn list(target: &ImageTarget) -> Result<()> {
    let images = match target {
        ImageTarget::Store(root) => store::list(root).await?,
        ImageTarget::Endpoint(endpoint) => {
            let images = CriRuntime::new(endpoint, Path::new(""))?.images().await;
            images.context("is Podium up in this data directory?")?
        }
    };
    print_images(&images);
    Ok(())
}

fn print_images(images: &[Image]) {
    print_line!("{:<60} {:<20} SIZE", "IMAGE", "ID");
    let mut lines = Vec::new();
    for image in images {
        let names = if image.tags.is_empty() { &image.digests[..1.min(image.digests.len())] } else { &image.tags };
        let id: String = image.id.trim_start_matches("sha256:").chars().take(12).collect();
        let line = |name: &str| format!("{name:<60} {id:<20} {}", HumanBytes(image.size));
        lines.extend(names.iter().map(|name| line(name)));
        if names.is_empty() {
            lines.push(line("<none>"));
        }
    }
    lines.sort();
    lines.iter().for_each(|line| print_line!("{line}"));
}
