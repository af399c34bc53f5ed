//! `cargo xtask fuzz`: fuzzes the API, or one fuzz target.

use crate::{server::Server, setup, step};
use anyhow::Result;
use std::{ffi::OsString, process::Command};

/// Kubelet configuration that admits no Pods, so that no fuzzed container runs on this machine.
const KUBELET_CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 0\n";

/// Builds the fuzzer and Podium, and fuzzes the API for this many minutes.
///
/// # Errors
/// When the fuzzer finds a fault; the requests are printed.
pub(crate) fn api(minutes: u64, seed: u64, only: Option<&str>) -> Result<()> {
    // The whole workspace, as for tests: another selection of packages changes the features of dependencies.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    of_podium(minutes * 60, seed, only, setup::path_with(&setup::run()?))
}

/// Starts the built Podium, fuzzes it, and removes everything.
///
/// # Errors
/// When Podium does not start, when there is a fault, or when Podium has ended.
pub(crate) fn of_podium(seconds: u64, seed: u64, only: Option<&str>, path: OsString) -> Result<()> {
    let mut server = Server::boot("fuzz", path, Some(KUBELET_CONFIG))?;
    let mut fuzzer = Command::new(step::target_dir().join("debug/fuzzer"));
    fuzzer.arg("--kubeconfig").arg(server.kubeconfig()).arg("--log").arg(server.log());
    fuzzer.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
    fuzzer.args(only.into_iter().flat_map(|only| ["--only", only]));
    let result = step::run("requests that no client should send", &mut fuzzer);
    server.check_running().and(result)
}

/// Compiler flags for coverage instrumentation: those of `cargo fuzz` without sanitizers, which need a nightly compiler.
const COVERAGE_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds a target of `fuzz/` and runs it with libFuzzer for this many minutes. The corpus stays in `fuzz` of the target
/// directory.
///
/// # Errors
/// When there is no such target, or when it crashes; the error names the input.
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
    cargo.env("RUSTFLAGS", COVERAGE_FLAGS).env("CARGO_TARGET_DIR", &directory);
    cargo.arg(&corpus).arg(step::root().join("fuzz/seeds").join(name));
    cargo.arg(format!("-max_total_time={}", minutes.max(1) * 60)).arg(format!("-seed={seed}"));
    cargo.arg(format!("-artifact_prefix={}/", found.display()));
    cargo.args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1"]);
    step::run(name, &mut cargo)
}
