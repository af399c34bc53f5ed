//! The `image` subcommand.

mod cri;
mod store;

use crate::{
    cli::{ImageArgs, ImageCommand, ImageStoreArgs},
    data_dir::{DataDir, RecordedRuntime},
    print::print_line,
};
use anyhow::{Context, Result, bail};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use runtime::{Image, ImportError, Runtime};
use std::path::{Path, PathBuf};
use tokio::io::AsyncRead;

/// Context of an error of a runtime that does not respond.
const IS_UP: &str = "is Podium up in this data directory?";

pub(crate) async fn run(command: ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Import { files, args } => {
            let target = target(&args)?;
            for file in &files {
                for name in import(&target, file).await? {
                    print_line!("{name}");
                }
            }
            Ok(())
        }
        ImageCommand::Ls { args } => list(&target(&args)?).await,
        ImageCommand::Pull { images, args } => match target(&args)? {
            ImageTarget::Store(store) => store::pull(store, &images).await,
            ImageTarget::Endpoint(endpoint) => cri::pull(&endpoint, &images).await,
        },
        ImageCommand::Rm { images, args } => match target(&args)? {
            ImageTarget::Store(store) => store::remove(store, images).await,
            ImageTarget::Endpoint(endpoint) => cri::remove(&endpoint, &images).await,
        },
        ImageCommand::Prune { args } => match target(&args)? {
            ImageTarget::Store(store) => store::prune(store).await,
            ImageTarget::Endpoint(endpoint) => bail!(
                "the runtime at {endpoint} removes content that no image uses by itself: remove images with \
                 `podium image rm`"
            ),
        },
        ImageCommand::Save { images, output, args } => match target(&args)? {
            ImageTarget::Store(store) => store::save(store, images, &output).await,
            ImageTarget::Endpoint(endpoint) => bail!(
                "images of the runtime at {endpoint} are saved with its own tool, with containerd: `ctr --address {} \
                 --namespace k8s.io images export {} {}`",
                endpoint.trim_start_matches("unix://"),
                output.display(),
                images.join(" ")
            ),
        },
    }
}

/// Where the images of a data directory are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageTarget {
    /// Image store of the machine.
    Store(StoreTarget),
    /// CRI endpoint.
    Endpoint(String),
}

/// Image store of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoreTarget {
    root: PathBuf,
    /// Data directory of the cluster for which images are added and listed; `None` for the machine.
    cluster: Option<PathBuf>,
}

impl ImageTarget {
    /// Returns the place of the images of a data directory: the image store of the machine if it has no cluster.
    pub(crate) fn new(dir: &DataDir, args: &ImageStoreArgs) -> Self {
        match dir.recorded_runtime() {
            RecordedRuntime::External(endpoint) => Self::Endpoint(endpoint),
            RecordedRuntime::Engine => {
                let recorded = engine::image_store(dir.root());
                let root = args.image_store.clone().or(recorded).unwrap_or_else(|| args.path().to_owned());
                let cluster = dir.was_used().then(|| dir.root().to_owned());
                Self::Store(StoreTarget { root, cluster })
            }
        }
    }
}

fn target(args: &ImageArgs) -> Result<ImageTarget> {
    match &args.runtime.runtime_endpoint {
        Some(endpoint) => Ok(ImageTarget::Endpoint(endpoint.clone())),
        None => Ok(ImageTarget::new(&DataDir::new(&args.runtime.data_dir.data_dir)?, &args.image_store)),
    }
}

/// Imports one archive and shows a progress bar.
pub(crate) async fn import(target: &ImageTarget, file: &Path) -> Result<Vec<String>> {
    match target {
        ImageTarget::Store(store) => store::import(store.clone(), file).await,
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
        Err(ImportError::Unreachable(_)) => format!("{}: {IS_UP}", file.display()),
        _ => file.display().to_string(),
    };
    names.context(context)
}

async fn list(target: &ImageTarget) -> Result<()> {
    let images = match target {
        ImageTarget::Store(store) => store::list(store.clone()).await?,
        ImageTarget::Endpoint(endpoint) => {
            let images = cri::connect(endpoint)?.images().await;
            images.context(IS_UP)?
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DEFAULT_IMAGE_STORE;

    #[test]
    fn runtime_of_the_data_directory_decides() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::create(dir.path(), "data").unwrap().unwrap();
        let (none, some) =
            (ImageStoreArgs { image_store: None }, ImageStoreArgs { image_store: Some("/images".into()) });
        let store = |root: &str, cluster: Option<&Path>| {
            ImageTarget::Store(StoreTarget { root: root.into(), cluster: cluster.map(Path::to_owned) })
        };
        // Without a cluster, the images are those of the machine.
        assert_eq!(ImageTarget::new(&data_dir, &none), store(DEFAULT_IMAGE_STORE, None));
        assert_eq!(ImageTarget::new(&data_dir, &some), store("/images", None));
        let lock = data_dir.lock().unwrap();
        let cluster = Some(data_dir.root());
        assert_eq!(ImageTarget::new(&data_dir, &none), store(DEFAULT_IMAGE_STORE, cluster));
        // The engine has recorded its store.
        files::create_private_dir_all(&data_dir.root().join("engine")).unwrap();
        files::replace_private(&data_dir.root().join("engine/image-store"), b"/recorded").unwrap();
        assert_eq!(ImageTarget::new(&data_dir, &none), store("/recorded", cluster));
        assert_eq!(ImageTarget::new(&data_dir, &some), store("/images", cluster));
        let endpoint = "unix:///run/containerd/containerd.sock";
        data_dir.record_runtime(&RecordedRuntime::External(endpoint.to_owned())).unwrap();
        assert_eq!(ImageTarget::new(&data_dir, &some), ImageTarget::Endpoint(endpoint.to_owned()));
        drop(lock);
    }
}
