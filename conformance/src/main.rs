//! Asks a server, any that a kubeconfig leads to, whether it does what Kubernetes documents.
//!
//! The cases are data: `cases/*.yaml`, and `kinds/*.yaml` for what is the same for every built-in kind.
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

/// Cases wait for the server most of their time: there are more at once than cores.
const AT_ONCE: usize = 16;
/// How long is waited in a case that is known to fail: long enough to see that it passes by now.
const IMPATIENT: Duration = Duration::from_secs(3);

#[derive(Parser)]
#[command(about = "What Kubernetes documents about its API, asked of any server over HTTP")]
struct Cli {
    /// The server and who asks it; that user must be allowed everything.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Where the cases are.
    #[arg(long, default_value = env!("CARGO_MANIFEST_DIR"))]
    dir: PathBuf,
    /// Known failures count as failures too.
    #[arg(long)]
    strict: bool,
    /// Only what the cases are called.
    #[arg(long)]
    list: bool,
    /// How many cases run at once.
    #[arg(long, default_value_t = AT_ONCE)]
    test_threads: usize,
    /// Only cases whose name contains this.
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
    let asked = runtime.block_on(Client::of(&cli.kubeconfig))?;
    let run = format!("conf-{}", run_name()?);
    let trials = cases.into_iter().enumerate().map(|(i, (name, case))| {
        let (runtime, client, known) = (Arc::clone(&runtime), asked.clone(), known.get(&name).cloned());
        let prefix = format!("{run}-{i}");
        // What is known not to come is not waited for at length.
        let patience = if known.is_some() { IMPATIENT } else { Duration::MAX };
        Trial::ignorable_test(name, move || {
            judge(runtime.block_on(run::case(&client, &case, &prefix, patience)), known)
        })
    });
    let mut arguments = Arguments::from_iter(["conformance"]);
    arguments.filter = cli.filter;
    arguments.list = cli.list;
    arguments.test_threads = Some(cli.test_threads);
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if !cli.list {
        runtime.block_on(run::gone(&asked, &run))?;
    }
    Ok(conclusion.exit_code())
}

/// All cases by their names.
fn load(dir: &Path) -> Result<Vec<(String, Case)>> {
    let mut cases = kinds::load(&dir.join("kinds"))?;
    cases.extend(case::load(&dir.join("cases"))?);
    let named: Vec<_> = cases.into_iter().map(|(section, case)| (format!("{section}: {}", case.name), case)).collect();
    let mut seen = BTreeSet::new();
    for (name, _) in &named {
        if !seen.insert(name) {
            bail!("two cases are called {name:?}");
        }
    }
    Ok(named)
}

/// A known failure is told as such, and one that fails no more must be taken off the list.
fn judge(outcome: Result<()>, known: Option<String>) -> Result<Completion, Failed> {
    match (outcome, known) {
        (Ok(()), None) => Ok(Completion::Completed),
        (Err(_), Some(reason)) => Ok(Completion::ignored_with(format!("known to fail: {reason}"))),
        (Ok(()), Some(_)) => Err("it passes now: take it off known-failures.txt".into()),
        (Err(error), None) => Err(format!("{error:#}").into()),
    }
}

/// What the names of this run begin with, so that runs against one server do not meet.
fn run_name() -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock before 1970")?;
    Ok(format!("{:x}", now.as_millis() & 0xff_ffff_ffff))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{judge, known_failures, load};
    use anyhow::anyhow;
    use libtest_mimic::Completion;
    use std::path::Path;

    #[test]
    fn every_case_can_be_read_and_every_known_failure_is_one() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let cases = load(dir).unwrap();
        assert!(cases.len() > 800, "{}", cases.len());
        let names: Vec<String> = cases.into_iter().map(|(name, _)| name).collect();
        known_failures::load(&dir.join("known-failures.txt"), &names).unwrap();
    }

    #[test]
    fn a_known_failure_is_told_and_one_that_passes_is_a_failure() {
        let known = || Some("not done".to_owned());
        assert!(matches!(judge(Ok(()), None), Ok(Completion::Completed)));
        assert!(matches!(judge(Err(anyhow!("no")), known()), Ok(Completion::Ignored { .. })));
        assert!(judge(Ok(()), known()).is_err());
        assert!(judge(Err(anyhow!("no")), None).is_err());
    }
}
