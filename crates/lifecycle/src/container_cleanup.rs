//! Between the end of a container's process and the runtime's word that it is done with the container.
//!
//! The end is told at once ([`crate::ContainerFact::Reaped`]), for nothing that comes after changes it. But the runtime
//! writes the last lines of the log then, and takes away what the process had. Nothing is done before
//! [`crate::ContainerFact::Exited`] that could meet it there: the container is not restarted, and neither it nor its
//! sandbox or volumes are removed. Other containers start and stop meanwhile as they would.

use crate::{
    Pod,
    container::{Container, Instance, InstanceState},
};
use jiff::Timestamp;

impl Container {
    /// Whether its process is gone, and the runtime still clears up after it.
    pub(crate) fn is_cleaning_up(&self) -> bool {
        self.current.as_ref().is_some_and(|i| i.clearing)
    }
}

impl Pod {
    /// Since when the process of the container with this id runs, if it does.
    #[must_use]
    pub fn running_since(&self, id: &str) -> Option<Timestamp> {
        if let InstanceState::Running { since } = self.newest(id)?.state { Some(since) } else { None }
    }

    /// Whether the process of the container with this id is gone, and the runtime still clears up after it: its log may
    /// grow.
    #[must_use]
    pub fn is_clearing(&self, id: &str) -> bool {
        self.newest(id).is_some_and(|i| i.clearing)
    }

    /// Whether anything of the Pod's containers is in use: by a process, or by the runtime that clears up after one.
    pub(crate) fn has_active_containers(&self) -> bool {
        self.containers.values().any(|c| c.may_run() || c.is_cleaning_up())
    }

    fn newest(&self, id: &str) -> Option<&Instance> {
        self.containers.values().filter_map(|c| c.current.as_ref()).find(|i| i.id == id)
    }
}
