//! Runs programs as steps with a heading.

use anyhow::{Context, Result, bail};
use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Returns cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Returns a `cargo` command in the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // The inner cargo must not inherit variables of the outer one (CARGO_PKG_NAME, ...): build scripts that depend on them
    // would run again whenever xtask and plain cargo alternate.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_cargo_variable(name)) {
        command.env_remove(name);
    }
    command
}

fn is_cargo_variable(name: &OsStr) -> bool {
    name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"))
}

/// Prints a heading, runs the command, and fails when the command fails.
pub(crate) fn run(heading: &str, command: &mut Command) -> Result<()> {
    println!("==> {heading}");
    let status = command.status().with_context(|| format!("{heading}: failed to start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{heading}: {:?} ended with {status}", command.get_program());
    }
    Ok(())
}

/// Returns whether a program succeeds with the argument `arg`.
pub(crate) fn answers(program: &str, arg: &str) -> bool {
    Command::new(program).arg(arg).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// Runs a program that prints nothing of interest, and returns its output.
pub(crate) fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("failed to start {}", command.get_program().display()))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}", command.get_program().display(), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
