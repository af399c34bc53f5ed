//! A Podium of a test's own: its data directory, its port, its containers; all gone when the test ends.

use crate::{Kubectl, Process, Setup, setup, wait_for};
use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::Value;
use std::{
    cell::RefCell,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// How long a cluster may take to come up on a machine that compiles beside it.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

thread_local! {
    /// The namespaces of the tests that this thread ran, until they are removed.
    static MADE: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A running `podium up`.
#[derive(Debug)]
pub struct Cluster {
    child: Option<Child>,
    setup: Setup,
    dir: tempfile::TempDir,
    namespaces: AtomicU32,
}

/// The binary under test; `cargo xtask test` builds it.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn podium_binary() -> PathBuf {
    let mut dir = std::env::current_exe().expect("this test has a path");
    while dir.pop() {
        let candidate = dir.join("podium");
        if candidate.is_file() {
            return candidate;
        }
    }
    panic!("podium is not built: cargo build --package podium");
}

impl Cluster {
    /// Boots a cluster with a busybox image and waits until its node is Ready.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        Setup::default().args(args).start()
    }

    pub(crate) fn boot_first(setup: Setup) -> Self {
        let dir = tempfile::Builder::new().prefix("podium-e2e-").tempdir().expect("a temporary directory");
        let images = setup.images;
        let mut cluster = Self { child: None, setup, dir, namespaces: AtomicU32::new(0) };
        cluster.up();
        if images {
            cluster.import_busybox();
        }
        cluster
    }

    /// Gives the kubelet a configuration with these fields when Podium comes up the next time.
    pub fn configure(&mut self, kubelet: Value) {
        self.setup.kubelet = setup::configuration(kubelet);
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    /// What Podium has printed and logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("podium.log")
    }

    /// Starts Podium (again) and waits until the node is Ready.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn up(&mut self) {
        self.boot("is Ready");
    }

    /// Starts Podium again and waits only until the API serves.
    ///
    /// # Panics
    /// When it does not.
    pub fn up_to_api(&mut self) {
        self.boot("API serves");
    }

    fn boot(&mut self, until: &str) {
        let seen = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_file()).expect("a log file");
        let mut command = Command::new(podium_binary());
        // JSON is YAML.
        let kubelet = self.dir.path().join("kubelet.yaml");
        std::fs::write(&kubelet, self.setup.kubelet.to_string()).expect("a file");
        command.args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(self.data_dir());
        command.arg("--kubelet-config").arg(kubelet).args(&self.setup.args).envs(self.setup.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
        self.child = Some(command.spawn().expect("podium starts"));
        wait_for(&format!("Podium to say {until:?}"), BOOT_LIMIT, || {
            let log = self.log();
            if log.get(seen..).is_some_and(|new| new.contains(until)) { Ok(()) } else { Err(log) }
        });
    }

    fn import_busybox(&self) {
        let tar = self.dir.path().join("busybox.tar");
        test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default())
            .expect("a busybox image");
        self.import(&tar);
    }

    /// `podium image import`.
    ///
    /// # Panics
    /// When it fails.
    pub fn import(&self, tar: &Path) {
        let output = self.podium(&["image", "import", &tar.display().to_string()]).output().expect("podium starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A podium command for this cluster's data directory.
    #[must_use]
    pub fn podium(&self, args: &[&str]) -> Command {
        let mut command = Command::new(podium_binary());
        command.args(args).env("PODIUM_DATA_DIR", self.data_dir());
        command
    }

    /// Podium's process.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("podium runs").id();
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }

    /// Ends Podium with a signal and waits until it is gone.
    ///
    /// # Panics
    /// When it does not run, or does not end within 30 s.
    pub fn kill(&mut self, signal: Signal) {
        self.signal(signal);
        self.buried();
    }

    /// Sends Podium a signal.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("podium runs");
    }

    /// Waits until Podium has ended.
    ///
    /// # Panics
    /// When it was not running, or does not end within 30 s.
    pub fn buried(&mut self) {
        let mut child = self.child.take().expect("podium runs");
        wait_for("podium to end", Duration::from_secs(30), || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.log())),
        });
    }

    /// The process of the cluster's own containerd, if there is one.
    #[must_use]
    pub fn find_containerd(&self) -> Option<Pid> {
        let marker = self.data_dir().display().to_string();
        let own = |process: &Process| process.name() == "containerd" && process.command().contains(&marker);
        Process::all().find(own).map(|process| process.0)
    }

    /// The process of the cluster's own containerd.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn containerd(&self) -> Pid {
        self.find_containerd().expect("containerd runs")
    }

    /// A client of kube-rs.
    ///
    /// # Panics
    /// When the kubeconfig cannot be used.
    #[must_use]
    pub fn client(&self, runtime: &tokio::runtime::Runtime) -> kube::Client {
        let _guard = runtime.enter();
        let kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
        let config = runtime.block_on(config).expect("a kubeconfig that can be used");
        kube::Client::try_from(config).expect("a client")
    }

    /// kubectl in a namespace of the test's own.
    ///
    /// # Panics
    /// When the namespace cannot be made.
    #[track_caller]
    pub fn kubectl(&self) -> Kubectl {
        let n = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("test-{n}");
        self.kubectl_in("default").apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}"));
        MADE.with_borrow_mut(|made| made.push(namespace.clone()));
        self.kubectl_in(&namespace)
    }

    /// Begins to remove the namespaces that this thread has made: what a test leaves would slow down those after it.
    pub fn clear(&self) {
        for namespace in MADE.take() {
            let kubectl = self.kubectl_in(&namespace);
            // A test may have removed it already.
            let _ = kubectl.run("delete pods --all --grace-period=1 --wait=false");
            let _ = kubectl.run(&format!("delete namespace {namespace} --wait=false"));
        }
    }

    /// kubectl in a namespace that is there.
    #[must_use]
    pub fn kubectl_in(&self, namespace: &str) -> Kubectl {
        Kubectl::new(self.kubeconfig(), namespace)
    }
}

impl Drop for Cluster {
    /// Removes everything; what goes wrong here must not hide why a test failed.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- podium's log ---\n{}", self.log());
        }
        let _ = self.podium(&["down"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
