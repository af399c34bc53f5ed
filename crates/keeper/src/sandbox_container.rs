//! Containers in one sandbox of the OCI runtime, as with gVisor: they are no processes of this machine.

use crate::{
    connection::ReplyTo,
    container::ProcessExit,
    exits::now,
    keeper::Keeper,
    operation::{Purpose, RuntimeCall},
    protocol::{CallError, Status},
    requests::CallResult,
    startup,
};

/// Exit code of a container whose sandbox has ended: it was killed.
const LOST: i32 = 128 + nix::libc::SIGKILL;

impl Keeper {
    /// Returns whether a container runs in the sandbox of the OCI runtime, and is not the process of the sandbox itself.
    pub(crate) fn is_in_sandbox(&self, id: &str) -> bool {
        self.config.runtime.sandbox_container && id != self.config.sandbox_id
    }

    /// Lets the OCI runtime wait for the end of a started container, if it is in the sandbox.
    pub(crate) fn wait_for_container(&mut self, serial: u32) {
        let Some(container) = self.containers.get(&serial) else { return };
        let is_started = container.status == Status::Running && !container.has_begun();
        if !is_started || !self.is_in_sandbox(&container.id) {
            return;
        }
        let call = RuntimeCall::new("wait", &[], &[&container.id]);
        if let Some(container) = self.containers.get_mut(&serial) {
            container.is_waited_for = true;
        }
        if let Err(error) = self.run_runtime(serial, Purpose::Wait, None, call) {
            self.finish_wait(serial, Err(error));
        }
    }

    /// Handles the end of a container in the sandbox. If the OCI runtime does not know it, the sandbox has ended; otherwise
    /// the container is killed, because nobody would learn of its end.
    pub(crate) fn finish_wait(&mut self, serial: u32, outcome: Result<i32, CallError>) {
        let code = outcome.unwrap_or_else(|error| {
            if let Some(container) = self.containers.get_mut(&serial) {
                startup::log(&format!("failed to wait for {}: {error}", container.id));
                container.options.shares_pid_namespace = true;
            }
            LOST
        });
        self.on_container_exit(serial, ProcessExit { code, finished_at: now() });
    }

    /// Sends a signal to a process of `exec` in the sandbox. That of this machine only waits for it.
    pub(crate) fn kill_in_sandbox(&mut self, to: ReplyTo, id: &str, sandbox_pid: i32, signal: i32) -> CallResult {
        let serial = self.known_container(id)?;
        let call = RuntimeCall::new("kill", &["--pid", &sandbox_pid.to_string()], &[id, &signal.to_string()]);
        self.run_runtime(serial, Purpose::Kill, Some(to), call)?;
        Ok(None)
    }
}
