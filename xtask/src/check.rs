//! `cargo xtask test`: runs all checks and tests.

use crate::{conformance, disk, failed_tests, fuzz, server::image_store, setup, step};
use anyhow::Result;
use std::{
    ffi::OsStr,
    time::{Duration, Instant},
};

/// Duration in seconds and seed of the API fuzzing: enough for several requests to each operation.
const FUZZ_SECONDS_AND_SEED: (u64, u64) = (20, 1);

/// Variable that makes the end-to-end tests retry failures, and names the report of flaky tests: see `tests/e2e/retry.rs`.
const FLAKY_REPORT: &str = "PODIUM_FLAKY_REPORT";

/// Runs all checks, or only the tests that match. Prints the duration of each step.
///
/// # Errors
/// When a check fails; later checks do not run.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let mut timings = Timings::default();
    disk::report();
    let tools = timings.take("setup", setup::run_for_tests);
    let result = tools.map(|tools| setup::path_with(&tools)).and_then(|path| match filter {
        Some(filter) => run_matching(filter, &path, &mut timings),
        None => run_all(&path, &mut timings),
    });
    timings.print();
    if result.is_err() {
        disk::report();
    }
    result
}

fn run_all(path: &OsStr, timings: &mut Timings) -> Result<()> {
    timings.take("format", || step::run("format", &mut step::cargo(&["fmt", "--all", "--check"])))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    timings.take("lints", || step::run("lints", &mut step::cargo(&clippy)))?;
    timings.take("documentation", check_documentation)?;
    timings.take("fuzz targets", check_fuzz_targets)?;
    timings.take("build", build)?;
    let report = step::target_dir().join("flaky-tests.txt");
    std::fs::write(&report, "")?;
    // A store of its own: it is empty at the beginning, and nothing of the machine's is used.
    let images = image_store();
    if images.exists() {
        std::fs::remove_dir_all(&images)?;
    }
    let mut tests = step::cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("PATH", path).env(FLAKY_REPORT, &report).env("PODIUM_IMAGE_STORE", images);
    // Backtraces of panics in tests would hide which tests failed.
    tests.env("RUST_BACKTRACE", "0");
    timings.take("tests", || failed_tests::run("tests", &mut tests))?;
    timings.take("conformance", || conformance::of_podium(None, path.to_owned()))?;
    let (seconds, seed) = FUZZ_SECONDS_AND_SEED;
    timings.take("API fuzzer", || fuzz::of_podium(seconds, seed, None, path.to_owned()))?;
    // Flaky tests are bugs, so they are printed again at the end.
    print!("{}", std::fs::read_to_string(report)?);
    Ok(())
}

/// Checks the links of doc comments, also of private items: nothing else notices that an item was renamed.
fn check_documentation() -> Result<()> {
    let args = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    let flags = "-D rustdoc::broken_intra_doc_links -A rustdoc::private_intra_doc_links";
    step::run("documentation", step::cargo(&args).env("RUSTDOCFLAGS", flags))
}

/// Compiles the fuzz targets, which are a workspace of their own, without libFuzzer, which needs a C++ compiler.
fn check_fuzz_targets() -> Result<()> {
    let mut check = step::cargo(&["check", "--quiet", "--locked", "--bins", "--manifest-path", "fuzz/Cargo.toml"]);
    check.env("CARGO_TARGET_DIR", step::target_dir()).env("CUSTOM_LIBFUZZER_PATH", "/unused/libfuzzer.a");
    step::run("fuzz targets", &mut check)
}

/// Runs the tests that match. Cases of the conformance suite are selected by `cargo xtask conformance`.
fn run_matching(filter: &str, path: &OsStr, timings: &mut Timings) -> Result<()> {
    timings.take("build", build)?;
    let mut tests = step::cargo(&["test", "--workspace", "--no-fail-fast", filter]);
    tests.env("PATH", path).env("PODIUM_IMAGE_STORE", image_store());
    timings.take("tests", || failed_tests::run("tests that match", &mut tests))
}

/// Builds the whole workspace, also for a few tests: another selection of packages changes the features of dependencies,
/// which are then built again.
fn build() -> Result<()> {
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))
}

/// Durations of the steps.
#[derive(Default)]
struct Timings(Vec<(&'static str, Duration)>);

impl Timings {
    fn take<T>(&mut self, step: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        self.0.push((step, start.elapsed()));
        result
    }

    fn print(&self) {
        for (step, took) in &self.0 {
            println!("==> {:>5} s  {step}", took.as_secs());
        }
        let whole: Duration = self.0.iter().map(|(_, took)| *took).sum();
        println!("==> {:>5} s  total", whole.as_secs());
    }
}
