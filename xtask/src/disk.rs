//! Free space of the disk, which decides whether a run of all tests can succeed.

use crate::step;
use std::process::Command;

/// Space that a cold build and the tests take: 20 GiB were measured. Kubelets of the tests evict Pods from a disk that is
/// nearly full.
const NEEDED_GIB: u64 = 25;
/// Space that the tests take when all is built.
const NEEDED_WHEN_BUILT_GIB: u64 = 8;

/// Prints how much is free on the disk of cargo's target directory, and a warning if that is not enough.
pub(crate) fn report() {
    let target = step::target_dir();
    let needed = if target.join("debug/podium").exists() { NEEDED_WHEN_BUILT_GIB } else { NEEDED_GIB };
    let dir = if target.exists() { target } else { step::root() };
    let Some(free) = free_gib(Command::new("df").args(["--output=avail", "--block-size=1G"]).arg(&dir)) else { return };
    println!("==> disk: {free} GiB free in {}", dir.display());
    if free < needed {
        println!("==> disk: WARNING: a run of all tests needs {needed} GiB, and may fail with less");
    }
}

fn free_gib(df: &mut Command) -> Option<u64> {
    let output = df.output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().nth(1)?.trim().parse().ok()
}
