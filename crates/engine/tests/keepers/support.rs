//! A node with an engine, whose process ends with its [`TestEngine`].

use engine::{Engine, EngineError, EngineOptions, PodNetwork, PodNetworkError};
use futures::future::BoxFuture;
use images::ImageStore;
use parking_lot::Mutex;
use runtime::{
    ContainerConfig, ContainerId, ContainerState, ContainerStatus, NamespaceMode, Namespaces, Runtime, SandboxConfig,
    SandboxId,
};
use std::{
    fs::{self, File, Permissions},
    net::IpAddr,
    ops::Deref,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

/// Deadline of every condition.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns whether the tests can run here, or prints why not.
pub(crate) fn can_run() -> bool {
    let has_runc = Command::new("runc").arg("--version").output().is_ok_and(|output| output.status.success());
    let has_busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().any(|path| Path::new(path).exists());
    let problem = match (nix::unistd::geteuid().is_root(), has_runc, has_busybox) {
        (false, ..) => "needs root",
        (_, false, _) => "runc is not installed",
        (.., false) => "busybox is not installed",
        _ => return true,
    };
    println!("skipped: {problem}");
    false
}

/// A network without addresses, which logs what it releases.
#[derive(Default)]
pub(crate) struct NoAddresses(Mutex<Vec<String>>);

impl NoAddresses {
    fn log(&self, call: String) -> BoxFuture<'_, Result<(), PodNetworkError>> {
        self.0.lock().push(call);
        Box::pin(async { Ok(()) })
    }

    /// Returns the releases so far.
    pub(crate) fn releases(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl PodNetwork for NoAddresses {
    fn attach<'a>(
        &'a self,
        _: &'a str,
        _: &'a Path,
        _: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, PodNetworkError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn detach<'a>(&'a self, sandbox: &'a str) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        self.log(format!("detach {sandbox}"))
    }

    fn retain<'a>(&'a self, sandboxes: &'a [String]) -> BoxFuture<'a, Result<(), PodNetworkError>> {
        self.log(format!("retain {sandboxes:?}"))
    }
}

/// A node: a data directory and an image store, which are removed at the end of the test with all containers.
pub(crate) struct Node {
    dir: tempfile::TempDir,
}

impl Node {
    /// Creates a node. Its OCI runtime waits before `run` while a file of that name exists in the directory.
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("engine-").tempdir().unwrap();
        let node = Self { dir };
        let program = node.path("slow-runc");
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *\" run \"*)\n\
             touch {0}/run-began; while [ -e {0}/run ]; do sleep 0.02; done;;\nesac\nexec runc \"$@\"\n",
            node.dir.path().display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(node.path("data")).unwrap();
        let handlers = format!("defaultHandler: runc\nhandlers:\n  runc: {{program: {}}}\n", program.display());
        fs::write(node.path("data/runtimes.yaml"), handlers).unwrap();
        node
    }

    /// Creates a node whose OCI runtime runs each Pod in a sandbox.
    pub(crate) fn with_sandboxes() -> Self {
        let node = Self::new();
        let program = node.path("sandbox-runtime");
        fs::write(&program, include_str!("sandbox_runtime.sh")).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let handler = format!("{{program: {}, sandboxContainer: true}}", program.display());
        let handlers = format!("defaultHandler: sandboxed\nhandlers:\n  sandboxed: {handler}\n");
        fs::write(node.path("data/runtimes.yaml"), handlers).unwrap();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn import_busybox(&self) {
        let archive = self.path("busybox.tar");
        test_images::busybox(&archive, &[test_images::BUSYBOX], &test_images::ImageConfig::default()).unwrap();
        self.images().import(File::open(archive).unwrap(), |_| {}).unwrap();
    }

    fn images(&self) -> ImageStore {
        ImageStore::open(&self.path("images")).unwrap()
    }

    fn cgroup(&self) -> String {
        format!("/{}", self.dir.path().file_name().unwrap().to_str().unwrap().replace('.', ""))
    }

    pub(crate) async fn open(&self) -> Result<Engine, EngineError> {
        self.open_with(Arc::new(NoAddresses::default())).await
    }

    pub(crate) async fn open_with(&self, network: Arc<dyn PodNetwork>) -> Result<Engine, EngineError> {
        Engine::open(EngineOptions {
            data_dir: self.path("data"),
            images: self.images(),
            images_imported: tokio::sync::watch::Sender::new(true).subscribe(),
            registry_hosts_dirs: Vec::new(),
            keeper_program: env!("CARGO_BIN_EXE_test-engine-keeper").into(),
            default_handler: "runc".to_owned(),
            node_name: "node".to_owned(),
            network,
        })
        .await
    }

    /// Starts an engine in tasks of its own.
    pub(crate) fn start(&self) -> TestEngine {
        let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let engine = tasks.block_on(self.open()).unwrap();
        TestEngine { engine, tasks: Some(tasks) }
    }

    pub(crate) fn sandbox_config(&self) -> SandboxConfig {
        let namespaces =
            Namespaces { network: NamespaceMode::Pod, pid: NamespaceMode::Container, ..Namespaces::default() };
        SandboxConfig {
            name: "p".to_owned(),
            namespace: "default".to_owned(),
            uid: "uid".to_owned(),
            hostname: "p".to_owned(),
            log_directory: self.dir.path().to_owned(),
            cgroup_parent: Some(self.cgroup()),
            namespaces,
            ..SandboxConfig::default()
        }
    }

    pub(crate) fn container_dir(&self, sandbox: &SandboxId, id: &ContainerId) -> PathBuf {
        self.path("data/engine/pods").join(&sandbox.0).join("containers").join(&id.0)
    }

    /// Returns the lines of a container's log.
    pub(crate) fn log(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(str::to_owned).collect()
    }

    pub(crate) fn keeper_pid(&self, sandbox: &SandboxId) -> i32 {
        let path = self.path("data/engine/pods").join(&sandbox.0).join("keeper.pid");
        let text = fs::read_to_string(path).unwrap();
        text.split_once("\"pid\":").unwrap().1.split(',').next().unwrap().parse().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let data = self.path("data");
        let destroy = move || {
            let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tasks.block_on(engine::destroy(&data))
        };
        // Not within the runtime of the test.
        let _ = std::thread::spawn(destroy).join();
        let below = self.cgroup();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_cgroups(&hierarchy.path().join(below.trim_start_matches('/')));
        }
        remove_cgroups(&Path::new("/sys/fs/cgroup").join(below.trim_start_matches('/')));
    }
}

fn remove_cgroups(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_cgroups(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

/// An engine whose tasks and connections end with it, as those of a killed Podium.
pub(crate) struct TestEngine {
    engine: Engine,
    tasks: Option<tokio::runtime::Runtime>,
}

impl Deref for TestEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Starts an engine with a sandbox; `None` where it cannot run.
pub(crate) fn start_with_sandbox() -> Option<(Node, TestEngine, SandboxId)> {
    if !can_run() {
        return None;
    }
    let node = Node::new();
    node.import_busybox();
    let engine = node.start();
    let sandbox = engine.run_sandbox(&node);
    Some((node, engine, sandbox))
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        if let Some(tasks) = self.tasks.take() {
            tasks.shutdown_background();
        }
    }
}

impl TestEngine {
    /// Runs calls in the tasks of the engine.
    pub(crate) fn run<T>(&self, calls: impl Future<Output = T>) -> T {
        self.tasks.as_ref().unwrap().block_on(calls)
    }

    /// Begins a call in the tasks of the engine.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.tasks.as_ref().unwrap().spawn(call)
    }

    pub(crate) fn run_sandbox(&self, node: &Node) -> SandboxId {
        self.run(self.engine.run_sandbox(&node.sandbox_config())).unwrap()
    }

    pub(crate) fn create(&self, node: &Node, sandbox: &SandboxId, config: &ContainerConfig) -> ContainerId {
        self.run(self.engine.create_container(sandbox, config, &node.sandbox_config())).unwrap()
    }

    pub(crate) fn status(&self, id: &ContainerId) -> ContainerStatus {
        self.run(self.engine.container(id)).unwrap()
    }

    /// Waits for the exit of a container, and returns its code.
    pub(crate) fn exit_code(&self, id: &ContainerId) -> i32 {
        eventually("an exit", || self.status(id).state == ContainerState::Exited);
        self.status(id).exit.unwrap().code
    }
}

/// Returns a container that runs a script.
pub(crate) fn container(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        name: name.to_owned(),
        image_ref: test_images::BUSYBOX.to_owned(),
        image: test_images::BUSYBOX.to_owned(),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        log_path: format!("{name}.log").into(),
        security: runtime::SecurityContext {
            namespaces: Namespaces { pid: NamespaceMode::Container, ..Namespaces::default() },
            ..runtime::SecurityContext::default()
        },
        ..ContainerConfig::default()
    }
}

/// Waits until a condition is true.
pub(crate) fn eventually(expected: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {expected}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
