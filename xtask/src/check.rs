//! `cargo xtask test`: everything that must hold.

use crate::{conformance, fuzz, setup, step};
use anyhow::Result;

/// How long the API is fuzzed, from the same seed always: enough for each operation to be tried a few times.
const FUZZED: (u64, u64) = (20, 1);

/// Runs all checks, or only the tests that match.
///
/// # Errors
/// At the first check that fails.
pub(crate) fn run(filter: Option<&str>) -> Result<()> {
    let path = setup::path_with(&setup::run_for_tests()?);
    if filter.is_none() {
        step::run("format", &mut step::cargo(&["fmt", "--all", "--check"]))?;
        step::run(
            "lints",
            &mut step::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        )?;
    }
    // All of it at once, also for a few tests: another selection means other features of the dependencies, and to build
    // those again.
    step::run("build", &mut step::cargo(&["build", "--workspace", "--all-targets"]))?;
    let mut args = vec!["test", "--workspace", "--no-fail-fast"];
    args.extend(filter);
    step::run("tests, the end-to-end ones with real containers", step::cargo(&args).env("PATH", &path))?;
    // A filter is for tests: cases are chosen by `cargo xtask conformance`.
    if filter.is_some() {
        return Ok(());
    }
    conformance::of_podium(None, path.clone())?;
    let (seconds, seed) = FUZZED;
    fuzz::of_podium(seconds, seed, None, path)
}
