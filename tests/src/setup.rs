//! How a test's cluster differs from the one that most tests want.

use crate::Cluster;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A cluster to be.
#[derive(Debug, Clone)]
#[must_use = "nothing runs before it is started"]
pub struct Setup {
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) kubelet: Value,
    pub(crate) images: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { args: Vec::new(), env: Vec::new(), kubelet: configuration(json!({})), images: true }
    }
}

impl Setup {
    /// With these arguments of `podium up`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// With this variable in Podium's environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With these fields of the `KubeletConfiguration`.
    pub fn kubelet(mut self, fields: Value) -> Self {
        self.kubelet = configuration(fields);
        self
    }

    /// Without the busybox image.
    pub fn without_images(mut self) -> Self {
        self.images = false;
        self
    }

    /// Boots it and waits until its node is Ready.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(self) -> Cluster {
        Cluster::boot_first(self)
    }
}

/// Writes a `KubeletConfiguration` for a Podium that a test starts itself, and gives the file.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn kubelet_config_in(dir: &Path) -> PathBuf {
    let path = dir.join("kubelet.yaml");
    // JSON is YAML.
    std::fs::write(&path, configuration(json!({})).to_string()).expect("a file");
    path
}

/// A `KubeletConfiguration` with these fields. But for them it has room for the Pods of all tests, and a machine
/// whose disk is nearly full ends no Pods and removes no images: what a test says of Podium is not to depend on that.
pub(crate) fn configuration(fields: Value) -> Value {
    let mut all = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "imageGCHighThresholdPercent": 100, "evictionHard": {"memory.available": "100Mi", "nodefs.available": "64Mi"},
        "maxPods": 230});
    if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
        all.extend(fields);
    }
    all
}
