//! Node-pressure eviction: which Pod is evicted under resource pressure (`pkg/kubelet/eviction`).
//!
//! Figures come in, decisions come out: [`Watch`] turns the node's figures into conditions and, when a threshold has been
//! crossed for long enough, into something to reclaim; [`victim`] names the Pod that is to go for it; [`over_limits`]
//! names what a Pod itself has promised not to use.

mod local_storage;
mod message;
mod ranking;
mod synchronize;

pub use local_storage::{has_limits, over_limits};
pub use ranking::victim;
pub use synchronize::{Starved, Watch, is_enough};

use crate::Pressure;
use api::quantity::{Amount, QuantityError};
use k8s_openapi::api::core::v1::Pod;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What a Pod gets that must go at once, in seconds (`immediateEvictionGracePeriodSeconds`).
const AT_ONCE: u32 = 1;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory of the node.
    MemoryAvailable,
    /// Memory of what the node has for Pods.
    AllocatableMemoryAvailable,
    /// Bytes of the file system that holds volumes and logs.
    NodeFsAvailable,
    /// Inodes of it.
    NodeFsInodesFree,
    /// Bytes of the file system that holds images.
    ImageFsAvailable,
    /// Inodes of it.
    ImageFsInodesFree,
    /// Process ids.
    PidAvailable,
}

/// What is lacking, by the name that messages have for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

impl Resource {
    fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

impl Signal {
    /// The signal of this name in a KubeletConfiguration.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "memory.available" => Self::MemoryAvailable,
            "nodefs.available" => Self::NodeFsAvailable,
            "nodefs.inodesFree" => Self::NodeFsInodesFree,
            "imagefs.available" => Self::ImageFsAvailable,
            "imagefs.inodesFree" => Self::ImageFsInodesFree,
            "pid.available" => Self::PidAvailable,
            _ => return None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    fn pressure(self) -> Pressure {
        match self.resource() {
            Resource::Memory => Pressure::Memory,
            Resource::EphemeralStorage | Resource::Inodes => Pressure::Disk,
            Resource::Pids => Pressure::Pid,
        }
    }

    fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable => Resource::EphemeralStorage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree => Resource::Inodes,
            Self::PidAvailable => Resource::Pids,
        }
    }
}

/// How much of something: a quantity, or a share of all there is.
#[derive(Debug, Clone, PartialEq)]
pub enum Level {
    /// A quantity.
    Quantity {
        /// The amount.
        amount: Amount,
        /// Its canonical form.
        text: String,
    },
    /// A share of the capacity, 0 to 1.
    Share(f64),
}

impl Level {
    /// Reads a quantity.
    ///
    /// # Errors
    /// When it is none.
    pub fn quantity(text: &str) -> Result<Self, QuantityError> {
        Ok(Self::Quantity { amount: Amount::parse(text)?, text: api::quantity::canonical(text)? })
    }

    /// How much that is, given all there is.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "upstream's arithmetic")]
    pub fn of(&self, capacity: i64) -> Amount {
        match self {
            Self::Quantity { amount, .. } => *amount,
            Self::Share(share) => Amount::units((capacity as f64 * share) as i64),
        }
    }

    fn shown(&self, capacity: i64) -> String {
        match self {
            Self::Quantity { text, .. } => text.clone(),
            Self::Share(_) => self.of(capacity).to_binary_quantity().0,
        }
    }
}

/// What must be left of something.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Of what.
    pub signal: Signal,
    /// How much.
    pub level: Level,
    /// How long less may be left; zero for a hard threshold.
    pub grace: Duration,
    /// How much more than `level` must be there again until it is enough.
    pub min_reclaim: Option<Level>,
}

impl Threshold {
    fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// What the administrator has set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EvictionPolicy {
    /// What must be left.
    pub thresholds: Vec<Threshold>,
    /// How long a condition stays after it was last seen.
    pub transition_period: Duration,
    /// The longest grace of a Pod that goes for a soft threshold, in seconds; `None` for its own.
    pub max_pod_grace_seconds: Option<u32>,
}

/// How much there is of something: bytes, inodes, processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// What is left.
    pub available: i64,
    /// All there is.
    pub capacity: i64,
}

/// What was seen of the node; a signal that could not be seen is missing.
pub type NodeFigures = BTreeMap<Signal, Figure>;

/// What something takes of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

impl DiskUsage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

/// What was seen of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerFigures {
    /// Its name.
    pub name: String,
    /// Its working set, in bytes.
    pub memory: Option<i64>,
    /// What it has written to its root file system.
    pub rootfs: Option<DiskUsage>,
    /// Its logs.
    pub logs: Option<DiskUsage>,
}

/// What was seen of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodFigures {
    /// Its working set, in bytes.
    pub memory: Option<i64>,
    /// Its processes.
    pub processes: Option<i64>,
    /// Its containers.
    pub containers: Vec<ContainerFigures>,
    /// Its volumes on this node, by name.
    pub volumes: BTreeMap<String, DiskUsage>,
}

/// A Pod that may be evicted.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// What was seen of it, if anything.
    pub figures: Option<PodFigures>,
}
