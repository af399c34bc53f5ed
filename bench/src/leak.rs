//! Leak measurement: counts resources before and after minutes of crashing Pods and of Pod churn.
//!
//! `cargo xtask bench leak [--runtime NAME] [--pods N] [--minutes M] [--rounds R]`; 200 Pods of each kind, and one round of 10 minutes
//! by default. A count that grows with each round is a leak; one that grew once may be a cache.

use crate::{
    client::{Api, WatchEvent},
    machine_group,
    podium::{BootOptions, ContainerRuntime, Podium},
    pods::{is_ready, pod},
};
use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tokio::sync::mpsc::UnboundedReceiver;

/// Time for the cleanup after the load, parts of which run every minute.
const SETTLE: Duration = Duration::from_secs(90);
const LIMIT: Duration = Duration::from_secs(300);

/// Counts of resources at one moment.
type Counts = Vec<(&'static str, u64)>;

pub(crate) async fn run(args: &[String]) -> Result<()> {
    let (mut pods, mut minutes, mut rounds) = (200, 10, 1);
    let mut runtime = ContainerRuntime::Engine;
    for pair in args.chunks(2) {
        match pair {
            [flag, value] if flag == "--runtime" => runtime = ContainerRuntime::parse(value)?,
            [flag, value] if flag == "--pods" => pods = value.parse()?,
            [flag, value] if flag == "--minutes" => minutes = value.parse()?,
            [flag, value] if flag == "--rounds" => rounds = value.parse()?,
            _ => bail!("leak takes --runtime NAME, --pods N, --minutes M and --rounds R, not {pair:?}"),
        }
    }
    let options = BootOptions { runtime, max_pods: 2 * pods + 10, args: &["--pod-cidr", "10.240.0.0/20"] };
    let podium = Podium::boot_with(options)?;
    let api = Api::connect(&podium.kubeconfig(), "bench").await?;
    api.create_namespace().await?;
    let mut events = api.watch("pods").await?;
    // Resources that the first Pods create stay, and are no leak.
    let mut warm = Churn::new(&api, 5.min(pods));
    warm.until(&mut events, Instant::now() + Duration::from_secs(10)).await?;
    warm.end(&mut events).await?;
    tokio::time::sleep(SETTLE).await;
    let mut moments = vec![("before".to_owned(), counts(&podium).await?)];
    eprintln!("{pods} crashing Pods and {pods} Pods of churn for {minutes} min, {rounds} rounds");
    for round in 1..=rounds {
        // The server has closed the idle connection.
        let api = Api::connect(&podium.kubeconfig(), "bench").await?;
        let (during, deleted_count) = load(&podium, &api, &mut events, pods, Duration::from_secs(60 * minutes)).await?;
        moments.push((format!("at the end of the load ({deleted_count} Pods created and deleted)"), during));
        tokio::time::sleep(SETTLE).await;
        moments.push((format!("after round {round}"), counts(&podium).await?));
    }
    println!("| what |{}", moments.iter().map(|(moment, _)| format!(" {moment} |")).collect::<String>());
    println!("| --- |{}", " --- |".repeat(moments.len()));
    for (n, (metric_name, _)) in moments[0].1.iter().enumerate() {
        let cell = |(_, counts): &(String, Counts)| format!(" {} |", counts.get(n).map_or(0, |(_, count)| *count));
        println!("| {metric_name} |{}", moments.iter().map(cell).collect::<String>());
    }
    Ok(())
}

/// Returns the counts at the end, before the Pods are deleted, and the number of Pods of the churn.
async fn load(
    podium: &Podium,
    api: &Api,
    events: &mut UnboundedReceiver<WatchEvent>,
    pods: usize,
    time: Duration,
) -> Result<(Counts, usize)> {
    for n in 0..pods {
        let mut crashing = pod(&format!("crash-{n}"));
        crashing["spec"]["containers"][0]["command"] = json!(["sh", "-c", "exit 1"]);
        api.call(Method::POST, &api.path("pods"), Some(&crashing)).await?;
    }
    let mut churn = Churn::new(api, pods);
    churn.until(events, Instant::now() + time).await?;
    let during = counts(podium).await?;
    churn.alive.extend((0..pods).map(|n| format!("crash-{n}")));
    churn.end(events).await?;
    Ok((during, churn.deleted_count))
}

/// Pods that are deleted as soon as they are ready, and created again as soon as they are deleted.
struct Churn<'a> {
    api: &'a Api,
    slots: usize,
    alive: BTreeSet<String>,
    deleted: BTreeSet<String>,
    made: usize,
    deleted_count: usize,
}

impl<'a> Churn<'a> {
    fn new(api: &'a Api, slots: usize) -> Self {
        Self { api, slots, alive: BTreeSet::new(), deleted: BTreeSet::new(), made: 0, deleted_count: 0 }
    }

    async fn until(&mut self, events: &mut UnboundedReceiver<WatchEvent>, end: Instant) -> Result<()> {
        while Instant::now() < end {
            while self.alive.len() + self.deleted.len() < self.slots {
                self.made += 1;
                let name = format!("churn-{}", self.made);
                self.api.call(Method::POST, &self.api.path("pods"), Some(&pod(&name))).await?;
                self.alive.insert(name);
            }
            let left = end.saturating_duration_since(Instant::now());
            let Ok(event) = tokio::time::timeout(left, events.recv()).await else { break };
            let (_, event) = event.context("the watch ended")?;
            self.take(&event).await?;
        }
        Ok(())
    }

    async fn take(&mut self, event: &Value) -> Result<()> {
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or("").to_owned();
        if event["type"] == "DELETED" {
            self.alive.remove(&name);
            self.deleted_count += usize::from(self.deleted.remove(&name));
        } else if name.starts_with("churn-") && is_ready(&event["object"]) && self.alive.remove(&name) {
            self.delete(name).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, name: String) -> Result<()> {
        self.api.call(Method::DELETE, &format!("{}/{name}", self.api.path("pods")), None).await?;
        self.deleted.insert(name);
        Ok(())
    }

    /// Deletes the remaining Pods and waits for their deletion.
    async fn end(&mut self, events: &mut UnboundedReceiver<WatchEvent>) -> Result<()> {
        for name in std::mem::take(&mut self.alive) {
            self.delete(name).await?;
        }
        while !self.deleted.is_empty() {
            let event = tokio::time::timeout(LIMIT, events.recv()).await;
            let (_, event) = event.context("Pods are not deleted in time")?.context("the watch ended")?;
            self.take(&event).await?;
        }
        Ok(())
    }
}

async fn counts(podium: &Podium) -> Result<Counts> {
    let api = &Api::connect(&podium.kubeconfig(), "bench").await?;
    let podium_process = Process::of(podium.id());
    let dirs = own_dirs(podium);
    let processes: Vec<Process> = listed("/proc").filter_map(|n| n.parse().ok()).map(Process::of).collect();
    let processes_named = |name: &str| -> Vec<&Process> {
        let is_own = |process: &&Process| process.name == name && is_in(&process.command, &dirs);
        processes.iter().filter(is_own).collect()
    };
    let (containerd, shims) = (processes_named("containerd"), processes_named("containerd-shim"));
    let keepers = processes_named("podium-keeper");
    let kernel = counts_of_the_kernel(podium)?;
    let counts = [
        ("podium: tasks", metric(api, "podium_tasks").await?),
        ("podium: the kubelet's entries about Pods", metric(api, "podium_kubelet_cache_entries").await?),
        ("podium: Pods in the API", objects(api, "pods").await?),
        ("podium: Events in the API, which are kept for an hour", objects(api, "events").await?),
        ("podium: threads", podium_process.status("Threads")),
        ("podium: open files", count(listed(&format!("/proc/{}/fd", podium.id())))),
        ("podium: resident, kB", podium_process.status("VmRSS")),
        ("containerd: threads", containerd.iter().map(|p| p.status("Threads")).sum()),
        ("containerd: resident, kB", containerd.iter().map(|p| p.status("VmRSS")).sum()),
        ("shims", count(shims)),
        ("keepers", count(keepers)),
        ("files below the data directory's kubelet", files(&podium.data_dir().join("kubelet"))),
        ("files below the data directory's engine and network", {
            files(&podium.data_dir().join("engine")) + files(&podium.data_dir().join("network"))
        }),
        ("uses of images", files(&podium.image_store().join("uses"))),
        ("files of images that are being added or deleted", {
            files(&podium.image_store().join("ingest")) + files(&podium.image_store().join("trash"))
        }),
        ("directories of the engine's OCI runtimes, of the machine", count(listed("/run/podium/oci"))),
    ];
    Ok(counts.into_iter().chain(kernel).collect())
}

/// Returns the data directory, and the directory of the external runtime.
fn own_dirs(podium: &Podium) -> Vec<String> {
    let containerd = podium.containerd().map(|containerd| containerd.dir().display().to_string());
    containerd.into_iter().chain([podium.data_dir().display().to_string()]).collect()
}

fn is_in(text: &str, dirs: &[String]) -> bool {
    dirs.iter().any(|dir| text.contains(dir))
}

fn counts_of_the_kernel(podium: &Podium) -> Result<Counts> {
    let dirs = own_dirs(podium);
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let networks = namespaces("net");
    Ok(vec![
        ("processes of Podium and of all that it started", {
            count(podium.group.own_processes()) + count(podium.group.pod_processes())
        }),
        ("mounts of Podium and its runtime", count(mounts.lines().filter(|l| is_in(l, &dirs)))),
        ("cgroups of all Podiums of the machine", cgroups(Path::new("/sys/fs/cgroup"), 0)),
        ("network namespaces of the machine", count(listed("/run/netns")) + networks),
        ("IPC namespaces of the machine", namespaces("ipc")),
        ("veths of the machine", count(listed("/sys/class/net").filter(|n| n.starts_with("veth")))),
    ])
}

/// Counts the namespaces of a kind that processes of the machine are in, or have open.
fn namespaces(kind: &str) -> u64 {
    let mut found = BTreeSet::new();
    for process in listed("/proc").filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        found.extend(fs::read_link(format!("/proc/{process}/ns/{kind}")).ok());
        let dir = format!("/proc/{process}/fd");
        // Only keepers have namespaces open for long.
        if machine_group::name(process.parse().unwrap_or(0)) == "podium-keeper" {
            let links = listed(&dir).filter_map(|name| fs::read_link(Path::new(&dir).join(name)).ok());
            found.extend(links.filter(|link| link.to_string_lossy().starts_with(&format!("{kind}:["))));
        }
    }
    count(found)
}

/// Sums a metric of the kubelet.
async fn metric(api: &Api, name: &str) -> Result<u64> {
    let nodes: Value = serde_json::from_slice(&api.call(Method::GET, "/api/v1/nodes", None).await?)?;
    let node = nodes["items"][0]["metadata"]["name"].as_str().context("no node")?;
    let text = api.call(Method::GET, &format!("/api/v1/nodes/{node}/proxy/metrics"), None).await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with([' ', '{']));
    let values: Vec<&str> = lines.filter_map(|rest| rest.rsplit(' ').next()?.split('.').next()).collect();
    if values.is_empty() {
        bail!("there is no {name}");
    }
    values.into_iter().map(|value| Ok(value.parse::<u64>()?)).sum()
}

/// Counts the objects of a resource in all namespaces.
async fn objects(api: &Api, resource: &str) -> Result<u64> {
    let list: Value = serde_json::from_slice(&api.call(Method::GET, &format!("/api/v1/{resource}"), None).await?)?;
    Ok(count(list["items"].as_array().into_iter().flatten()))
}

fn count(items: impl IntoIterator) -> u64 {
    items.into_iter().fold(0, |n, _| n + 1)
}

fn listed(dir: &str) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned())
}

/// Counts the directories below Podium's own cgroups, in every hierarchy.
fn cgroups(dir: &Path, inside: u64) -> u64 {
    let below = fs::read_dir(dir).into_iter().flatten().flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    below
        .map(|e| {
            let inside = inside.max(u64::from(e.file_name().to_string_lossy().starts_with("podium-")));
            inside + cgroups(&e.path(), inside)
        })
        .sum()
}

fn files(dir: &Path) -> u64 {
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    below.map(|e| if e.file_type().is_ok_and(|t| t.is_dir()) { files(&e.path()) } else { 1 }).sum()
}

/// A process in `/proc`.
struct Process {
    name: String,
    command: String,
    status: String,
}

impl Process {
    fn of(pid: u32) -> Self {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let text = |file: &str| String::from_utf8_lossy(&read(file)).replace('\0', " ");
        // The kernel truncates names to 15 characters.
        Self { name: text("comm").trim().to_owned(), command: text("cmdline"), status: text("status") }
    }

    fn status(&self, field: &str) -> u64 {
        let line = self.status.lines().find_map(|l| l.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|l| l.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    }
}
