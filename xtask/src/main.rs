//! Development tasks: `cargo xtask setup|demo|test|vm-test|conformance|fuzz|bench|generate`.
//!
//! CI and developers run the same tasks; there are no shell scripts.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program talks to people")]

mod bench;
mod check;
mod conformance;
mod demo;
mod disk;
mod enum_table;
mod failed_tests;
mod fuzz;
mod generate;
mod go_types;
mod json_types;
mod openapi_lines;
mod openapi_tables;
mod protobuf_table;
mod server;
mod setup;
mod step;
mod vm_test;

use clap::{Parser, Subcommand};
use std::{path::PathBuf, process::ExitCode};

#[derive(Parser)]
#[command(about = "Development tasks of Podium")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install missing dependencies of Podium, its tests and the demo.
    Setup,
    /// Start Podium, run real Pods, and show their lifecycle.
    Demo,
    /// Run all checks: format, lints, unit tests, end-to-end tests, the conformance suite.
    Test {
        /// Only tests whose name contains this; skips format and lints.
        filter: Option<String>,
    },
    /// Run end-to-end tests with Podium's own engine in a virtual machine with cgroup v2.
    VmTest {
        /// All end-to-end tests whose name contains this. Default: those about cgroups.
        filter: Option<String>,
    },
    /// Run the API conformance suite against a server.
    Conformance {
        /// Kubeconfig of the server. Default: a temporary Podium of this checkout.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Only cases whose name contains this.
        filter: Option<String>,
    },
    /// Fuzz the API of a temporary Podium, or one fuzz target.
    Fuzz {
        /// A target of `fuzz/`. Default: the API by its OpenAPI documents.
        target: Option<String>,
        /// Duration in minutes. Default: 15 without a target, else 5.
        #[arg(long)]
        minutes: Option<u64>,
        /// Seed of the random generator.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only operations whose method and path contain this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Measure Podium in a release build and print the numbers of docs/performance.md.
    Bench {
        /// Only these measurements; `pods --runtime engine,containerd` compares container runtimes, `leak [--pods N]
        /// [--minutes M]` measures resource leaks of Pods instead.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        names: Vec<String>,
    },
    /// Regenerate the tables of type facts from sources of one Kubernetes release.
    Generate {
        /// `staging/src/k8s.io` of kubernetes/kubernetes, or a directory with checkouts of the repositories that are published
        /// from it: api, apimachinery, apiextensions-apiserver, kube-aggregator and metrics.
        #[arg(long)]
        staging: PathBuf,
        /// `api/openapi-spec/swagger.json` of kubernetes/kubernetes. Default: keep the OpenAPI tables.
        #[arg(long)]
        document: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the backtrace that `Debug` of an error has: it would push what failed out of sight.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Setup => setup::run_for_tests().map(drop),
        Task::Demo => demo::run(),
        Task::Test { filter } => check::run(filter.as_deref()),
        Task::VmTest { filter } => vm_test::run(filter.as_deref()),
        Task::Conformance { kubeconfig, filter } => conformance::run(kubeconfig.as_deref(), filter.as_deref()),
        Task::Fuzz { target: Some(target), minutes, seed, .. } => fuzz::target(&target, minutes.unwrap_or(5), seed),
        Task::Fuzz { target: None, minutes, seed, only } => fuzz::api(minutes.unwrap_or(15), seed, only.as_deref()),
        Task::Bench { names } => bench::run(&names),
        Task::Generate { staging, document } => generate::run(&staging, document.as_deref()),
    }
}
