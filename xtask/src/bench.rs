//! `cargo xtask bench`: measures the numbers of docs/performance.md.

use crate::{setup, step};
use anyhow::Result;

/// Builds Podium for release and measures it with the `bench` crate.
///
/// # Errors
/// When the build or a measurement fails.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let path = setup::path_with(&setup::run()?);
    step::run(
        "build for release",
        &mut step::cargo(&["build", "--release", "--package", "podium", "--package", "bench"]),
    )?;
    let mut command = std::process::Command::new(step::target_dir().join("release/bench"));
    step::run("measure", command.args(names).env("PATH", path))
}
