//! End-to-end tests: the `podium` binary with real containers, driven by `kubectl` and client libraries.
//!
//! Most tests share one cluster and have a namespace each. Tests that kill or reconfigure Podium start their own.
//! The harness is our own (libtest-mimic), because a shared cluster must be torn down after the last test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::print_stderr, reason = "the seed of a failed test must be printed")]

mod admission;
mod api_aggregation;
mod api_proxy;
mod audit;
mod authorization;
mod autoscaling;
mod certificate_signing_requests;
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
mod env_files;
mod ephemeral_containers;
mod example_states;
mod examples;
mod external_host;
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
mod taint_eviction;
mod termination;
mod test_users;
mod untrusted_files;
mod version_skew;
mod volumes;
mod webhooks;
mod workload;

use libtest_mimic::Arguments;
use retry::Test;
use std::{
    sync::{Arc, OnceLock, mpsc},
    time::Duration,
};
use tests::Cluster;

/// A test on the shared cluster: name and function.
pub type Shared = (&'static str, fn(&Cluster));
/// A test that starts its own clusters: name and function.
pub type OwnCluster = (&'static str, fn());

/// Test timeout, more than twice the duration of the longest test.
const TEST_TIMEOUT: Duration = Duration::from_secs(900);

/// The shared cluster, started by the first test that needs it.
type SharedCluster = Arc<OnceLock<Cluster>>;

fn main() {
    let mut arguments = Arguments::from_args();
    // Two cores run the cluster, its containers and the tests: more parallel tests only delay each other.
    arguments.test_threads.get_or_insert(3);
    let lazy = SharedCluster::default();
    let shared = [
        authorization::TESTS,
        api_aggregation::TESTS,
        autoscaling::TESTS,
        certificate_signing_requests::TESTS,
        persistent_volume_claims::TESTS,
        pod_affinity::TESTS,
        readiness_gates::TESTS,
        container_config::TESTS,
        cron_jobs::TESTS,
        daemon_sets::TESTS,
        ephemeral_containers::TESTS,
        deployments::TESTS,
        disruption_budgets::TESTS,
        endpoint_slices::TESTS,
        env_files::TESTS,
        example_states::TESTS,
        examples::TESTS,
        container_exits::TESTS,
        extreme_values::TESTS,
        failures::TESTS,
        helm::TESTS,
        priority_and_fairness::TESTS,
        lifecycle_hooks::TESTS,
        image_pulls::TESTS,
        protection_finalizers::TESTS,
        init_containers::TESTS,
        jobs::TESTS,
        pod_updates::TESTS,
        garbage_collector::TESTS,
        podium_commands::TESTS,
        scheduler_preemption::TESTS,
        probe_protocols::TESTS,
        probes::TESTS,
        python_client::TESTS,
        api_proxy::TESTS,
        admission::TESTS,
        custom_resources::TESTS,
        replica_sets::TESTS,
        replication_controllers::TESTS,
        resize::TESTS,
        runtime_class::TESTS,
        kube_rs::TESTS,
        kubectl::TESTS,
        kustomize::TESTS,
        pod_lifecycle::TESTS,
        namespaces::TESTS,
        node::TESTS,
        container_restart_rules::TESTS,
        scheduling::TESTS,
        security::TESTS,
        service_proxy::TESTS,
        service_env::TESTS,
        sidecars::TESTS,
        version_skew::TESTS,
        stateful_sets::TESTS,
        streams::TESTS,
        resilience::TESTS,
        termination::TESTS,
        service_account_tokens::TESTS,
        volumes::TESTS,
        webhooks::TESTS,
    ];
    let alone = [
        persistent_volume_claims::ALONE,
        podium_up::TESTS,
        control_plane_isolation::TESTS,
        data_directories::TESTS,
        encryption::TESTS,
        container_exits::ALONE,
        failures::ALONE,
        malformed_streams::TESTS,
        image_gc::TESTS,
        admission::ALONE,
        audit::TESTS,
        component_identities::TESTS,
        image_pulls::ALONE,
        oci_runtimes::ALONE,
        podium_commands::ALONE,
        jobs::ALONE,
        crash_recovery::TESTS,
        kubectl::ALONE,
        pod_gc::TESTS,
        network_policies::ALONE,
        node::ALONE,
        kubelet_config::TESTS,
        kubelet_server::TESTS,
        node_shutdown::TESTS,
        kubelet_preemption::TESTS,
        podium_restart::TESTS,
        container_restart_rules::ALONE,
        podium_run::TESTS,
        scheduling::ALONE,
        security::ALONE,
        service_proxy::ALONE,
        static_pods::TESTS,
        stop_signals::TESTS,
        store_quota::TESTS,
        resilience::ALONE,
        taint_eviction::TESTS,
        termination::ALONE,
        untrusted_files::ALONE,
        kubectl_top::TESTS,
    ];
    let shared = shared
        .into_iter()
        .chain(kubectl_commands::TESTS.iter().copied())
        .flatten()
        .map(|test| with_shared_cluster(*test, &lazy));
    let alone = alone.into_iter().flatten().map(|(name, test)| Test { name, body: Arc::new(test) });
    let code = retry::run(&arguments, shared.chain(alone).collect());
    drop(lazy);
    std::process::exit(code.into());
}

fn with_shared_cluster((name, test): Shared, lazy: &SharedCluster) -> Test {
    let lazy = Arc::clone(lazy);
    let body = move || {
        let cluster = lazy.get_or_init(|| Cluster::start(&[]));
        test(cluster);
        // A failed test skips this; the next test on the thread does it.
        cluster.delete_namespaces();
    };
    Test { name, body: Arc::new(body) }
}

/// Aborts the test run with the test's name when a test exceeds [`TEST_TIMEOUT`].
struct Watchdog(#[expect(dead_code, reason = "dropped when the test ends")] mpsc::Sender<()>);

impl Watchdog {
    fn new(name: &'static str) -> Self {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            if end.recv_timeout(TEST_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test {name:?} did not end within {TEST_TIMEOUT:?}");
                std::process::exit(101);
            }
        });
        Self(ended)
    }
}
