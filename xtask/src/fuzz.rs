//! `cargo xtask fuzz`: what no client should send.

use crate::{server::Server, setup, step};
use anyhow::Result;
use std::{ffi::OsString, process::Command};

/// The node takes no Pods, whatever chance writes: nothing of it ever runs on this machine.
const NO_PODS: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 0\n";

/// Builds the fuzzer and Podium, and has the one ask the other for so long.
///
/// # Errors
/// When there is a fault; the requests that led there are printed.
pub(crate) fn api(minutes: u64, seed: u64, only: Option<&str>) -> Result<()> {
    // All of it, as the tests do: another selection means other features of the dependencies, and to build those again.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    of_podium(minutes * 60, seed, only, setup::path_with(&setup::run()?))
}

/// Boots the Podium that was built, asks it, and removes everything.
///
/// # Errors
/// When it does not boot, when there is a fault, or when it is not running in the end.
pub(crate) fn of_podium(seconds: u64, seed: u64, only: Option<&str>, path: OsString) -> Result<()> {
    let mut server = Server::boot("fuzz", path, Some(NO_PODS))?;
    let mut fuzzer = Command::new(step::target_dir().join("debug/fuzzer"));
    fuzzer.arg("--kubeconfig").arg(server.kubeconfig()).arg("--log").arg(server.log());
    fuzzer.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
    fuzzer.args(only.into_iter().flat_map(|only| ["--only", only]));
    let asked = step::run("requests that no client should send", &mut fuzzer);
    server.still_runs().and(asked)
}

/// What makes the compiler count which ways a program has gone; the same flags that `cargo fuzz` gives, without its sanitizers,
/// which only nightly compilers have.
const COUNTED: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds a target of `fuzz/` and has libFuzzer feed it for so long. What it finds stays in the target directory, below `fuzz`.
///
/// # Errors
/// When there is no such target, or when it does not stand what it is fed; the input is named.
pub(crate) fn target(name: &str, minutes: u64, seed: u64) -> Result<()> {
    let directory = step::target_dir().join("fuzz");
    let corpus = directory.join("corpus").join(name);
    let found = directory.join("found").join(name);
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&found)?;
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // With a target named, the flags are not for build scripts.
    let mut cargo = step::cargo(&[
        "run",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target",
        &host,
        "--bin",
        name,
        "--",
    ]);
    cargo.env("RUSTFLAGS", COUNTED).env("CARGO_TARGET_DIR", &directory);
    cargo.arg(&corpus).arg(step::root().join("fuzz/seeds").join(name));
    cargo.arg(format!("-max_total_time={}", minutes.max(1) * 60)).arg(format!("-seed={seed}"));
    cargo.arg(format!("-artifact_prefix={}/", found.display()));
    cargo.args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1"]);
    step::run(name, &mut cargo)
}
