//! `cargo xtask demo`: starts Podium, runs real Pods, and shows their lifecycle.

use crate::{setup, step};
use anyhow::Result;
use std::process::Command;

/// Runs the demo in a temporary cluster, which is removed afterwards.
///
/// # Errors
/// When a step fails.
pub(crate) fn run() -> Result<()> {
    let path = setup::path_with(&setup::run()?);
    step::run("build Podium", &mut step::cargo(&["build", "--package", "podium"]))?;
    let image = step::target_dir().join("busybox.tar");
    println!("==> create a busybox image (without a registry)");
    test_images::busybox(&image, &[test_images::BUSYBOX], &test_images::ImageConfig::default())?;
    let podium = step::target_dir().join("debug/podium");
    for example in ["hello.yaml", "retry.yaml"] {
        let mut command = Command::new(&podium);
        command
            .arg("run")
            .arg(step::root().join("examples").join(example))
            .args(["--timeout", "2m", "--image"])
            .arg(&image);
        step::run(&format!("podium run examples/{example}"), command.env("PATH", &path))?;
    }
    println!("\nThat was a whole cluster, twice. To keep one: sudo target/debug/podium up");
    Ok(())
}
