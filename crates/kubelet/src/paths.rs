//! Where things are on disk.

use k8s_openapi::api::core::v1::Pod as ApiPod;
use std::path::PathBuf;

/// Where things are on disk, all below one directory.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    root: PathBuf,
}

impl Paths {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// One file per Pod that must not be forgotten.
    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// When the node was shut down last; upstream's name.
    pub(crate) fn shutdown_state(&self) -> PathBuf {
        self.root.join("graceful_node_shutdown_state")
    }

    /// Which images were pulled, and with whose credentials.
    pub(crate) fn image_manager(&self) -> PathBuf {
        self.root.join("image_manager")
    }

    /// One directory per Pod, named by UID.
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

    /// The file in which one attempt of a container leaves its last words: what an earlier one wrote stays its own.
    pub(crate) fn termination_message(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(format!("{attempt}.termination"))
    }

    /// What `subPath` mounts are bound to.
    pub(crate) fn sub_paths(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("volume-subpaths")
    }

    pub(crate) fn sub_path(&self, uid: &str, volume: &str, container: &str, index: usize) -> PathBuf {
        self.sub_paths(uid).join(volume).join(container).join(index.to_string())
    }

    /// Seccomp profiles of the node.
    pub(crate) fn seccomp(&self) -> PathBuf {
        self.root.join("seccomp")
    }

    pub(crate) fn hosts_file(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// One directory per Pod, with one per container in it (upstream's `/var/log/pods`).
    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn pod_logs(&self, pod: &ApiPod) -> PathBuf {
        let word = |w: &Option<String>| w.clone().unwrap_or_default();
        let meta = &pod.metadata;
        self.logs().join(format!("{}_{}_{}", word(&meta.namespace), word(&meta.name), word(&meta.uid)))
    }

    pub(crate) fn log(&self, pod: &ApiPod, container: &str, attempt: u32) -> PathBuf {
        self.pod_logs(pod).join(container).join(format!("{attempt}.log"))
    }
}
