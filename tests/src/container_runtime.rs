//! The container runtime of the clusters under test.

use std::path::Path;

/// What runs the containers of test clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerRuntime {
    /// A containerd that Podium starts.
    Containerd,
    /// Podium's engine.
    Engine,
}

impl ContainerRuntime {
    /// Variable of the flag `--container-runtime`.
    pub const VARIABLE: &str = "PODIUM_CONTAINER_RUNTIME";

    /// Returns the runtime that a cluster uses, by its data directory.
    #[must_use]
    pub fn of_cluster(data_dir: &Path) -> Self {
        if data_dir.join("engine").exists() { Self::Engine } else { Self::Containerd }
    }

    /// Returns the variable that makes `podium up` use this runtime.
    #[must_use]
    pub fn variable(self) -> (&'static str, &'static str) {
        let value = match self {
            Self::Containerd => "containerd",
            Self::Engine => "engine",
        };
        (Self::VARIABLE, value)
    }
}
