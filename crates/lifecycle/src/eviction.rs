//! Node-pressure eviction: which Pod is evicted under resource pressure (`pkg/kubelet/eviction`).
//!
//! [`EvictionManager`] turns observed signals into node conditions and met thresholds; [`select_victim`] selects the Pod to evict for a
//! met threshold; [`local_storage_eviction`] evicts a Pod that exceeds its own local storage limits.

mod local_storage;
mod manager;
mod message;
mod ranking;

pub use local_storage::{has_local_storage_limits, local_storage_eviction};
pub use manager::{EvictionManager, MetThreshold, is_reclaimed};
pub use ranking::{is_local_ephemeral_volume, select_victim};

use crate::NodePressure;
use api::quantity::{Amount, QuantityError};
use k8s_openapi::api::core::v1::Pod;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Grace period of an immediate eviction, in seconds (`immediateEvictionGracePeriodSeconds`).
const IMMEDIATE_GRACE_SECONDS: u32 = 1;

/// Eviction signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Available memory of the node.
    MemoryAvailable,
    /// Available memory of the Pods' cgroup, within allocatable.
    AllocatableMemoryAvailable,
    /// Available bytes of the file system with volumes and logs.
    NodeFsAvailable,
    /// Free inodes of that file system.
    NodeFsInodesFree,
    /// Available bytes of the file system with images.
    ImageFsAvailable,
    /// Free inodes of that file system.
    ImageFsInodesFree,
    /// Available process ids.
    PidAvailable,
}

/// Scarce resource, as messages name it.
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
    /// Parses the signal's name in a KubeletConfiguration.
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

    /// Returns the signal's name.
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

    fn pressure(self) -> NodePressure {
        match self.resource() {
            Resource::Memory => NodePressure::Memory,
            Resource::EphemeralStorage | Resource::Inodes => NodePressure::Disk,
            Resource::Pids => NodePressure::Pid,
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

/// Value of a threshold: a quantity or a percentage (`ThresholdValue`).
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdValue {
    /// Quantity.
    Quantity {
        /// Parsed amount.
        amount: Amount,
        /// Canonical form.
        text: String,
    },
    /// Fraction of the capacity, 0 to 1.
    Share(f64),
}

impl ThresholdValue {
    /// Parses a quantity.
    ///
    /// # Errors
    /// Fails if the text is not a quantity.
    pub fn quantity(text: &str) -> Result<Self, QuantityError> {
        Ok(Self::Quantity { amount: Amount::parse(text)?, text: api::quantity::canonical(text)? })
    }

    /// Returns the amount, given the capacity.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "upstream's arithmetic")]
    pub fn of(&self, capacity: i64) -> Amount {
        match self {
            Self::Quantity { amount, .. } => *amount,
            Self::Share(share) => Amount::units((capacity as f64 * share) as i64),
        }
    }

    fn format(&self, capacity: i64) -> String {
        match self {
            Self::Quantity { text, .. } => text.clone(),
            Self::Share(_) => self.of(capacity).to_binary_quantity().0,
        }
    }
}

/// Eviction threshold.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Signal.
    pub signal: Signal,
    /// Minimum available amount.
    pub level: ThresholdValue,
    /// Grace period; zero for a hard threshold.
    pub grace: Duration,
    /// Additional amount to reclaim once the threshold was met (`evictionMinimumReclaim`).
    pub min_reclaim: Option<ThresholdValue>,
}

impl Threshold {
    fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// Eviction settings of the KubeletConfiguration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EvictionPolicy {
    /// Thresholds.
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`.
    pub transition_period: Duration,
    /// `evictionMaxPodGracePeriod`, in seconds; `None` for the Pod's own grace period.
    pub max_pod_grace_seconds: Option<u32>,
}

/// Observation of a signal: bytes, inodes or processes (`signalObservation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalObservation {
    /// Available amount.
    pub available: i64,
    /// Capacity.
    pub capacity: i64,
}

/// Observed signals of the node; a signal that could not be measured is missing.
pub type SignalObservations = BTreeMap<Signal, SignalObservation>;

/// Disk usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// Bytes.
    pub bytes: i64,
    /// Inodes.
    pub inodes: i64,
}

impl DiskUsage {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), inodes: self.inodes.saturating_add(other.inodes) }
    }
}

/// Usage of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerUsage {
    /// Container name.
    pub name: String,
    /// Working set, in bytes.
    pub memory: Option<i64>,
    /// Writable layer.
    pub rootfs: Option<DiskUsage>,
    /// Logs.
    pub logs: Option<DiskUsage>,
}

/// Usage of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodUsage {
    /// Working set, in bytes.
    pub memory: Option<i64>,
    /// Number of processes.
    pub processes: Option<i64>,
    /// Containers.
    pub containers: Vec<ContainerUsage>,
    /// Local volumes, by name.
    pub volumes: BTreeMap<String, DiskUsage>,
}

/// A Pod that may be evicted.
#[derive(Debug, Clone)]
pub struct EvictionCandidate {
    /// The Pod.
    pub pod: Arc<Pod>,
    /// Its usage, if measured.
    pub usage: Option<PodUsage>,
}
