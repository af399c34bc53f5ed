//! Conformance suite for Kubernetes API servers: checks a server against Kubernetes' documentation.
//!
//! The cases are data: `cases/*.yaml`, and `kinds/*.yaml` for common cases of built-in kinds.
#![forbid(unsafe_code)]

mod case;
mod client;
mod custom_kind;
mod events;
mod kinds;
mod known_failures;
mod matching;
mod run;
mod variables;

use anyhow::{Context, Result, bail};
use case::Case;
use clap::Parser;
use client::Client;
use known_failures::KnownFailures;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::runtime::Runtime;

/// Default number of parallel cases. It exceeds the number of cores, because cases mostly wait for the server.
const DEFAULT_THREADS: usize = 16;
/// Longest wait in a known failure: enough to notice that it passes.
const KNOWN_FAILURE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Parser)]
#[command(about = "Conformance suite for Kubernetes API servers")]
struct Cli {
    /// Kubeconfig of the server. The user must be a cluster administrator.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// The directory of the cases.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    dir: PathBuf,
    /// Treat known failures as failures.
    #[arg(long)]
    strict: bool,
    /// Only list the names of the cases.
    #[arg(long)]
    list: bool,
    /// Number of parallel cases.
    #[arg(long, default_value_t = DEFAULT_THREADS)]
    test_threads: usize,
    /// Run only cases whose name contains this.
    filter: Option<String>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let cases = load(&cli.dir)?;
    let names: Vec<String> = cases.iter().map(|(name, _)| name.clone()).collect();
    let known = if cli.strict {
        KnownFailures::default()
    } else {
        known_failures::load(&cli.dir.join("known-failures.txt"), &names)?
    };
    let runtime = Arc::new(Runtime::new()?);
    let client = runtime.block_on(Client::of(&cli.kubeconfig))?;
    let run = format!("conf-{}", run_name()?);
    let trials = cases.into_iter().enumerate().map(|(i, (name, case))| {
        let (runtime, client, known) = (Arc::clone(&runtime), client.clone(), known.get(&name).cloned());
        let prefix = format!("{run}-{i}");
        // A known failure does not use its whole timeouts.
        let timeout = if known.is_some() { KNOWN_FAILURE_TIMEOUT } else { Duration::MAX };
        Trial::ignorable_test(name, move || {
            evaluate(runtime.block_on(run::case(&client, &case, &prefix, timeout)), known)
        })
    });
    let mut arguments = Arguments::from_iter(["conformance"]);
    arguments.filter = cli.filter;
    arguments.list = cli.list;
    arguments.test_threads = Some(cli.test_threads);
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if !cli.list {
        runtime.block_on(run::wait_until_deleted(&client, &run))?;
    }
    Ok(conclusion.exit_code())
}

/// Loads all cases with their names.
fn load(dir: &Path) -> Result<Vec<(String, Case)>> {
    let mut cases = kinds::load(&dir.join("kinds"))?;
    cases.extend(case::load(&dir.join("cases"))?);
    let named: Vec<_> = cases.into_iter().map(|(section, case)| (format!("{section}: {}", case.name), case)).collect();
    let mut seen = BTreeSet::new();
    for (name, _) in &named {
        if !seen.insert(name) {
            bail!("duplicate case name {name:?}");
        }
    }
    Ok(named)
}

/// Evaluates a result. A known failure is ignored with its reason; one that passes is an error.
fn evaluate(outcome: Result<()>, known: Option<String>) -> Result<Completion, Failed> {
    match (outcome, known) {
        (Ok(()), None) => Ok(Completion::Completed),
        (Err(_), Some(reason)) => Ok(Completion::ignored_with(format!("known to fail: {reason}"))),
        (Ok(()), Some(_)) => Err("the case passes: remove it from known-failures.txt".into()),
        (Err(error), None) => Err(format!("{error:#}").into()),
    }
}

/// Returns the name prefix of this run, which avoids conflicts between runs against one server.
fn run_name() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock before 1970")?;
    Ok(format!("{:x}", now.as_millis() & 0xff_ffff_ffff))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{evaluate, known_failures, load};
    use anyhow::anyhow;
    use libtest_mimic::Completion;
    use std::path::Path;

    #[test]
    fn all_cases_parse_and_known_failures_exist() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cases = load(dir).unwrap();
        assert!(cases.len() > 800, "{}", cases.len());
        let names: Vec<String> = cases.into_iter().map(|(name, _)| name).collect();
        known_failures::load(&dir.join("known-failures.txt"), &names).unwrap();
    }

    #[test]
    fn known_failure_is_ignored_and_fails_when_it_passes() {
        let known = || Some("not done".to_owned());
        assert!(matches!(evaluate(Ok(()), None), Ok(Completion::Completed)));
        assert!(matches!(evaluate(Err(anyhow!("no")), known()), Ok(Completion::Ignored { .. })));
        assert!(evaluate(Ok(()), known()).is_err());
        assert!(evaluate(Err(anyhow!("no")), None).is_err());
    }
}
