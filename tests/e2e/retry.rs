//! Retries of failed tests: in a run of all tests, a failed test runs once more at the end, alone.
//!
//! A test that then passes is flaky: it is reported with its failure message, and does not fail the run. More than
//! [`MAX_RETRIED`] failed tests fail the run.

use libtest_mimic::{Arguments, Completion, Conclusion, Trial};
use parking_lot::Mutex;
use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

/// Path of the report, which gets a line `flaky: NAME` for each flaky test. `cargo xtask test` sets it for a run of all
/// tests. Without it failed tests are not retried.
const FLAKY_REPORT: &str = "PODIUM_FLAKY_REPORT";

/// Most failed tests that are retried. More of them are likely to share a cause.
const MAX_RETRIED: usize = 5;

/// A test, which fails by panicking.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) body: Arc<dyn Fn() + Send + Sync>,
}

/// A failed test and its message.
struct Failure {
    test: Test,
    message: String,
}

/// Runs the selected tests and returns the exit code.
pub(crate) fn run(arguments: &Arguments, tests: Vec<Test>) -> u8 {
    let report = std::env::var_os(FLAKY_REPORT).map(PathBuf::from);
    let Some(report) = report else { return run_once(arguments, tests) };
    let failures = Arc::new(Mutex::new(Vec::new()));
    let first = libtest_mimic::run(arguments, tests.into_iter().map(|test| deferred_trial(test, &failures)).collect());
    let failures = std::mem::take(&mut *failures.lock());
    let retried = Arguments { test_threads: Some(1), ..Arguments::default() };
    let tests = || failures.iter().map(|failure| failure.test.clone()).collect();
    if first.has_failed() || failures.len() > MAX_RETRIED || (!failures.is_empty() && run_once(&retried, tests()) != 0)
    {
        print_failures(&failures);
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

/// Prints failures as test harnesses do: `cargo xtask test` repeats what it finds in this form at its end.
fn print_failures(failures: &[Failure]) {
    println!("failures:");
    for Failure { test, message } in failures {
        println!("\n---- {}, first run ----\n{message}", test.name);
    }
    println!("\ntest result: FAILED. {} failed in the first run", failures.len());
}

fn run_once(arguments: &Arguments, tests: Vec<Test>) -> u8 {
    let trials =
        tests.into_iter().map(|test| Trial::test(test.name.clone(), move || attempt(&test).map_err(Into::into)));
    let conclusion: Conclusion = libtest_mimic::run(arguments, trials.collect());
    if conclusion.has_failed() { 101 } else { 0 }
}

/// Returns a trial that records a failure for a retry, and is shown as ignored until then.
fn deferred_trial(test: Test, failures: &Arc<Mutex<Vec<Failure>>>) -> Trial {
    let failures = Arc::clone(failures);
    Trial::ignorable_test(test.name.clone(), move || match attempt(&test) {
        Ok(()) => Ok(Completion::Completed),
        Err(message) => {
            failures.lock().push(Failure { test, message });
            Ok(Completion::ignored_with("FAILED, and runs once more at the end"))
        }
    })
}

fn attempt(test: &Test) -> Result<(), String> {
    let _watchdog = super::Watchdog::new(test.name.clone());
    catch_unwind(AssertUnwindSafe(|| (test.body)())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
    })
}
