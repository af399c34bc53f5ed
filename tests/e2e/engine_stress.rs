//! Podium, keepers and containers of the engine that are killed at random moments.
//!
//! `PODIUM_STRESS_KILLS` is the number of kills, `PODIUM_STRESS_SEED` the start of their random order.

use crate::engine::{keepers, mounts_below, start};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tests::{Cluster, Kubectl, PodBuilder, Process, e2e_test, eventually, wait_for};

/// Kills without the environment variable.
const DEFAULT_KILLS: u64 = 6;
/// Lines of each Pod's log.
const LINES: usize = 40;
/// Maximum time until everything of a round has ended.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);

/// Random numbers (xorshift64*), which a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// A Pod of a round, whose container ends by itself with a code of its own.
struct Expected {
    name: String,
    uid: String,
    code: u64,
    /// Whether its keeper or its container was killed.
    is_killed: bool,
}

/// Creates the Pods of a round: they write lines, and end at different times.
fn create_pods(kubectl: &Kubectl, round: u64, random: &mut Random) -> Vec<Expected> {
    let mut pods = Vec::new();
    for index in 0..4 {
        let (name, code) = (format!("p-{round}-{index}"), 1 + random.below(100));
        let pause = [0, 10, 50, 100][usize::try_from(index).unwrap()];
        let script = format!(
            "i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i + 1)); [ {pause} = 0 ] || usleep {pause}000; done; \
             exit {code}"
        );
        let mut pod = PodBuilder::new(&name).restart_policy("Never").grace_period(1).script(&script);
        if index == 3 {
            pod = pod.spec(&json!({"shareProcessNamespace": true}));
        }
        kubectl.apply(&pod.to_string());
        pods.push(Expected { name, uid: String::new(), code, is_killed: false });
    }
    for pod in &mut pods {
        let uid = kubectl.value(&format!("pod/{}", pod.name), "/metadata/uid");
        uid.as_str().unwrap().clone_into(&mut pod.uid);
    }
    pods
}

/// Returns the sandboxes of a Pod: their IDs.
fn sandboxes(cluster: &Cluster, uid: &str) -> Vec<String> {
    let entries = fs::read_dir(cluster.data_dir().join("engine/pods")).into_iter().flatten().flatten();
    let of_pod = entries
        .filter(|entry| fs::read_to_string(entry.path().join("sandbox.json")).is_ok_and(|text| text.contains(uid)));
    of_pod.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Kills the keeper, or a process of the container, of a Pod. Returns whether there was one.
fn kill_of_pod(cluster: &Cluster, pod: &mut Expected, of_keeper: bool) -> bool {
    let targets: Vec<Process> = if of_keeper {
        let ids = sandboxes(cluster, &pod.uid);
        keepers(cluster).into_iter().filter(|keeper| ids.iter().any(|id| keeper.command().contains(id))).collect()
    } else {
        Process::of_pod(&pod.uid).filter(|process| process.command().contains("line")).collect()
    };
    // Before the signal: the exit may be reported at once.
    pod.is_killed |= !targets.is_empty();
    targets.into_iter().any(|target| kill(target.0, Signal::SIGKILL).is_ok())
}

/// Kills one thing. Returns whether it existed.
fn kill_one(cluster: &mut Cluster, pods: &mut [Expected], random: &mut Random) -> bool {
    let pod = usize::try_from(random.below(4)).unwrap();
    match random.below(4) {
        0 => kill_of_pod(cluster, &mut pods[pod], true),
        1 => kill_of_pod(cluster, &mut pods[pod], false),
        _ => {
            cluster.stop_podium(Signal::SIGKILL);
            cluster.start_podium();
            true
        }
    }
}

/// Checks that every container ended as it must, and that no line of its log is lost.
fn check_pods(kubectl: &Kubectl, pods: &[Expected]) {
    for pod in pods {
        let object = wait_for(&format!("the end of {}", pod.name), ROUND_TIMEOUT, || {
            let object = kubectl.get(&format!("pod/{}", pod.name)).unwrap_or_default();
            if object["status"]["phase"] == "Failed" { Ok(object) } else { Err(object["status"].to_string()) }
        });
        let state = &object["status"]["containerStatuses"][0]["state"]["terminated"];
        let is_own = state["exitCode"] == json!(pod.code) && state["reason"] == "Error";
        assert!(is_own || pod.is_killed, "{} must end with {}: {}", pod.name, pod.code, object["status"]);
        let restarts = &object["status"]["containerStatuses"][0]["restartCount"];
        assert!(restarts == &json!(0) || restarts == &Value::Null, "{} was started twice", pod.name);
        let expected = (0..LINES).fold(String::new(), |text, line| text + &format!("line {line}\n"));
        let log = kubectl.run(&format!("logs {}", pod.name));
        if is_own {
            assert_eq!(log.ok(), expected, "{} lost lines", pod.name);
        } else {
            // A killed container has written a part, if it ran.
            assert!(!log.is_ok_and(|text| !expected.starts_with(text)), "{} has other lines", pod.name);
        }
    }
}

/// Finds the cgroups of Pods.
fn cgroups(dir: &Path, uids: &BTreeSet<String>, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        if uids.iter().any(|uid| entry.file_name().to_string_lossy().contains(uid)) {
            found.push(entry.path());
        } else if !entry.path().is_symlink() {
            cgroups(&entry.path(), uids, found);
        }
    }
}

/// Checks that nothing of the Pods is left.
fn check_removed(cluster: &Cluster, uids: &BTreeSet<String>, sandboxes: &BTreeSet<String>) {
    let pods = cluster.data_dir().join("engine/pods");
    eventually("all keepers to end", || keepers(cluster).is_empty());
    eventually("all sandboxes to be removed", || fs::read_dir(&pods).unwrap().next().is_none());
    assert_eq!(mounts_below(&pods), 0);
    wait_for("all cgroups to be removed", ROUND_TIMEOUT, || {
        let mut found = Vec::new();
        cgroups(Path::new("/sys/fs/cgroup"), uids, &mut found);
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let states = fs::read_dir("/run/podium/oci").into_iter().flatten().flatten();
    let states: Vec<String> = states.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let is_left = |state: &String| sandboxes.iter().any(|sandbox| state.contains(sandbox));
    assert!(!states.iter().any(is_left), "{states:?}");
}

/// Returns the files of a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Returns the addresses in use: a network has a file for each.
fn addresses(cluster: &Cluster) -> Vec<Ipv4Addr> {
    let networks = files(&cluster.data_dir().join("network/ipam"));
    let records = networks.iter().flat_map(|network| files(network));
    records.filter_map(|path| path.file_name()?.to_str()?.parse().ok()).collect()
}

/// Returns the interfaces of these addresses on the node, as far as they exist.
fn interfaces(addresses: &BTreeSet<Ipv4Addr>) -> Vec<PathBuf> {
    let paths = addresses.iter().map(|ip| format!("/sys/class/net/veth{:08x}", u32::from(*ip)));
    paths.map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// Checks that no Pod is connected to the network any more. Interfaces are deleted in the background.
fn check_network(cluster: &Cluster, used: &BTreeSet<Ipv4Addr>) {
    let connections = || files(&cluster.data_dir().join("network/attachments"));
    eventually("all connections to be removed", || connections().is_empty());
    assert_eq!(addresses(cluster), Vec::<Ipv4Addr>::new());
    wait_for("all interfaces of Pods to be deleted", ROUND_TIMEOUT, || {
        let left = interfaces(used);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// Checks that no container uses an image any more.
fn check_images(store: &Path) {
    let uses: Vec<PathBuf> = files(&store.join("uses")).iter().flat_map(|owner| files(owner)).collect();
    assert!(uses.is_empty(), "{uses:?}");
}

#[e2e_test("kills of Podium, keepers and containers at random moments lose nothing")]
fn random_kills_lose_nothing() {
    let kills = number("PODIUM_STRESS_KILLS").unwrap_or(DEFAULT_KILLS);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let seed = number("PODIUM_STRESS_SEED").unwrap_or(u64::try_from(now).unwrap() | 1);
    eprintln!("PODIUM_STRESS_SEED={seed}");
    let (mut random, mut killed, mut round) = (Random(seed), 0, 0);
    let (mut cluster, images) = start();
    let (mut uids, mut ids, mut used, mut connected) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), 0);
    while killed < kills {
        let kubectl = cluster.kubectl_in("default");
        let mut pods = create_pods(&kubectl, round, &mut random);
        uids.extend(pods.iter().map(|pod| pod.uid.clone()));
        for _ in 0..4 {
            let delay = Duration::from_millis(random.below(800));
            std::thread::park_timeout(delay);
            ids.extend(pods.iter().flat_map(|pod| sandboxes(&cluster, &pod.uid)));
            used.extend(addresses(&cluster));
            connected = connected.max(interfaces(&used).len());
            killed += u64::from(kill_one(&mut cluster, &mut pods, &mut random));
        }
        // The port of the API server may have changed.
        let kubectl = cluster.kubectl_in("default");
        check_pods(&kubectl, &pods);
        kubectl.run("delete pods --all --timeout=120s").ok();
        round += 1;
        eprintln!("round {round}: {killed} kills");
    }
    check_removed(&cluster, &uids, &ids);
    assert!(connected > 0, "no Pod had an interface: {used:?}");
    check_network(&cluster, &used);
    check_images(images.path());
}
