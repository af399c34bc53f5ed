//! Pods with a keeper and containers of busybox.

use keeper::{Client, ContainerOptions, Event, Events, Exit, KeeperConfig, NamespaceModes, OciRuntime};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Deadline of every condition.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// Returns the OCI runtime of the tests.
fn runtime() -> String {
    std::env::var("KEEPER_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned())
}

/// Returns whether the tests can run here, or prints why not.
pub(crate) fn can_run() -> bool {
    let has_runc = Command::new(runtime()).arg("--version").output().is_ok_and(|output| output.status.success());
    let problem = match (nix::unistd::geteuid().is_root(), has_runc, busybox()) {
        (false, ..) => "needs root",
        (_, false, _) => "the OCI runtime is not installed",
        (.., None) => "busybox is not installed",
        _ => return true,
    };
    println!("skipped: {problem}");
    false
}

fn busybox() -> Option<&'static str> {
    BUSYBOX.into_iter().find(|path| Path::new(path).exists())
}

/// The keeper of a Pod, which is killed at the end of the test with its containers.
pub(crate) struct Pod {
    dir: tempfile::TempDir,
    other_dirs: Vec<PathBuf>,
    pub(crate) client: Client,
    pub(crate) events: Events,
}

/// Options and process of a container.
pub(crate) struct ContainerSpec {
    pub(crate) args: Vec<String>,
    pub(crate) options: ContainerOptions,
    pub(crate) memory: Option<i64>,
    pub(crate) pid_namespace: Option<PathBuf>,
    pub(crate) namespaces: Vec<(&'static str, PathBuf)>,
}

impl ContainerSpec {
    pub(crate) fn shell(script: &str) -> Self {
        let args = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let options = ContainerOptions::default();
        Self { args, options, memory: None, pid_namespace: None, namespaces: Vec::new() }
    }
}

impl Pod {
    pub(crate) async fn start() -> Self {
        Self::with(NamespaceModes::default(), |_| {}).await
    }

    pub(crate) async fn with(namespaces: NamespaceModes, change: impl FnOnce(&mut KeeperConfig)) -> Self {
        let dir = tempfile::Builder::new().prefix("keeper-").tempdir().unwrap();
        let mut config = KeeperConfig {
            version: keeper::PROTOCOL_VERSION,
            sandbox_id: "sandbox".to_owned(),
            hostname: None,
            namespaces,
            user_mapping: None,
            sysctls: std::collections::BTreeMap::new(),
            runtime: OciRuntime {
                program: runtime().into(),
                root: dir.path().join("state"),
                args: Vec::new(),
                direct_kill: true,
                refuses_hybrid_cgroups: runtime() == "crun",
                sandbox_container: false,
                timeout_seconds: 120,
            },
        };
        change(&mut config);
        fs::write(dir.path().join("keeper.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        make_root(&dir.path().join("rootfs"));
        let client = Client::spawn(Path::new(env!("CARGO_BIN_EXE_test-keeper")), dir.path()).await.unwrap();
        let events = client.subscribe().await.unwrap();
        Self { dir, other_dirs: Vec::new(), client, events }
    }

    /// Removes another directory at the end of the test, too.
    pub(crate) fn remove_at_end(&mut self, dir: &Path) {
        self.other_dirs.push(dir.to_owned());
    }

    pub(crate) fn sandbox(&self) -> &Path {
        self.dir.path()
    }

    /// Returns a name that is unique on the machine, for the container and its cgroup.
    pub(crate) fn id(&self, name: &str) -> String {
        let unique = self.sandbox().file_name().unwrap().to_str().unwrap().replace('.', "");
        format!("{unique}-{name}")
    }

    pub(crate) fn log_path(&self, id: &str) -> PathBuf {
        self.sandbox().join(format!("{id}.log"))
    }

    /// Writes the files of a container.
    pub(crate) fn prepare(&self, id: &str, spec: &ContainerSpec) {
        let dir = Client::container_dir(self.sandbox(), id);
        fs::create_dir_all(&dir).unwrap();
        let mut options = spec.options.clone();
        options.log_path = Some(self.log_path(id));
        options.oom_events = Some(oom_events(id));
        fs::write(dir.join("container.json"), serde_json::to_vec(&options).unwrap()).unwrap();
        fs::write(dir.join("config.json"), oci_config(self.sandbox(), id, spec).to_string()).unwrap();
    }

    pub(crate) async fn create(&self, name: &str, spec: &ContainerSpec) -> (String, i32) {
        let id = self.id(name);
        self.prepare(&id, spec);
        let pid = self.client.create_container(&id).await.unwrap();
        (id, pid)
    }

    pub(crate) async fn run(&self, name: &str, spec: &ContainerSpec) -> String {
        let id = self.id(name);
        self.prepare(&id, spec);
        self.client.run_container(&id).await.unwrap();
        id
    }

    /// Waits for the exit of a container.
    pub(crate) async fn exit(&mut self, expected: &str) -> Exit {
        loop {
            match timeout(DEADLINE, self.events.next()).await.expect("an exit in time").expect("a keeper") {
                Event::ContainerExited { id, exit } if id == expected => return exit,
                _ => {}
            }
        }
    }

    /// Waits for the exit of a process of `exec`.
    pub(crate) async fn exec_exit(&mut self, expected: &str) -> i32 {
        loop {
            match timeout(DEADLINE, self.events.next()).await.expect("an exit in time").expect("a keeper") {
                Event::ExecExited { exec_id, exit_code, .. } if exec_id == expected => return exit_code,
                _ => {}
            }
        }
    }

    /// Returns stream and text of a log's entries.
    pub(crate) fn log(&self, id: &str) -> Vec<(String, String)> {
        entries(&fs::read_to_string(self.log_path(id)).unwrap())
    }

    /// Writes OCI's `process` for `exec`.
    pub(crate) fn process(&self, script: &str, terminal: bool) -> PathBuf {
        let path = self.sandbox().join("process.json");
        let args = ["/bin/sh", "-c", script].map(str::to_owned);
        fs::write(&path, oci_process(&args, terminal).to_string()).unwrap();
        path
    }

    pub(crate) fn keeper_pid(&self) -> i32 {
        self.client.hello().pid
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.sandbox().join("containers")).into_iter().flatten().flatten() {
            let mut delete = Command::new(runtime());
            delete.arg("--root").arg(self.sandbox().join("state")).args(["delete", "--force"]).arg(entry.file_name());
            let _ = delete.output();
        }
        let pid = Pid::from_raw(self.keeper_pid());
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "podium-keeper" {
            let _ = kill(pid, Signal::SIGKILL);
        }
        for dir in &self.other_dirs {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

/// Returns stream and text of the entries of a log.
pub(crate) fn entries(text: &str) -> Vec<(String, String)> {
    assert!(text.is_empty() || text.ends_with('\n'), "a torn entry");
    let entry = |line: &str| {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        assert!(parts.len() == 4 && parts[0].len() == 30 && matches!(parts[2], "F" | "P"), "{line}");
        (parts[1].to_owned(), parts[3].to_owned())
    };
    text.split_terminator('\n').map(entry).collect()
}

/// Waits until a condition is true.
pub(crate) async fn eventually(expected: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {expected}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn make_root(root: &Path) {
    for dir in ["bin", "proc", "dev", "sys", "tmp"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy(busybox().unwrap(), root.join("bin/busybox")).unwrap();
    let list = Command::new(busybox().unwrap()).arg("--list").output().unwrap();
    for applet in String::from_utf8(list.stdout).unwrap().lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
}

fn is_cgroup_v1() -> bool {
    Path::new("/sys/fs/cgroup/memory").is_dir()
}

fn oom_events(id: &str) -> PathBuf {
    let (dir, file) = if is_cgroup_v1() { ("memory/", "memory.oom_control") } else { ("", "memory.events") };
    PathBuf::from(format!("/sys/fs/cgroup/{dir}{id}/{file}"))
}

fn oci_process(args: &[String], terminal: bool) -> Value {
    json!({
        "terminal": terminal,
        "user": { "uid": 0, "gid": 0 },
        "args": args,
        "env": ["PATH=/bin", "TERM=xterm"],
        "cwd": "/",
        "noNewPrivileges": true,
    })
}

fn oci_config(sandbox: &Path, id: &str, spec: &ContainerSpec) -> Value {
    let mut namespaces = vec![json!({ "type": "mount" })];
    if spec.namespaces.is_empty() {
        namespaces.push(json!({ "type": "network" }));
    }
    namespaces.push(match &spec.pid_namespace {
        Some(path) => json!({ "type": "pid", "path": path }),
        None => json!({ "type": "pid" }),
    });
    namespaces.extend(spec.namespaces.iter().map(|(kind, path)| json!({ "type": kind, "path": path })));
    let devpts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    json!({
        "ociVersion": "1.0.2",
        "process": oci_process(&spec.args, spec.options.terminal),
        "root": { "path": sandbox.join("rootfs"), "readonly": true },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": devpts },
        ],
        "linux": {
            "namespaces": namespaces,
            "cgroupsPath": format!("/{id}"),
            "resources": spec.memory.map_or_else(|| json!({}), |limit| json!({ "memory": { "limit": limit } })),
        },
    })
}
