//! Commands on the images of an external CRI runtime.

use super::IS_UP;
use crate::print::print_line;
use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use runtime::{CriRuntime, Runtime};
use std::{path::Path, time::Duration};

/// Time between two frames of the display.
const FRAME: Duration = Duration::from_millis(100);

pub(super) fn connect(endpoint: &str) -> Result<CriRuntime> {
    Ok(CriRuntime::new(endpoint, Path::new(""))?)
}

/// Pulls images. The CRI reports no progress: the time is shown.
pub(super) async fn pull(endpoint: &str, images: &[String]) -> Result<()> {
    let runtime = connect(endpoint)?;
    runtime.version().await.context(IS_UP)?;
    for image in images {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{msg} {spinner} {elapsed}")?);
        bar.set_message(image.clone());
        bar.enable_steady_tick(FRAME);
        let pulled = runtime.pull_image(image.as_str().into(), None).await;
        bar.finish_and_clear();
        print_line!("{}", pulled?);
    }
    Ok(())
}

/// Removes images. Containers that use them keep running.
pub(super) async fn remove(endpoint: &str, images: &[String]) -> Result<()> {
    let runtime = connect(endpoint)?;
    for image in images {
        let Some(found) = runtime.image(image.as_str().into()).await.context(IS_UP)? else {
            bail!("image {image:?}: not found");
        };
        runtime.remove_image(image).await?;
        found.tags.iter().chain(&found.digests).for_each(|name| print_line!("{name}"));
    }
    Ok(())
}
