//! `cargo xtask test`: everything that must hold.

use crate::{conformance, fuzz, setup, step};
use anyhow::Result;
use std::{
    ffi::OsStr,
    time::{Duration, Instant},
};

/// How long the API is fuzzed, from the same seed always: enough for each operation to be tried a few times.
const FUZZED: (u64, u64) = (20, 1);

/// Tells the end-to-end tests to retry what failed, and where to report what was flaky: see `tests/e2e/retry.rs`.
const FLAKY_REPORT: &str = "PODIUM_FLAKY_REPORT";

/// Runs all checks, or only the tests that match. Prints what each step took.
///
/// # Errors
/// At the first check that fails.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let mut timings = Timings::default();
    let tools = timings.take("setup", setup::run_for_tests);
    let result = tools.map(|tools| setup::path_with(&tools)).and_then(|path| match filter {
        Some(filter) => matching(filter, &path, &mut timings),
        None => everything(&path, &mut timings),
    });
    timings.print();
    result
}

fn everything(path: &OsStr, timings: &mut Timings) -> Result<()> {
    timings.take("format", || step::run("format", &mut step::cargo(&["fmt", "--all", "--check"])))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    timings.take("lints", || step::run("lints", &mut step::cargo(&clippy)))?;
    timings.take("build", build)?;
    let report = step::target_dir().join("flaky-tests.txt");
    std::fs::write(&report, "")?;
    let mut tests = step::cargo(&["test", "--workspace", "--no-fail-fast"]);
    tests.env("PATH", path).env(FLAKY_REPORT, &report);
    timings.take("tests", || step::run("tests, the end-to-end ones with real containers", &mut tests))?;
    timings.take("conformance", || conformance::of_podium(None, path.to_owned()))?;
    let (seconds, seed) = FUZZED;
    timings.take("API fuzzer", || fuzz::of_podium(seconds, seed, None, path.to_owned()))?;
    // A flaky test is a fault: it is named again where it is not overlooked.
    print!("{}", std::fs::read_to_string(report)?);
    Ok(())
}

/// A filter is for tests: cases of the conformance suite are chosen by `cargo xtask conformance`.
fn matching(filter: &str, path: &OsStr, timings: &mut Timings) -> Result<()> {
    timings.take("build", build)?;
    let mut tests = step::cargo(&["test", "--workspace", "--no-fail-fast", filter]);
    timings.take("tests", || step::run("tests that match", tests.env("PATH", path)))
}

/// All of it at once, also for a few tests: another selection means other features of the dependencies, and to build those
/// again.
fn build() -> Result<()> {
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))
}

/// How long each step took.
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
        println!("==> {:>5} s  in all", whole.as_secs());
    }
}
