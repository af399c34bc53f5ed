//! End-to-end tests: the `podium` binary with real containers, driven by `kubectl` and client libraries.
//!
//! Most tests share one cluster and have a namespace each. Tests that kill or reconfigure Podium start their own. The
//! attribute `#[e2e_test("NAME")]` registers a test; the function's parameter decides whether it shares the cluster. Some of
//! the tests that share it run once more on an external container runtime (`external_runtime.rs`).
//! The harness is our own (libtest-mimic), because a shared cluster must be torn down after the last test.
#![forbid(unsafe_code)]
#![deny(dead_code, reason = "a test without `#[e2e_test]` is not registered")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::print_stderr, clippy::print_stdout, reason = "the seed of a failed test must be printed")]

mod admission;
mod api_aggregation;
mod api_proxy;
mod audit;
mod authorization;
mod autoscaling;
mod certificate_signing_requests;
mod cni;
mod component_identities;
mod container_config;
mod container_exits;
mod container_restart_rules;
mod control_plane_isolation;
mod crash_recovery;
mod cron_jobs;
mod custom_resources;
mod daemon_sets;
mod data_directories;
mod deployments;
mod disruption_budgets;
mod encryption;
mod endpoint_slices;
mod engine;
mod engine_apparmor;
mod engine_attacks;
mod engine_exe_attacks;
mod engine_exec_races;
mod engine_stress;
mod env_files;
mod ephemeral_containers;
mod example_states;
mod examples;
mod external_host;
mod external_runtime;
mod extreme_values;
mod failures;
mod garbage_collector;
mod helm;
mod image_gc;
mod image_pulls;
mod init_containers;
mod jobs;
mod kube_rs;
mod kubectl;
mod kubectl_commands;
mod kubectl_top;
mod kubelet_config;
mod kubelet_preemption;
mod kubelet_server;
mod kustomize;
mod lifecycle_hooks;
mod log_lines;
mod lost_checkpoints;
mod malformed_streams;
mod namespaces;
mod network_policies;
mod node;
mod node_shutdown;
mod oci_runtimes;
mod persistent_volume_claims;
mod pod_affinity;
mod pod_gc;
mod pod_lifecycle;
mod pod_updates;
mod podium_commands;
mod podium_restart;
mod podium_run;
mod podium_up;
mod priority_and_fairness;
mod probe_protocols;
mod probes;
mod protection_finalizers;
mod python_client;
mod readiness_gates;
mod replica_sets;
mod replication_controllers;
mod resilience;
mod resize;
mod retry;
mod runtime_class;
mod scheduler_preemption;
mod scheduling;
mod security;
mod service_account_tokens;
mod service_env;
mod service_proxy;
mod sidecars;
mod stateful_sets;
mod static_pods;
mod stop_signals;
mod store_quota;
mod streams;
mod sub_path_races;
mod systemd_cgroups;
mod taint_eviction;
mod termination;
mod test_users;
mod untrusted_files;
mod user_namespaces;
mod version_skew;
mod volumes;
mod webhooks;
mod workload;

use external_runtime::ExternalCluster;
use libtest_mimic::Arguments;
use retry::Test;
use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};
use tests::{Cluster, E2eTest, TestBody};

/// Test timeout, more than twice the duration of the longest test.
const TEST_TIMEOUT: Duration = Duration::from_secs(900);

/// The shared clusters, each started by the first test that needs it.
#[derive(Default)]
struct SharedClusters {
    engine: OnceLock<Cluster>,
    external: OnceLock<ExternalCluster>,
}

fn main() {
    let mut arguments = Arguments::from_args();
    // Two cores run the cluster, its containers and the tests: more parallel tests only delay each other.
    arguments.test_threads.get_or_insert(3);
    let clusters = Arc::new(SharedClusters::default());
    let selection = selection();
    let tests = E2eTest::all().into_iter().map(|test| runnable(test, &clusters)).chain(external_variants(&clusters));
    let selected = tests.filter(|test| selection.as_ref().is_none_or(|s| is_selected(&test.name, s))).collect();
    let code = retry::run(&arguments, selected);
    drop(clusters);
    std::process::exit(code.into());
}

/// Variable with the path of a file that selects tests by a line each: `=NAME`, or a part of the names. The harness itself
/// has only one filter.
const SELECTION: &str = "PODIUM_E2E_TESTS";

fn selection() -> Option<String> {
    std::env::var_os(SELECTION).map(|path| std::fs::read_to_string(path).expect("a list of tests"))
}

fn is_selected(name: &str, selection: &str) -> bool {
    let mut lines = selection.lines().filter(|line| !line.is_empty());
    lines.any(|line| line.strip_prefix('=').map_or_else(|| name.contains(line), |exact| exact == name))
}

/// Returns a test with the cluster that it needs.
fn runnable(test: &'static E2eTest, clusters: &Arc<SharedClusters>) -> Test {
    let body: Arc<dyn Fn() + Send + Sync> = match test.body {
        TestBody::OwnCluster(function) => Arc::new(function),
        TestBody::SharedCluster(function) => {
            let clusters = Arc::clone(clusters);
            Arc::new(move || run_on(clusters.engine.get_or_init(|| Cluster::start(&[])), function))
        }
    };
    Test { name: test.name.to_owned(), body }
}

/// Returns the tests that run on an external container runtime, too.
fn external_variants(clusters: &Arc<SharedClusters>) -> impl Iterator<Item = Test> {
    external_runtime::TESTS.iter().map(move |name| {
        let test = E2eTest::all().into_iter().find(|test| test.name == *name);
        let Some(TestBody::SharedCluster(function)) = test.map(|test| test.body) else {
            panic!("no test on the shared cluster has the name {name:?}");
        };
        let clusters = Arc::clone(clusters);
        let body = move || run_on(clusters.external.get_or_init(ExternalCluster::start).cluster(), function);
        Test { name: format!("{name}, on an external runtime"), body: Arc::new(body) }
    })
}

fn run_on(cluster: &Cluster, function: fn(&Cluster)) {
    function(cluster);
    // A failed test skips this; the next test on the thread does it.
    cluster.delete_namespaces();
}

/// Aborts the test run with the test's name when a test exceeds [`TEST_TIMEOUT`].
struct Watchdog(#[expect(dead_code, reason = "dropped when the test ends")] mpsc::Sender<()>);

impl Watchdog {
    fn new(name: String) -> Self {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            if end.recv_timeout(tests::scaled(TEST_TIMEOUT)) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test {name:?} did not end within {TEST_TIMEOUT:?}");
                std::process::exit(101);
            }
        });
        Self(ended)
    }
}
