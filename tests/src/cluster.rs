//! A cluster for tests: a `podium up` process with its own data directory, port and containers, removed on drop.

use crate::{ClusterBuilder, Kubectl, cluster_builder, wait_for};
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

/// Boot timeout. It allows for a machine that compiles at the same time.
const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    /// Namespaces that tests on this thread created and that are not deleted yet, with the kubeconfig of their cluster: all
    /// clusters have the same names.
    static NAMESPACES: RefCell<Vec<(PathBuf, String)>> = const { RefCell::new(Vec::new()) };
}

/// A running `podium up`.
#[derive(Debug)]
pub struct Cluster {
    child: Option<Child>,
    builder: ClusterBuilder,
    dir: tempfile::TempDir,
    namespaces: AtomicU32,
}

/// Returns the path of the binary under test, which `cargo xtask test` builds.
///
/// # Panics
/// When the binary is not built.
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
    /// Starts a cluster with a busybox image and waits until its node is Ready.
    ///
    /// # Panics
    /// When the cluster does not become ready in time.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        ClusterBuilder::default().args(args).start()
    }

    pub(crate) fn create(mut builder: ClusterBuilder) -> Self {
        let dir = tempfile::Builder::new().prefix("podium-e2e-").tempdir().expect("a temporary directory");
        let images = builder.images;
        if !images {
            // First, so that a store that the test has chosen counts.
            let store = dir.path().join("images").display().to_string();
            builder.env.insert(0, ("PODIUM_IMAGE_STORE".to_owned(), store));
        }
        let mut cluster = Self { child: None, builder, dir, namespaces: AtomicU32::new(0) };
        cluster.start_podium();
        if images {
            cluster.import_busybox();
        }
        cluster
    }

    /// Sets fields of the `KubeletConfiguration` for the next start of Podium.
    pub fn set_kubelet_config(&mut self, kubelet: Value) {
        self.builder.kubelet_config = cluster_builder::kubelet_configuration(kubelet);
    }

    /// Returns the data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns the path of the admin kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    /// Returns everything that Podium has printed and logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("podium.log")
    }

    /// Starts or restarts Podium and waits until the node is Ready.
    ///
    /// # Panics
    /// When the cluster does not become ready in time.
    pub fn start_podium(&mut self) {
        self.start_until("is Ready");
    }

    /// Starts or restarts Podium and waits only until the API serves.
    ///
    /// # Panics
    /// When the API does not serve in time.
    pub fn start_api(&mut self) {
        self.start_until("API serves");
    }

    fn start_until(&mut self, text: &str) {
        let seen = self.log().len();
        let log = File::options().create(true).append(true).open(self.log_file()).expect("a log file");
        let mut command = Command::new(self.program());
        // JSON is YAML.
        let kubelet = self.dir.path().join("kubelet.yaml");
        std::fs::write(&kubelet, self.builder.kubelet_config.to_string()).expect("a file");
        command.args(["up", "--bind", "127.0.0.1:0", "--data-dir"]).arg(self.data_dir());
        command.arg("--kubelet-config").arg(kubelet).args(&self.builder.args).envs(self.builder.env.iter().cloned());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log file")).stderr(log);
        self.child = Some(command.spawn().expect("podium starts"));
        wait_for(&format!("Podium to log {text:?}"), BOOT_TIMEOUT, || {
            let log = self.log();
            if log.get(seen..).is_some_and(|new| new.contains(text)) { Ok(()) } else { Err(log) }
        });
    }

    fn import_busybox(&self) {
        let tar = self.dir.path().join("busybox.tar");
        test_images::busybox(&tar, &[test_images::BUSYBOX], &test_images::ImageConfig::default())
            .expect("a busybox image");
        self.import(&tar);
    }

    /// Runs `podium image import`.
    ///
    /// # Panics
    /// When the command fails.
    pub fn import(&self, tar: &Path) {
        let output = self.podium(&["image", "import", &tar.display().to_string()]).output().expect("podium starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn program(&self) -> PathBuf {
        self.builder.program.clone().unwrap_or_else(podium_binary)
    }

    /// Returns a `podium` command with this cluster's data directory.
    #[must_use]
    pub fn podium(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.args(args).envs(self.builder.env.iter().cloned()).env("PODIUM_DATA_DIR", self.data_dir());
        command
    }

    /// Returns the process ID of Podium.
    ///
    /// # Panics
    /// When Podium is not running.
    #[must_use]
    pub fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("podium runs").id();
        Pid::from_raw(i32::try_from(id).expect("a process id"))
    }

    /// Sends Podium a signal and waits until it has exited.
    ///
    /// # Panics
    /// When Podium is not running, or does not exit within 90 s.
    pub fn stop_podium(&mut self, signal: Signal) {
        self.signal(signal);
        self.wait_for_exit();
    }

    /// Sends Podium a signal.
    ///
    /// # Panics
    /// When Podium is not running.
    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("podium runs");
    }

    /// Waits until Podium has exited.
    ///
    /// # Panics
    /// When Podium is not running, or does not exit within 90 s.
    pub fn wait_for_exit(&mut self) {
        let mut child = self.child.take().expect("podium runs");
        wait_for("podium to exit", Duration::from_secs(90), || match child.try_wait() {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.log())),
        });
    }

    /// Returns a kube-rs client for the admin kubeconfig.
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

    /// Creates a namespace and returns kubectl for it.
    ///
    /// # Panics
    /// When the namespace cannot be created.
    #[track_caller]
    pub fn kubectl(&self) -> Kubectl {
        let n = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("test-{n}");
        self.kubectl_in("default").apply(&format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}}}"));
        NAMESPACES.with_borrow_mut(|names| names.push((self.kubeconfig(), namespace.clone())));
        self.kubectl_in(&namespace)
    }

    /// Starts the deletion of this thread's namespaces in this cluster, so that leftovers do not slow down later tests.
    pub fn delete_namespaces(&self) {
        let own = self.kubeconfig();
        let (found, others): (Vec<_>, _) = NAMESPACES.take().into_iter().partition(|(cluster, _)| *cluster == own);
        NAMESPACES.set(others);
        for (_, namespace) in found {
            let kubectl = self.kubectl_in(&namespace);
            // The test may have deleted it already.
            let _ = kubectl.run("delete pods --all --grace-period=1 --wait=false");
            let _ = kubectl.run(&format!("delete namespace {namespace} --wait=false"));
        }
    }

    /// Returns kubectl for an existing namespace.
    #[must_use]
    pub fn kubectl_in(&self, namespace: &str) -> Kubectl {
        Kubectl::new(self.kubeconfig(), namespace)
    }
}

impl Drop for Cluster {
    /// Removes the cluster. Errors are ignored, for they must not hide why a test failed.
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
