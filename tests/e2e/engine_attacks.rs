//! Attacks on Podium's own container engine: by images, by Pods' specs, and by processes in containers.

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use test_images::{ExtraFile, ImageConfig};
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, Process, e2e_test, eventually, wait_for};

/// Maximum of a keeper's memory in bytes, with the shared pages of a debug build's program.
const MAX_KEEPER_MEMORY: u64 = 96 << 20;

/// Starts a cluster with the engine, and an image store of its own. Pods may have 64 processes.
fn start() -> (Cluster, TempDir) {
    let images = tempfile::tempdir().unwrap();
    let builder = ClusterBuilder::default().kubelet_config(json!({"podPidsLimit": 64, "containerLogMaxSize": "1Mi"}));
    let cluster = builder.env("PODIUM_IMAGE_STORE", &images.path().display().to_string()).start();
    (cluster, images)
}

/// Returns a Pod that runs a script once.
fn pod(name: &str, script: &str) -> PodBuilder {
    PodBuilder::new(name).restart_policy("Never").grace_period(1).script(script)
}

fn import(cluster: &Cluster, name: &str, config: &ImageConfig) -> String {
    let dir = tempfile::tempdir().unwrap();
    let (tar, reference) = (dir.path().join("image.tar"), format!("docker.io/library/{name}:1"));
    test_images::busybox(&tar, &[&reference], config).unwrap();
    cluster.import(&tar);
    reference
}

fn image_with(path: &str, file: ExtraFile) -> ImageConfig {
    ImageConfig { files: vec![(path.to_owned(), file)], ..ImageConfig::default() }
}

fn image_of(settings: Value) -> ImageConfig {
    let Value::Object(settings) = settings else { panic!("expected an object") };
    ImageConfig { settings, ..ImageConfig::default() }
}

fn uid(kubectl: &Kubectl, pod: &str) -> String {
    kubectl.value(&format!("pod/{pod}"), "/metadata/uid").as_str().unwrap().to_owned()
}

/// Waits until a container waits or has terminated for this reason, and returns the message.
#[track_caller]
fn reason(kubectl: &Kubectl, pod: &str, kind: &str, reason: &str) -> String {
    let state = format!("/status/containerStatuses/0/state/{kind}");
    kubectl.wait_value(&format!("pod/{pod}"), &format!("{state}/reason"), &json!(reason));
    kubectl.value(&format!("pod/{pod}"), &format!("{state}/message")).as_str().unwrap_or_default().to_owned()
}

/// Checks that a Pod was refused for this reason, or that its container could not read anything. `runc` 1.1 is misled by some
/// Pods, which Podium then refuses; newer ones refuse them, and `crun` hides the files nevertheless.
#[track_caller]
fn is_refused_or_reads_nothing(kubectl: &Kubectl, pod: &str, expected: &str) {
    let state = "/status/containerStatuses/0/state/terminated";
    let ended = || !kubectl.value(&format!("pod/{pod}"), &format!("{state}/reason")).is_null();
    eventually(&format!("the container of {pod} to end"), ended);
    let terminated = kubectl.value(&format!("pod/{pod}"), state);
    if terminated["reason"] == "StartError" {
        assert!(terminated["message"].as_str().unwrap_or_default().contains(expected), "{pod}: {terminated}");
    } else {
        assert_eq!(kubectl.run(&format!("logs {pod}")).ok(), "", "{pod}: {terminated}");
    }
}

/// Returns the directory of a Pod's sandbox.
fn sandbox(cluster: &Cluster, uid: &str) -> PathBuf {
    let dirs = fs::read_dir(cluster.data_dir().join("engine/pods")).unwrap().map(|entry| entry.unwrap().path());
    let is_its = |dir: &PathBuf| fs::read_to_string(dir.join("sandbox.json")).unwrap_or_default().contains(uid);
    dirs.into_iter().find(is_its).expect("a sandbox")
}

/// Returns the keeper of a Pod.
fn keeper(cluster: &Cluster, uid: &str) -> Process {
    let dir = sandbox(cluster, uid).display().to_string();
    let is_keeper =
        |process: &Process| process.command().starts_with("podium-keeper") && process.command().contains(&dir);
    Process::all().find(is_keeper).expect("a keeper")
}

fn memory(process: Process) -> u64 {
    let status = fs::read_to_string(process.dir().join("status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[e2e_test("images cannot make the engine touch files of the node, or wait")]
fn hostile_images_are_refused() {
    let (cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    let victim = tempfile::tempdir().unwrap();
    fs::write(victim.path().join("ptmx"), "kept").unwrap();
    let victim_path = victim.path().display().to_string();
    let hidden = ExtraFile::Symlink("/proc/interrupts".to_owned());
    let settings = json!({"Volumes": {"/dev": {}}, "Cmd": ["cat", "/proc/interrupts"]});
    let null_link = ImageConfig { files: vec![("dev/null".to_owned(), hidden)], ..image_of(settings) };
    // A part of the image's own layer: crun mounts the directory of /proc on itself.
    let in_proc = json!({"Volumes": {"/proc/sys": {}}, "Cmd": ["true"]});
    let volumes: serde_json::Map<String, Value> = (0..300).map(|n| (format!("/v{n}"), json!({}))).collect();
    let refused = [
        ("dev-link", image_with("dev", ExtraFile::Symlink(victim_path)), "/dev is not a directory"),
        ("fifo", image_with("etc/passwd", ExtraFile::Fifo), "/etc/passwd of the image: it is not a regular file"),
        // The watchdog of a machine: opening it is enough to reboot it.
        (
            "device",
            image_with("etc/group", ExtraFile::CharDevice(10, 130)),
            "/etc/group of the image: it is not a regular file",
        ),
        ("volumes", image_of(json!({"Volumes": volumes})), "300 volumes exceed 256"),
        ("user", image_of(json!({"User": "-1"})), "uid out of range"),
        ("nul", image_of(json!({"Cmd": ["echo", "a\0b"]})), "command contains a NUL byte"),
    ];
    let fails = [
        ("null-link", null_link, "mask"),
        ("descriptor", image_of(json!({"WorkingDir": "/proc/self/fd/7", "Cmd": ["ls"]})), "/proc/self/fd"),
        ("nameless", image_of(json!({"Env": ["=x", "A"], "Cmd": ["true"]})), "environment variable"),
        ("proc-volume", image_of(in_proc), "/proc/sys"),
    ];
    for (name, config, _) in refused.iter().chain(&fails) {
        let image = import(&cluster, name, config);
        kubectl.apply(&PodBuilder::new(name).restart_policy("Never").grace_period(1).image(&image).to_string());
    }
    for (name, _, expected) in &refused {
        let message = reason(&kubectl, name, "waiting", "CreateContainerError");
        assert!(message.contains(expected), "{name}: {message}");
    }
    for (name, _, expected) in &fails {
        is_refused_or_reads_nothing(&kubectl, name, expected);
    }
    let left: Vec<_> = fs::read_dir(victim.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["ptmx"], "the runtime followed a link of the image");
    assert_eq!(fs::read_to_string(victim.path().join("ptmx")).unwrap(), "kept");
}

#[e2e_test("Pods of the engine cannot unmask paths, or reach what belongs to the engine")]
fn hostile_pods_are_contained() {
    let (cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    start_hostile_pods(&cluster, &kubectl);
    is_refused_or_reads_nothing(&kubectl, "null-link", "mask");
    for name in ["in-proc", "in-proc-sys"] {
        let message = reason(&kubectl, name, "terminated", "StartError");
        assert!(message.contains("/proc/"), "{message}");
    }
    // A container has its own streams, and nothing of keeper and OCI runtime.
    kubectl.wait_ready("idle");
    let check = |descriptors: &str| {
        let mut found: Vec<&str> = descriptors.lines().map(|line| line.split(':').next().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, ["/dev/null", "pipe", "pipe"], "{descriptors}");
    };
    let own = |pid: &str| format!("for n in /proc/{pid}/fd/*; do readlink $n; done; true");
    check(&kubectl.args(&["exec", "idle", "--", "sh", "-c", &own("1")], "").ok());
    check(&kubectl.args(&["exec", "idle", "--", "sh", "-c", &own("$$")], "").ok());
    kubectl.wait_value("pod/strict", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs strict").ok(), "65534 77\n");
    kubectl.wait_value("pod/merge", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs merge").ok(), "65534 77 1234\n");
    // The keeper is visible with the node's process namespace, and out of reach without CAP_SYS_PTRACE.
    kubectl.wait_ready("spy");
    let keeper = keeper(&cluster, &uid(&kubectl, "spy"));
    let script = "cat comm; for f in environ exe maps; do cat $f > /dev/null && echo $f; done; readlink fd/0 && echo fd; \
                  ls root/ && echo root; echo x > mem && echo mem; true";
    let script = format!("cd /proc/{}; exec 2> /dev/null; {script}", keeper.0);
    assert_eq!(kubectl.args(&["exec", "spy", "--", "sh", "-c", &script], "").ok(), "podium-keeper\n");
    check_pod_init(&kubectl);
    check_permissions(&cluster);
}

fn start_hostile_pods(cluster: &Cluster, kubectl: &Kubectl) {
    let mut links = tests::container("links", "ln -s /proc/interrupts /v/null");
    links["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let null_link = pod("null-link", "cat /proc/interrupts").volume("v", &json!({"emptyDir": {}}));
    kubectl.apply(&null_link.init_container(links).mount("v", "/dev").to_string());
    for (name, path) in [("in-proc", "/proc/self/attr"), ("in-proc-sys", "/proc/sys")] {
        kubectl.apply(&pod(name, "true").volume("v", &json!({"emptyDir": {}})).mount("v", path).to_string());
    }
    kubectl.apply(&pod("idle", "sleep 100000").to_string());
    kubectl.apply(&pod("spy", "sleep 100000").spec(&json!({"hostPID": true})).to_string());
    kubectl.apply(&pod("shared", "sleep 100000").spec(&json!({"shareProcessNamespace": true})).to_string());
    let group = "root:x:0:\nnogroup:x:65534:\nextra:x:1234:nobody\n";
    let image = import(cluster, "groups", &image_with("etc/group", ExtraFile::Regular(group.to_owned())));
    for policy in ["Merge", "Strict"] {
        let security = json!({"runAsUser": 65534, "supplementalGroups": [77], "supplementalGroupsPolicy": policy});
        let spec = json!({"securityContext": security});
        let name = policy.to_lowercase();
        kubectl.apply(&pod(&name, "id -G").image(&image).spec(&spec).to_string());
    }
}

/// Process 1 of a shared process namespace can be made to do anything with CAP_SYS_PTRACE: it is not in the node's network.
fn check_pod_init(kubectl: &Kubectl) {
    kubectl.wait_ready("shared");
    let uid = uid(kubectl, "shared");
    let container = wait_for("its process", Duration::from_secs(60), || {
        Process::of_pod(&uid).find(|process| process.name() == "sleep").ok_or_else(|| "it has none".to_owned())
    });
    let namespace = |process: Process, name: &str| fs::read_link(process.dir().join("ns").join(name)).unwrap();
    let is_init = |process: &Process| {
        process.name() == "podium-pod-init" && namespace(*process, "pid") == namespace(container, "pid")
    };
    let init = Process::all().find(is_init).expect("a process 1");
    for name in ["net", "ipc", "uts"] {
        assert_eq!(namespace(init, name), namespace(container, name), "{name}");
    }
}

/// Other users of the machine cannot read configurations, which contain the environment, or connect to a keeper.
fn check_permissions(cluster: &Cluster) {
    let is_private = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 == 0);
    let engine = cluster.data_dir().join("engine");
    assert!(is_private(&engine) && is_private(Path::new("/run/podium/oci")));
    let mut checked = 0;
    for sandbox in fs::read_dir(engine.join("pods")).unwrap().map(|entry| entry.unwrap().path()) {
        assert!(is_private(&sandbox), "{}", sandbox.display());
        let containers = fs::read_dir(sandbox.join("containers")).into_iter().flatten().flatten();
        for path in containers.map(|entry| entry.path().join("config.json")).chain([sandbox.join("keeper.sock")]) {
            // A Pod may end meanwhile.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            assert_eq!(metadata.mode() & 0o077, 0, "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 6, "{checked}");
}

#[e2e_test("processes of containers cannot exhaust the engine, or outlive their Pod")]
fn hostile_processes_are_bounded_and_killed() {
    let (cluster, _images) = start();
    let kubectl = cluster.kubectl_in("default");
    let bomb = "f(){ f | f & }; f 2>/dev/null; exec sleep 100000";
    let daemon = "setsid sh -c 'while :; do echo x; done' & sleep 1; exit";
    let (shared, host) = (json!({"shareProcessNamespace": true}), json!({"hostPID": true}));
    let pods = [
        ("flood", "tr '\\0' x < /dev/zero", json!({})),
        ("lines", "tr '\\0' '\\n' < /dev/zero", json!({})),
        ("bomb", bomb, host.clone()),
        ("stopped", "kill -STOP $$; sleep 100000", json!({})),
        ("zombies", "while :; do (true &) ; done", host.clone()),
        ("idle", "sleep 100000", json!({})),
    ];
    for (name, script, spec) in &pods {
        let limits = json!({"limits": {"cpu": "100m"}});
        kubectl.apply(&pod(name, script).spec(spec).resources(&limits).to_string());
    }
    for (name, spec, code) in [("daemon", json!({}), 3), ("daemon-shared", shared, 4), ("daemon-host", host, 5)] {
        kubectl.apply(&pod(name, &format!("{daemon} {code}")).spec(&spec).to_string());
    }
    // A daemon that has the streams of an ended process delays neither the exit nor the end of the log.
    for (name, code) in [("daemon", 3), ("daemon-shared", 4), ("daemon-host", 5)] {
        kubectl.wait_value(
            &format!("pod/{name}"),
            "/status/containerStatuses/0/state/terminated/exitCode",
            &json!(code),
        );
        // The end of the log may be in the middle of a line.
        let end = kubectl.run(&format!("logs -f --tail=1 {name}")).ok();
        assert!(end.contains('x'), "{name}: {end:?}");
    }
    for name in pods.iter().map(|(name, ..)| name) {
        kubectl.wait_ready(name);
    }
    // A client that does not read its output stops the command, and nothing else.
    let mut clients: Vec<Child> = (0..4).map(|_| unread_exec(&kubectl)).collect();
    let answers = || kubectl.args(&["exec", "idle", "--", "echo", "here"], "").ok() == "here\n";
    let uids: Vec<String> = pods.iter().map(|(name, ..)| uid(&kubectl, name)).collect();
    for uid in &uids {
        let keeper = keeper(&cluster, uid);
        assert!(memory(keeper) < MAX_KEEPER_MEMORY, "{}", memory(keeper));
    }
    assert!(answers());
    // Nothing survives a killed keeper, also not what forks in the node's process namespace.
    kill(keeper(&cluster, &uids[2]).0, Signal::SIGKILL).unwrap();
    kubectl.wait_value("pod/bomb", "/status/phase", &json!("Failed"));
    eventually("the fork bomb to end", || Process::of_pod(&uids[2]).next().is_none());
    kubectl.run("delete pods --all --timeout=150s").ok();
    eventually("all processes to end", || uids.iter().all(|uid| Process::of_pod(uid).next().is_none()));
    for client in &mut clients {
        let _ = client.kill();
        let _ = client.wait();
    }
}

/// Starts a command with endless output, whose client does not read it.
fn unread_exec(kubectl: &Kubectl) -> Child {
    let mut command = kubectl.command(&["exec", "idle", "--", "sh", "-c", "tr '\\0' x < /dev/zero"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}
