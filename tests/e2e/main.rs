//! The whole binary, driven from outside by `kubectl` and by client libraries, with real containers.
//!
//! Most tests share one cluster and have a namespace each; tests that kill or reconfigure Podium boot their own.
//! The harness is our own (libtest-mimic), because a shared cluster must be torn down after the last test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::print_stderr, reason = "a seed is only worth something when it is told")]

mod access;
mod admission;
mod aggregation;
mod audit;
mod autoscaling;
mod certificates;
mod claims;
mod clusters;
mod commands;
mod companions;
mod conditions;
mod configuration;
mod control_plane;
mod cron_jobs;
mod custom_resources;
mod daemon_sets;
mod data_directories;
mod debug;
mod deployments;
mod disruption;
mod encryption;
mod endpoints;
mod env_files;
mod example_states;
mod examples;
mod exits;
mod extremes;
mod failures;
mod fairness;
mod garbage;
mod helm;
mod hooks;
mod identities;
mod image_gc;
mod images;
mod in_use;
mod init_containers;
mod jobs;
mod kills;
mod kube_rs;
mod kubectl;
mod kustomize;
mod lifecycle;
mod lost_nodes;
mod namespaces;
mod network_policies;
mod node;
mod node_config;
mod node_https;
mod node_shutdown;
mod oci_runtimes;
mod outside;
mod owners;
mod pod_updates;
mod podium;
mod preemption;
mod priorities;
mod probe_protocols;
mod probes;
mod proxies;
mod python_client;
mod replica_sets;
mod replication_controllers;
mod resize;
mod restart;
mod restart_rules;
mod retry;
mod run;
mod runtime_class;
mod scheduling;
mod security;
mod service_traffic;
mod services;
mod sidecars;
mod skew;
mod stateful_sets;
mod static_pods;
mod stop_signals;
mod store_quota;
mod strangers;
mod streams;
mod surprises;
mod taints;
mod termination;
mod tokens;
mod top;
mod untrusted_files;
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

/// A test on the shared cluster.
pub type Shared = (&'static str, fn(&Cluster));
/// A test that makes the clusters it needs.
pub type Alone = (&'static str, fn());

/// No test takes half as long.
const LONGEST: Duration = Duration::from_secs(900);

/// Booted by the first test that needs it.
type Lazy = Arc<OnceLock<Cluster>>;

fn main() {
    let mut arguments = Arguments::from_args();
    // Two cores run the cluster, its containers and the tests; more tests at once only make each other late.
    arguments.test_threads.get_or_insert(3);
    let lazy = Lazy::default();
    let shared = [
        access::TESTS,
        aggregation::TESTS,
        autoscaling::TESTS,
        certificates::TESTS,
        claims::TESTS,
        companions::TESTS,
        conditions::TESTS,
        configuration::TESTS,
        cron_jobs::TESTS,
        daemon_sets::TESTS,
        debug::TESTS,
        deployments::TESTS,
        disruption::TESTS,
        endpoints::TESTS,
        env_files::TESTS,
        example_states::TESTS,
        examples::TESTS,
        exits::TESTS,
        extremes::TESTS,
        failures::TESTS,
        helm::TESTS,
        fairness::TESTS,
        hooks::TESTS,
        images::TESTS,
        in_use::TESTS,
        init_containers::TESTS,
        jobs::TESTS,
        pod_updates::TESTS,
        owners::TESTS,
        podium::TESTS,
        priorities::TESTS,
        probe_protocols::TESTS,
        probes::TESTS,
        python_client::TESTS,
        proxies::TESTS,
        admission::TESTS,
        custom_resources::TESTS,
        replica_sets::TESTS,
        replication_controllers::TESTS,
        resize::TESTS,
        runtime_class::TESTS,
        kube_rs::TESTS,
        kubectl::TESTS,
        kustomize::TESTS,
        lifecycle::TESTS,
        namespaces::TESTS,
        node::TESTS,
        restart_rules::TESTS,
        scheduling::TESTS,
        security::TESTS,
        service_traffic::TESTS,
        services::TESTS,
        sidecars::TESTS,
        skew::TESTS,
        stateful_sets::TESTS,
        streams::TESTS,
        surprises::TESTS,
        termination::TESTS,
        tokens::TESTS,
        volumes::TESTS,
        webhooks::TESTS,
    ];
    let alone = [
        claims::ALONE,
        clusters::TESTS,
        control_plane::TESTS,
        data_directories::TESTS,
        encryption::TESTS,
        exits::ALONE,
        failures::ALONE,
        garbage::TESTS,
        image_gc::TESTS,
        admission::ALONE,
        audit::TESTS,
        identities::TESTS,
        images::ALONE,
        oci_runtimes::ALONE,
        podium::ALONE,
        jobs::ALONE,
        kills::TESTS,
        kubectl::ALONE,
        lost_nodes::TESTS,
        network_policies::ALONE,
        node::ALONE,
        node_config::TESTS,
        node_https::TESTS,
        node_shutdown::TESTS,
        preemption::TESTS,
        restart::TESTS,
        restart_rules::ALONE,
        run::TESTS,
        scheduling::ALONE,
        security::ALONE,
        service_traffic::ALONE,
        static_pods::TESTS,
        stop_signals::TESTS,
        store_quota::TESTS,
        surprises::ALONE,
        taints::TESTS,
        termination::ALONE,
        untrusted_files::ALONE,
        top::TESTS,
    ];
    let shared =
        shared.into_iter().chain(commands::TESTS.iter().copied()).flatten().map(|test| on_shared(*test, &lazy));
    let alone = alone.into_iter().flatten().map(|(name, test)| Test { name, body: Arc::new(test) });
    let code = retry::run(&arguments, shared.chain(alone).collect());
    drop(lazy);
    std::process::exit(code.into());
}

fn on_shared((name, test): Shared, lazy: &Lazy) -> Test {
    let lazy = Arc::clone(lazy);
    let body = move || {
        let cluster = lazy.get_or_init(|| Cluster::start(&[]));
        test(cluster);
        // After a test that failed the next one does it.
        cluster.clear();
    };
    Test { name, body: Arc::new(body) }
}

/// A test that hangs is named, and ends the run: a run that never ends tells nothing.
struct Watched(#[expect(dead_code, reason = "dropped when the test ends")] mpsc::Sender<()>);

impl Watched {
    fn new(name: &'static str) -> Self {
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || {
            if end.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("the test {name:?} did not end within {LONGEST:?}");
                std::process::exit(101);
            }
        });
        Self(ended)
    }
}
