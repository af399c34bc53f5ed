//! Every chore of a developer: `cargo xtask setup|demo|test|bench`.
//!
//! No shell scripts: what CI runs is what a person runs.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]

mod bench;
mod check;
mod demo;
mod setup;
mod step;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Every chore of a Podium developer")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what Podium, its tests and the demo need, as far as it is missing.
    Setup,
    /// Boot Podium, run real Pods, and show their lives.
    Demo,
    /// Everything that must hold: format, lints, unit tests, end-to-end tests.
    Test {
        /// Only tests whose name contains this; skips format and lints.
        filter: Option<String>,
    },
    /// Measure Podium in a release build and print the numbers of docs/performance.md.
    Bench {
        /// Only these measurements.
        names: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Setup => setup::run().map(drop),
        Task::Demo => demo::run(),
        Task::Test { filter } => check::run(filter.as_deref()),
        Task::Bench { names } => bench::run(&names),
    }
}
