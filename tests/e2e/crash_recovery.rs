//! Podium is killed at random moments; acknowledged writes and reported states stay valid.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use nix::sys::signal::Signal;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, wait_for};
use tokio::{sync::Mutex, task::JoinSet};

/// Number of kills under a write load.
const LIVES: u32 = 200;
const WRITERS: usize = 4;

/// Responses and watch events that the clients have received.
#[derive(Default)]
struct Observed {
    /// Last acknowledged revision and round of each object.
    acknowledged: BTreeMap<String, (u64, u64)>,
    revisions: BTreeSet<u64>,
    /// Last revision that the watch has received.
    watched: u64,
}

fn revision(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|r| r.parse().ok()).expect("an object has a resourceVersion")
}

fn seeded() -> StdRng {
    let seed = rand::random();
    eprintln!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

#[e2e_test("no acknowledged write is lost by SIGKILL at 200 moments")]
fn acknowledged_write_survives_sigkill() {
    let mut random = seeded();
    let mut cluster = Cluster::start(&[]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let observed = Arc::new(Mutex::new(Observed::default()));
    for life in 0..LIVES {
        let (writes, moment) = (random.random_range(0..20), Duration::from_micros(random.random_range(0..10_000)));
        let client = cluster.client(&runtime);
        runtime.block_on(async {
            check(&client, &observed, life).await;
            let mut work = JoinSet::new();
            work.spawn(watch(client.clone(), Arc::clone(&observed)));
            for writer in 0..WRITERS {
                work.spawn(write(client.clone(), Arc::clone(&observed), writer, life));
            }
            acknowledged(&observed, writes).await;
            // This is not a wait for a condition: the moment of the kill is the test's input.
            tokio::time::sleep(moment).await;
            cluster.signal(Signal::SIGKILL);
            work.shutdown().await;
        });
        cluster.wait_for_exit();
        cluster.start_api();
    }
    let client = cluster.client(&runtime);
    runtime.block_on(check(&client, &observed, LIVES));
    let observed = runtime.block_on(observed.lock());
    eprintln!("{} writes acknowledged in {LIVES} lives", observed.revisions.len());
    assert!(observed.revisions.len() > 1000, "too few writes: {}", observed.revisions.len());
}

/// Waits until this many more writes are acknowledged.
async fn acknowledged(observed: &Mutex<Observed>, writes: usize) {
    let enough = observed.lock().await.revisions.len() + writes;
    let writer = async {
        while observed.lock().await.revisions.len() < enough {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), writer).await.expect("writes are acknowledged");
}

/// Creates an object and updates it until the server is killed.
async fn write(client: Client, observed: Arc<Mutex<Observed>>, writer: usize, life: u32) {
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let name = format!("w{writer}-{}", life % 20);
    let mut object = match api.get_opt(&name).await {
        Ok(found) => found,
        Err(_) => return,
    };
    for round in u64::from(life) * 1_000_000.. {
        let mut next = object.clone().unwrap_or_default();
        next.metadata.name = Some(name.clone());
        next.data = Some([("round".to_owned(), round.to_string())].into());
        let written = match object {
            None => api.create(&PostParams::default(), &next).await,
            Some(_) => api.replace(&name, &PostParams::default(), &next).await,
        };
        let Ok(written) = written else { return };
        let revision = revision(&written.metadata);
        let mut observed = observed.lock().await;
        assert!(observed.revisions.insert(revision), "revision {revision} was given twice");
        observed.acknowledged.insert(name.clone(), (revision, round));
        object = Some(written);
    }
}

/// Watches all objects from the last revision of the previous watch.
async fn watch(client: Client, observed: Arc<Mutex<Observed>>) {
    use futures::StreamExt;
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    let from = observed.lock().await.watched;
    let Ok(stream) = api.watch(&WatchParams::default(), &from.to_string()).await else { return };
    let mut stream = std::pin::pin!(stream);
    while let Some(Ok(event)) = stream.next().await {
        match event {
            WatchEvent::Added(o) | WatchEvent::Modified(o) | WatchEvent::Deleted(o) => {
                let (revision, mut observed) = (revision(&o.metadata), observed.lock().await);
                assert!(revision > observed.watched || from == 0, "{revision} came after {}", observed.watched);
                observed.watched = observed.watched.max(revision);
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => {
                assert_eq!(status.code, 410, "{status:?}");
                let list = api.list(&ListParams::default()).await;
                let newest = list.ok().and_then(|l| l.metadata.resource_version?.parse().ok());
                observed.lock().await.watched = newest.unwrap_or(from);
                return;
            }
        }
    }
}

/// Checks after a restart that all acknowledged writes exist and that the revision did not decrease.
async fn check(client: &Client, observed: &Mutex<Observed>, life: u32) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let list = api.list(&ListParams::default()).await.expect("a list of a server that serves");
    let now: u64 = list.metadata.resource_version.as_deref().unwrap_or("").parse().expect("a list's resourceVersion");
    let observed = observed.lock().await;
    assert!(now >= observed.revisions.last().copied().unwrap_or(0), "life {life}: the server went back to {now}");
    let found: BTreeMap<String, (u64, u64)> = list
        .items
        .into_iter()
        .filter_map(|o| {
            let round = o.data.as_ref()?.get("round")?.parse().ok()?;
            Some((o.metadata.name.clone()?, (revision(&o.metadata), round)))
        })
        .collect();
    for (name, acknowledged) in &observed.acknowledged {
        // Writes without an acknowledgement may exist too.
        assert!(
            found.get(name) >= Some(acknowledged),
            "life {life}: {name} is {:?}, was {acknowledged:?}",
            found.get(name)
        );
    }
}

/// Returns a Pod whose container records each start in a directory of its name.
pub(crate) fn counting(dir: &Path, name: &str, policy: &str, script: &str) -> Value {
    PodBuilder::new(name)
        .restart_policy(policy)
        .grace_period(3)
        .volume("v", &json!({"hostPath": {"path": dir.join(name), "type": "DirectoryOrCreate"}}))
        .mount("v", "/v")
        .script(&format!("echo start >> /v/starts; {script}"))
        .build()
}

#[e2e_test("Pods reach their phase through repeated SIGKILLs of Podium")]
fn pods_reach_their_phase_through_sigkills() {
    let (mut random, dir) = (seeded(), tempfile::tempdir().unwrap());
    // A start that a kill interrupts may count as a failure, and each failure increases the back-off.
    let mut cluster = ClusterBuilder::default()
        .kubelet_config(json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}}))
        .start();
    let kubectl = cluster.kubectl_in("default");
    let serve = "trap 'exit 0' TERM; sleep 100000 & wait";
    let pods = [
        counting(dir.path(), "succeeds", "Never", "sleep 2; exit 0"),
        counting(dir.path(), "fails", "Never", "sleep 2; exit 7"),
        counting(
            dir.path(),
            "succeeds-third",
            "OnFailure",
            "sleep 1; echo end >> /v/ends; [ $(wc -l < /v/ends) -ge 3 ]",
        ),
        counting(dir.path(), "serves", "Always", serve),
        counting(dir.path(), "leaves", "Always", serve),
        counting(dir.path(), "deaf", "Always", "trap '' TERM; while :; do sleep 1; done"),
    ];
    let all: Value = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    kubectl.apply(&all.to_string());
    let mut served = Value::Null;
    for life in 0..12 {
        std::thread::park_timeout(Duration::from_millis(random.random_range(0..1500)));
        cluster.stop_podium(Signal::SIGKILL);
        cluster.start_api();
        if life == 5 {
            kubectl.run("delete pod leaves deaf --wait=false").ok();
            served = serving(&kubectl);
        }
    }
    check_once(dir.path(), &kubectl, "succeeds", 0);
    check_once(dir.path(), &kubectl, "fails", 7);
    kubectl.wait_value("pod/succeeds-third", "/status/phase", &json!("Succeeded"));
    assert_eq!(serving(&kubectl), served, "what has run runs on");
    kubectl.run("wait --for=delete --timeout=60s pod/leaves pod/deaf").ok();
}

/// Checks that a Pod under Never has started at most once. When Podium was killed during the start, the container has failed.
#[track_caller]
fn check_once(dir: &Path, kubectl: &Kubectl, pod: &str, code: i32) {
    let status = wait_for(&format!("the end of {pod}"), Duration::from_secs(60), || {
        let status = kubectl.value(&format!("pod/{pod}"), "/status");
        if ["Succeeded", "Failed"].map(Value::from).contains(&status["phase"]) {
            Ok(status)
        } else {
            Err(status.to_string())
        }
    });
    let container = &status["containerStatuses"][0];
    let ended = &container["state"]["terminated"];
    let cut_off = ended["reason"] == "StartError";
    assert_eq!((&ended["exitCode"], &container["restartCount"]), (&json!(if cut_off { 128 } else { code }), &json!(0)));
    assert_eq!(status["phase"], if cut_off || code != 0 { "Failed" } else { "Succeeded" });
    let starts = std::fs::read_to_string(dir.join(pod).join("starts")).unwrap_or_default().lines().count();
    assert!(starts <= 1 && (cut_off || starts == 1), "{pod} has begun {starts} times: {status}");
}

/// Returns the container of the serving Pod once it is Ready. It may have started more than once until then: a runtime
/// kills a container whose start is cancelled by the death of its client.
fn serving(kubectl: &Kubectl) -> Value {
    kubectl.wait_ready("serves");
    // The status is of before, until the kubelet knows the Pod again.
    let starts = wait_for("the number of starts", Duration::from_secs(60), || {
        let outcome = kubectl.run("exec serves -- cat /v/starts");
        if outcome.is_ok_and(|starts| !starts.is_empty()) { Ok(outcome.stdout) } else { Err(format!("{outcome:?}")) }
    });
    let container = kubectl.value("pod/serves", "/status/containerStatuses/0");
    json!({"id": container["containerID"], "restarts": container["restartCount"], "starts": starts})
}
