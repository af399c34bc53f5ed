//! Options of a test cluster.

use crate::Cluster;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Builder of a [`Cluster`].
#[derive(Debug, Clone)]
#[must_use = "the cluster runs after `start` only"]
pub struct ClusterBuilder {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) kubelet_config: Value,
    pub(crate) images: bool,
    pub(crate) program: Option<PathBuf>,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            args: Vec::new(),
            env: Vec::new(),
            kubelet_config: kubelet_configuration(json!({})),
            images: true,
            program: None,
        }
    }
}

impl ClusterBuilder {
    /// Adds arguments of `podium up`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Adds a variable to Podium's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs Pods in an external container runtime instead of Podium's engine.
    pub fn runtime_endpoint(self, endpoint: &str) -> Self {
        self.args(&["--runtime-endpoint", endpoint])
    }

    /// Sets fields of the `KubeletConfiguration`.
    pub fn kubelet_config(mut self, fields: Value) -> Self {
        self.kubelet_config = kubelet_configuration(fields);
        self
    }

    /// Skips the import of the busybox image. The cluster shares its images with no other one, unless
    /// the test sets `PODIUM_IMAGE_STORE`.
    pub fn without_images(mut self) -> Self {
        self.images = false;
        self
    }

    /// Runs this program in place of the binary under test, for example a copy that the test may damage.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Starts the cluster and waits until its node is Ready.
    ///
    /// # Panics
    /// When the cluster does not become ready in time.
    #[must_use]
    pub fn start(self) -> Cluster {
        Cluster::create(self)
    }
}

/// Writes a `KubeletConfiguration` file for a Podium that the test starts itself, and returns its path.
///
/// # Panics
/// When the file cannot be written.
#[must_use]
pub fn write_kubelet_config(dir: &Path) -> PathBuf {
    let path = dir.join("kubelet.yaml");
    // JSON is YAML.
    std::fs::write(&path, kubelet_configuration(json!({})).to_string()).expect("a file");
    path
}

/// Returns a `KubeletConfiguration` with these fields.
///
/// The other fields raise `maxPods` for concurrent tests, and avoid evictions and image garbage collection on a machine
/// whose disk is nearly full.
pub(crate) fn kubelet_configuration(fields: Value) -> Value {
    let mut all = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "64Mi"},
        "maxPods": 230});
    if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
        all.extend(fields);
    }
    all
}
