//! Running programs, and saying so.

use anyhow::{Context, Result, bail};
use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Command, Stdio},
};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, PathBuf::from)
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo` with these arguments, in the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // What cargo tells a program that it runs (CARGO_PKG_NAME, ...) is no business of the cargo that this one runs: build
    // scripts that watch those would run again whenever xtask and a plain cargo take turns.
    for (name, _) in std::env::vars_os().filter(|(name, _)| told(name)) {
        command.env_remove(name);
    }
    command
}

fn told(name: &OsStr) -> bool {
    name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_"))
}

/// Says what is done, does it, and fails when it fails.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    println!("==> {what}");
    let status = command.status().with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    if !status.success() {
        bail!("{what}: {:?} ended with {status}", command.get_program());
    }
    Ok(())
}

/// Whether a program answers to `arg`.
pub(crate) fn answers(program: &str, arg: &str) -> bool {
    Command::new(program).arg(arg).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}
