//! Cleanup of a container in the runtime after its process exited.
//!
//! [`crate::ContainerEvent::Reaped`] reports the exit at once, because it is final. The runtime still writes the end of
//! the log and removes the process's resources. Until [`crate::ContainerEvent::Exited`] the container is not restarted,
//! and neither it nor its sandbox or volumes are removed. Other containers start and stop normally.

use crate::{
    Pod,
    container::{Container, Instance, InstanceState},
};
use jiff::Timestamp;

impl Container {
    /// Returns whether its process exited and the runtime is still cleaning up.
    pub(crate) fn is_cleaning_up(&self) -> bool {
        self.current.as_ref().is_some_and(|i| i.cleaning_up)
    }
}

impl Pod {
    /// Returns since when the process of the container with this id is running.
    #[must_use]
    pub fn running_since(&self, id: &str) -> Option<Timestamp> {
        if let InstanceState::Running { since } = self.newest(id)?.state { Some(since) } else { None }
    }

    /// Returns whether the process of the container with this id exited and the runtime is still cleaning up; its log
    /// may grow.
    #[must_use]
    pub fn is_cleaning_up(&self, id: &str) -> bool {
        self.newest(id).is_some_and(|i| i.cleaning_up)
    }

    /// Returns whether any container is running or being cleaned up by the runtime.
    pub(crate) fn has_active_containers(&self) -> bool {
        self.containers.values().any(|c| c.may_run() || c.is_cleaning_up())
    }

    fn newest(&self, id: &str) -> Option<&Instance> {
        self.containers.values().filter_map(|c| c.current.as_ref()).find(|i| i.id == id)
    }
}
