//! The `image` subcommand.

use crate::{
    cli::{ImageCommand, RuntimeArgs},
    data_dir::DataDir,
    print::print_line,
};
use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use runtime::{CriRuntime, ImportError, Runtime};
use std::path::Path;
use tokio::io::AsyncRead;

pub(crate) async fn run(command: ImageCommand) -> Result<()> {
    match command {
        ImageCommand::Import { files, runtime } => {
            let endpoint = endpoint(&runtime)?;
            for file in &files {
                for name in import(&endpoint, file).await? {
                    print_line!("{name}");
                }
            }
            Ok(())
        }
        ImageCommand::Ls { runtime } => list(&endpoint(&runtime)?).await,
    }
}

fn endpoint(args: &RuntimeArgs) -> Result<String> {
    match &args.runtime_endpoint {
        Some(endpoint) => Ok(endpoint.clone()),
        None => Ok(DataDir::new(&args.data_dir.data_dir)?.runtime_endpoint()),
    }
}

/// Imports one archive and shows a progress bar.
pub(crate) async fn import(endpoint: &str, file: &Path) -> Result<Vec<String>> {
    let (mut reader, size): (Box<dyn AsyncRead + Send + Unpin>, Option<u64>) = if file == Path::new("-") {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let opened = tokio::fs::File::open(file).await.with_context(|| format!("failed to read {}", file.display()))?;
        let size = opened.metadata().await?.len();
        (Box::new(opened), Some(size))
    };
    let bar = size.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.set_style(ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}")?);
    bar.set_message(file.display().to_string());
    let names = runtime::import(endpoint, &mut *reader, |sent| bar.set_position(sent)).await;
    bar.finish_and_clear();
    let context = match &names {
        Err(ImportError::Unreachable(_)) => format!("{}: is Podium up in this data directory?", file.display()),
        _ => file.display().to_string(),
    };
    names.context(context)
}

async fn list(endpoint: &str) -> Result<()> {
    let images =
        CriRuntime::new(endpoint, Path::new(""))?.images().await.context("is Podium up in this data directory?")?;
    print_line!("{:<60} {:<20} SIZE", "IMAGE", "ID");
    let mut lines = Vec::new();
    for image in &images {
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
    Ok(())
}
