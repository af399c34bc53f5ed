//! Commands that are executed in a container while it ends.

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::LazyLock,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};
use tests::{Cluster, Kubectl, PodBuilder, Process, container, e2e_test, scaled, wait_for};

/// Rounds, each with a Pod of every kind.
const ROUNDS: u64 = 8;
/// Threads that execute commands in each Pod.
const CLIENTS: usize = 3;
/// Maximum time of a command.
const EXEC_TIMEOUT: Duration = Duration::from_secs(90);
/// Argument of the processes that commands leave, which no other process has.
static LEFT: LazyLock<String> = LazyLock::new(|| format!("sleep {}", 10_000_000 + std::process::id()));

/// Results of commands.
#[derive(Debug, Default)]
struct Execs {
    succeeded: usize,
    /// Errors, with their number.
    failed: BTreeMap<String, usize>,
}

/// Kinds of Pods: their process namespaces. In the first one only, the kernel ends all processes with the container's own.
fn kinds() -> [(&'static str, Value); 3] {
    [("own", json!({})), ("shared", json!({"shareProcessNamespace": true})), ("host", json!({"hostPID": true}))]
}

/// Returns a Pod whose first container ends with a code, soon after a command was executed in it. The other one stays, and with it the
/// Pod's sandbox: its end would end all processes.
fn pod(name: &str, spec: &Value, round: u64) -> PodBuilder {
    let lifetime = scaled(Duration::from_millis(700 + round * 97)).as_micros();
    let script = format!("until [ -e /ran ]; do usleep 20000; done; usleep {lifetime}; exit {}", code(round));
    let pod = PodBuilder::new(name).restart_policy("Never").grace_period(1).script(&script).spec(spec);
    pod.add_container(container("stays", "exec sleep 100000"))
}

fn code(round: u64) -> u64 {
    round + 11
}

/// Executes commands until the container has ended, and once again. Each leaves a process.
fn execute(kubectl: &Kubectl, pod: &str) -> Execs {
    let script = format!("touch /ran; {} > /dev/null 2>&1 & echo here", *LEFT);
    let mut execs = Execs::default();
    loop {
        let has_ended = !terminated(kubectl, pod).is_null();
        let begin = Instant::now();
        let outcome = kubectl.args(&["exec", pod, "-c", "c", "--", "sh", "-c", &script], "");
        assert!(begin.elapsed() < scaled(EXEC_TIMEOUT), "{pod}: an exec needed {:?}: {outcome:?}", begin.elapsed());
        if outcome.code == 0 {
            assert_eq!(outcome.stdout, "here\n", "{pod}: {}", outcome.stderr);
            execs.succeeded += 1;
        } else {
            *execs.failed.entry(outcome.stderr).or_default() += 1;
        }
        if has_ended {
            return execs;
        }
    }
}

fn terminated(kubectl: &Kubectl, pod: &str) -> Value {
    kubectl.value(&format!("pod/{pod}"), "/status/containerStatuses/0/state/terminated")
}

/// Waits until a container has an ID. The paths of its cgroups have it.
fn container_id(kubectl: &Kubectl, pod: &str, index: usize) -> String {
    wait_for(&format!("container {index} of {pod} to have an ID"), Duration::from_secs(60), || {
        let status = kubectl.value(&format!("pod/{pod}"), &format!("/status/containerStatuses/{index}"));
        let id = status["containerID"].as_str().and_then(|id| id.strip_prefix("podium://")).map(str::to_owned);
        id.ok_or_else(|| status.to_string())
    })
}

/// Executes commands in a Pod's container while it ends, and checks that it ends as it must, with all of its processes.
fn check(kubectl: &Kubectl, pod: &str, round: u64) -> Vec<Execs> {
    let [id, stays] = [0, 1].map(|index| container_id(kubectl, pod, index));
    let execs = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| execute(kubectl, pod))).collect();
        clients.into_iter().map(join).collect()
    });
    let state = terminated(kubectl, pod);
    assert_eq!((&state["exitCode"], &state["reason"]), (&json!(code(round)), &json!("Error")), "{pod}: {state}");
    assert!(Process::of_pod(&stays).next().is_some(), "{pod}: the other container ended, too");
    wait_for(&format!("the end of all processes of {pod}'s container"), Duration::from_secs(60), || {
        let left: Vec<String> = Process::of_pod(&id).map(Process::command).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    execs
}

/// Waits for a thread, and fails as it did.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|failure| resume_unwind(failure))
}

#[e2e_test("an exec in a container that ends succeeds or fails, and leaves nothing")]
fn exec_in_ending_container_leaves_nothing() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let pods = kinds().map(|(kind, spec)| (format!("{kind}-{round}"), spec));
        for (name, spec) in &pods {
            kubectl.apply(&pod(name, spec, round).to_string());
        }
        thread::scope(|scope| {
            let checks: Vec<_> = pods.iter().map(|(name, _)| scope.spawn(|| check(&kubectl, name, round))).collect();
            checks.into_iter().for_each(|check| all.extend(join(check)));
        });
        // The sandboxes still exist: these processes are not those of a cgroup that was removed.
        let left: Vec<String> =
            Process::all().map(Process::command).filter(|command| command.contains(&*LEFT)).collect();
        assert!(left.is_empty(), "round {round}: {left:?}");
        kubectl.run("delete pods --all --timeout=150s").ok();
    }
    let succeeded: usize = all.iter().map(|execs| execs.succeeded).sum();
    let mut failed = BTreeMap::<&str, usize>::new();
    all.iter().flat_map(|execs| &execs.failed).for_each(|(error, n)| *failed.entry(error).or_default() += n);
    assert!(succeeded > 0 && !failed.is_empty(), "{succeeded} succeeded, {failed:?}");
    // kubectl loses a cause that it can read as YAML, for example `failed to exec in container: container ID is stopped`.
    assert!(
        !failed.keys().any(|error| error.trim_end() == "Error from server:"),
        "errors without a cause: {failed:#?}"
    );
}
