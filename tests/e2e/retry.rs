//! Retries of failed tests: in a run of everything, a test that failed runs once more, alone, at the end.
//!
//! A test that then passes is flaky: it is reported with what it said, and does not fail the run. Several of them do.

use libtest_mimic::{Arguments, Completion, Conclusion, Trial};
use parking_lot::Mutex;
use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

/// `cargo xtask test` sets it for a run of everything: retries are on, and this file gets a line `flaky: NAME` for each flaky
/// test. Without it a failed test is a failed test.
const FLAKY_REPORT: &str = "PODIUM_FLAKY_REPORT";

/// More failed tests than this in one run are not retried: they share a cause.
const MAX_RETRIED: usize = 3;

/// A test with everything it needs; it fails by panicking.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) body: Arc<dyn Fn() + Send + Sync>,
}

/// A test that failed, and its message.
struct Failure {
    test: Test,
    message: String,
}

/// Runs all tests that the arguments select, and gives the exit code.
pub(crate) fn run(arguments: &Arguments, tests: Vec<Test>) -> u8 {
    let report = std::env::var_os(FLAKY_REPORT).map(PathBuf::from);
    let Some(report) = report else { return run_once(arguments, tests) };
    let failures = Arc::new(Mutex::new(Vec::new()));
    let first = libtest_mimic::run(arguments, tests.into_iter().map(|test| deferring(test, &failures)).collect());
    let failures = std::mem::take(&mut *failures.lock());
    if first.has_failed() || failures.len() > MAX_RETRIED {
        for Failure { test, message } in &failures {
            eprintln!("failed: {}\n{message}", test.name);
        }
        return 101;
    }
    let retried = Arguments { test_threads: Some(1), ..Arguments::default() };
    if !failures.is_empty() && run_once(&retried, failures.iter().map(|failure| failure.test.clone()).collect()) != 0 {
        return 101;
    }
    let mut lines = String::new();
    for Failure { test, message } in &failures {
        eprintln!("flaky: {}\n{message}", test.name);
        let _ = writeln!(lines, "flaky: {}", test.name);
    }
    std::fs::write(report, lines).expect("the report of flaky tests");
    0
}

fn run_once(arguments: &Arguments, tests: Vec<Test>) -> u8 {
    let trials = tests.into_iter().map(|test| Trial::test(test.name, move || attempt(&test).map_err(Into::into)));
    let conclusion: Conclusion = libtest_mimic::run(arguments, trials.collect());
    if conclusion.has_failed() { 101 } else { 0 }
}

/// A trial whose failure is recorded for a retry, and shown as ignored so far.
fn deferring(test: Test, failures: &Arc<Mutex<Vec<Failure>>>) -> Trial {
    let failures = Arc::clone(failures);
    Trial::ignorable_test(test.name, move || match attempt(&test) {
        Ok(()) => Ok(Completion::Completed),
        Err(message) => {
            failures.lock().push(Failure { test, message });
            Ok(Completion::ignored_with("FAILED, and runs once more at the end"))
        }
    })
}

fn attempt(test: &Test) -> Result<(), String> {
    let _watched = super::Watched::new(test.name);
    catch_unwind(AssertUnwindSafe(|| (test.body)())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
    })
}
