//! How containers end, and when the runtime says so.

use super::{FakeRuntime, State};
use runtime::{ContainerState, ContainerStatus, Exit, RuntimeEvent};

impl State {
    /// The newest container of this name.
    fn newest(&mut self, name: &str) -> &mut ContainerStatus {
        let all = self.containers.values_mut().map(|(status, _)| status);
        all.filter(|c| c.name == name).max_by_key(|c| c.attempt).expect("a container of this name")
    }
}

impl FakeRuntime {
    /// Ends the newest container of this name. When nobody is to hear of it, only a list tells.
    pub(crate) fn exit(&self, name: &str, code: i32, heard: bool) {
        let mut state = self.state.lock();
        let newest = state.newest(name);
        newest.state = ContainerState::Exited;
        let reason = if code == 0 { "Completed" } else { "Error" };
        let finished_at = self.clock.now();
        newest.exit = Some(Exit { code, reason: reason.to_owned(), message: String::new(), finished_at });
        if heard {
            let _ = self.events.send(RuntimeEvent::ContainerExited(newest.id.clone(), None));
        }
    }

    /// The newest container of this name runs, and the runtime knows nothing of it any more.
    pub(crate) fn lose_sight(&self, name: &str) {
        self.state.lock().newest(name).state = ContainerState::Unknown;
    }

    /// The process of the newest container of this name is gone: an event tells how it ended, and only after
    /// [`FakeRuntime::clear`] the runtime shows it.
    pub(crate) fn reap(&self, name: &str, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        let exit = Exit { code, reason, message: String::new(), finished_at: self.clock.now() };
        let mut state = self.state.lock();
        let id = state.newest(name).id.clone();
        state.reaped.insert(name.to_owned(), exit.clone());
        let _ = self.events.send(RuntimeEvent::ContainerExited(id, Some(exit)));
    }

    /// The runtime is done with what was reaped.
    pub(crate) fn clear(&self, name: &str) {
        let mut state = self.state.lock();
        let exit = state.reaped.remove(name).expect("it was reaped");
        let newest = state.newest(name);
        (newest.state, newest.exit) = (ContainerState::Exited, Some(exit));
    }

    /// Whether no container can be removed from now on.
    pub(crate) fn keep_all(&self, keeps: bool) {
        self.state.lock().keeps_all = keeps;
    }

    /// The start of the newest container of this name is given up, for nobody waits for it any more.
    pub(crate) fn give_up(&self, name: &str) {
        let mut state = self.state.lock();
        let newest = state.newest(name);
        newest.state = ContainerState::Exited;
        let message = "failed to create containerd task: context canceled".to_owned();
        let (reason, finished_at) = ("StartError".to_owned(), self.clock.now());
        newest.exit = Some(Exit { code: 128, reason, message, finished_at });
        let _ = self.events.send(RuntimeEvent::ContainerExited(newest.id.clone(), None));
    }

    /// How many sandboxes stand.
    pub(crate) fn standing(&self) -> usize {
        self.state.lock().sandboxes.values().filter(|(s, _)| s.ready).count()
    }
}
