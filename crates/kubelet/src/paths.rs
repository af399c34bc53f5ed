//! Paths of the kubelet's files.

use k8s_openapi::api::core::v1::Pod as ApiPod;
use std::path::PathBuf;

/// Paths of the kubelet's files, below its root directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    root: PathBuf,
}

impl Paths {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Directory of checkpoints, one file per Pod.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// State file of node shutdown; upstream's name.
    pub(crate) fn shutdown_state(&self) -> PathBuf {
        self.root.join("graceful_node_shutdown_state")
    }

    /// Directory of image pull records.
    pub(crate) fn image_manager(&self) -> PathBuf {
        self.root.join("image_manager")
    }

    /// Directory with one directory per Pod, named by UID.
    pub(crate) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub(crate) fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    pub(crate) fn volumes(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    pub(crate) fn volume(&self, uid: &str, volume: &str) -> PathBuf {
        self.volumes(uid).join(volume)
    }

    /// Termination message file of one attempt: each attempt has its own.
    pub(crate) fn termination_message(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(format!("{attempt}.termination"))
    }

    /// Mount points of `subPath` mounts.
    pub(crate) fn sub_paths(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    pub(crate) fn sub_path(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        self.sub_paths(uid).join(volume).join(container).join(index.to_string())
    }

    /// Directory of seccomp profiles.
    pub(crate) fn seccomp(&self) -> PathBuf {
        self.root.join("seccomp")
    }

    pub(crate) fn hosts_file(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// Directory of logs: one directory per Pod, one per container in it (upstream's `/var/log/pods`).
    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn pod_logs(&self, pod: &ApiPod) -> PathBuf {
        let text = |w: &Option<String>| w.clone().unwrap_or_default();
        let meta = &pod.metadata;
        self.logs().join(format!("{}_{}_{}", text(&meta.namespace), text(&meta.name), text(&meta.uid)))
    }

    pub(crate) fn log(&self, pod: &ApiPod, container: &str, attempt: u32) -> PathBuf {
        self.pod_logs(pod).join(container).join(format!("{attempt}.log"))
    }
}
