//! Every chore of a developer: `cargo xtask setup|demo|test|conformance|fuzz|bench`.
//!
//! No shell scripts: what CI runs is what a person runs.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a command-line program talks to people on stdout")]

mod bench;
mod check;
mod conformance;
mod demo;
mod enum_facts;
mod fuzz;
mod openapi_facts;
mod openapi_lines;
mod protobuf_facts;
mod server;
mod setup;
mod step;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

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
    /// Everything that must hold: format, lints, unit tests, end-to-end tests, the conformance suite.
    Test {
        /// Only tests whose name contains this; skips format and lints.
        filter: Option<String>,
    },
    /// Ask a server whether it does what Kubernetes documents about its API.
    Conformance {
        /// The server; without it, the Podium of this checkout is booted, and removed in the end.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Only cases whose name contains this.
        filter: Option<String>,
    },
    /// Send what no client should send: to a Podium of its own, or to one part of the code.
    Fuzz {
        /// One of the targets below `fuzz/`; without it, the API as its OpenAPI documents say.
        target: Option<String>,
        /// How long; 15 without a target, else 5.
        #[arg(long)]
        minutes: Option<u64>,
        /// Where chance begins.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only operations whose method and path contain this.
        #[arg(long)]
        only: Option<String>,
    },
    /// Measure Podium in a release build and print the numbers of docs/performance.md.
    Bench {
        /// Only these measurements; `leak [--pods N] [--minutes M]` looks for what Pods leave behind instead.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        names: Vec<String>,
    },
    /// Write the table of the protobuf messages anew, from checkouts at one tag of a Kubernetes release.
    ProtobufFacts {
        /// A checkout of kubernetes/api.
        #[arg(long)]
        api: PathBuf,
        /// A checkout of kubernetes/apimachinery.
        #[arg(long)]
        apimachinery: PathBuf,
        /// Where the table goes.
        #[arg(long, default_value = "crates/server/src/protobuf/messages.txt")]
        to: PathBuf,
    },
    /// Write the table of the fields with few values anew, from a checkout of the same.
    EnumFacts {
        /// A checkout of kubernetes/api.
        #[arg(long)]
        api: PathBuf,
        /// Where the table goes.
        #[arg(long, default_value = "crates/server/src/openapi/enums.txt")]
        to: PathBuf,
    },
    /// Write what upstream's OpenAPI document says anew, from `api/openapi-spec/swagger.json` of a Kubernetes release.
    OpenapiFacts {
        /// The document.
        #[arg(long)]
        document: PathBuf,
        /// Where the facts go.
        #[arg(long, default_value = "crates/server/src/openapi")]
        to: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().task {
        Task::Setup => setup::run_for_tests().map(drop),
        Task::Demo => demo::run(),
        Task::Test { filter } => check::run(filter.as_deref()),
        Task::Conformance { kubeconfig, filter } => conformance::run(kubeconfig.as_deref(), filter.as_deref()),
        Task::Fuzz { target: Some(target), minutes, seed, .. } => fuzz::target(&target, minutes.unwrap_or(5), seed),
        Task::Fuzz { target: None, minutes, seed, only } => fuzz::api(minutes.unwrap_or(15), seed, only.as_deref()),
        Task::Bench { names } => bench::run(&names),
        Task::EnumFacts { api, to } => enum_facts::run(&api, &to),
        Task::OpenapiFacts { document, to } => openapi_facts::run(&document, &to),
        Task::ProtobufFacts { api, apimachinery, to } => protobuf_facts::run(&api, &apimachinery, &to),
    }
}
