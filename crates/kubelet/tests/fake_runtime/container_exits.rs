//! Container exits, and when the fake runtime reports them.

use super::{FakeRuntime, State};
use runtime::{ContainerState, ContainerStatus, Exit, RuntimeEvent};

impl State {
    /// Returns the newest container of this name.
    fn newest(&mut self, name: &str) -> &mut ContainerStatus {
        let all = self.containers.values_mut().map(|(status, _)| status);
        all.filter(|c| c.name == name).max_by_key(|c| c.attempt).expect("a container of this name")
    }
}

impl FakeRuntime {
    /// Ends the newest container of this name. If `received` is false, no event is sent.
    pub(crate) fn exit(&self, name: &str, code: i32, received: bool) {
        let mut state = self.state.lock();
        let newest = state.newest(name);
        newest.state = ContainerState::Exited;
        let reason = if code == 0 { "Completed" } else { "Error" };
        let finished_at = self.clock.now();
        newest.exit = Some(Exit { code, reason: reason.to_owned(), message: String::new(), finished_at });
        if received {
            let _ = self.events.send(RuntimeEvent::ContainerExited(newest.id.clone(), None));
        }
    }

    /// Sets the state of the newest container of this name to unknown.
    pub(crate) fn lose_sight(&self, name: &str) {
        self.state.lock().newest(name).state = ContainerState::Unknown;
    }

    /// Ends the process of the newest container of this name: an event reports the exit, and the container is listed
    /// as exited
    /// after [`FakeRuntime::clear`].
    pub(crate) fn reap(&self, name: &str, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        let exit = Exit { code, reason, message: String::new(), finished_at: self.clock.now() };
        let mut state = self.state.lock();
        let id = state.newest(name).id.clone();
        state.reaped.insert(name.to_owned(), exit.clone());
        let _ = self.events.send(RuntimeEvent::ContainerExited(id, Some(exit)));
    }

    /// Completes the exit of a reaped container.
    pub(crate) fn clear(&self, name: &str) {
        let mut state = self.state.lock();
        let exit = state.reaped.remove(name).expect("it was reaped");
        let newest = state.newest(name);
        (newest.state, newest.exit) = (ContainerState::Exited, Some(exit));
    }

    /// Sets whether containers cannot be removed.
    pub(crate) fn keep_all(&self, keeps: bool) {
        self.state.lock().keeps_all = keeps;
    }

    /// Aborts the start of the newest container of this name.
    pub(crate) fn give_up(&self, name: &str) {
        let mut state = self.state.lock();
        let newest = state.newest(name);
        newest.state = ContainerState::Exited;
        let message = "failed to create containerd task: context canceled".to_owned();
        let (reason, finished_at) = ("StartError".to_owned(), self.clock.now());
        newest.exit = Some(Exit { code: 128, reason, message, finished_at });
        let _ = self.events.send(RuntimeEvent::ContainerExited(newest.id.clone(), None));
    }

    /// Returns the number of ready sandboxes.
    pub(crate) fn standing(&self) -> usize {
        self.state.lock().sandboxes.values().filter(|(s, _)| s.ready).count()
    }
}
