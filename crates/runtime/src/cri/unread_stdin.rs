//! Workaround for exec sessions with unread stdin.
//!
//! containerd (1.6) reports the exit of a command only after it has written all stdin. The shim keeps the read end of the
//! stdin pipe open, so the write blocks forever if the command does not read its input: the session of `head` with a large
//! file never ends, as upstream. Deleting the exited exec process closes its pipes, and the session ends.

use super::{
    CriRuntime, REQUEST_TIMEOUT, call,
    proto::tasks::{DeleteProcessRequest, GetRequest},
    tasks::{in_namespace, tasks},
};
use crate::{ContainerId, RuntimeError, Session};
use futures::FutureExt;
use nix::{
    fcntl::{OFlag, open},
    sys::stat::{Mode, SFlag, stat},
};
use parking_lot::Mutex;
use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time for the runtime to report the exit of a command, and interval of the checks after that.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Exited exec commands of containers with sessions that write to stdin.
#[derive(Debug, Clone, Default)]
pub(super) struct ExitedCommands(Arc<Mutex<HashMap<String, WatchedContainer>>>);

#[derive(Debug)]
struct WatchedContainer {
    sessions: usize,
    commands: Vec<String>,
    /// Cancels the container's [`release`] task when the last session ends.
    _releasing: DropGuard,
}

impl ExitedCommands {
    /// Records the exit of a command.
    pub(super) fn note(&self, container: &str, command: String) {
        if let Some(watched) = self.0.lock().get_mut(container) {
            watched.commands.push(command);
        }
    }

    /// Records and releases exited commands of this container until the returned guard is dropped.
    pub(super) fn watch(&self, container: &ContainerId, runtime: &CriRuntime) -> SessionGuard {
        let mut all = self.0.lock();
        let watched = all.entry(container.0.clone()).or_insert_with(|| {
            let done = CancellationToken::new();
            let release = release(runtime.clone(), self.clone(), container.clone());
            tokio::spawn(done.clone().run_until_cancelled_owned(release));
            WatchedContainer { sessions: 0, commands: Vec::new(), _releasing: done.drop_guard() }
        });
        watched.sessions += 1;
        SessionGuard { ended: self.clone(), container: container.clone() }
    }

    fn commands(&self, container: &str) -> Vec<String> {
        self.0.lock().get(container).map(|w| w.commands.clone()).unwrap_or_default()
    }

    fn forget(&self, container: &str, command: &str) {
        if let Some(watched) = self.0.lock().get_mut(container) {
            watched.commands.retain(|c| c != command);
        }
    }
}

/// Guard of a session that writes to the stdin of a container's process.
pub(super) struct SessionGuard {
    ended: ExitedCommands,
    container: ContainerId,
}

impl SessionGuard {
    /// Attaches the guard to a session, which then ends with its command despite unread input.
    pub(super) fn attach_to(self, session: Session) -> Session {
        let exit = async move {
            let _watch = self;
            session.exit.await
        };
        Session { exit: exit.boxed(), ..session }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let mut all = self.ended.0.lock();
        let Some(watched) = all.get_mut(&self.container.0) else { return };
        watched.sessions -= 1;
        if watched.sessions == 0 {
            all.remove(&self.container.0);
        }
    }
}

/// Closes the pipes of a container's exited commands, of all sessions.
async fn release(runtime: CriRuntime, ended: ExitedCommands, container: ContainerId) {
    loop {
        let seen = ended.commands(&container.0);
        tokio::time::sleep(CHECK_INTERVAL).await;
        for command in seen {
            match close(&runtime, &container, &command).await {
                // The runtime still reads the command's output.
                Ok(false) => continue,
                Ok(true) | Err(RuntimeError::NotFound(_)) => {}
                Err(error) => tracing::warn!(%container, %error, "failed to close the pipes of an exited command"),
            }
            ended.forget(&container.0, &command);
        }
    }
}

/// Closes the pipes of an exited command, unless they contain unread output.
async fn close(runtime: &CriRuntime, container: &ContainerId, command: &str) -> Result<bool, RuntimeError> {
    let (container_id, exec_id) = (container.0.clone(), command.to_owned());
    let get = GetRequest { container_id: container_id.clone(), exec_id: exec_id.clone() };
    let process = call(REQUEST_TIMEOUT, tasks(runtime).get(in_namespace(get))).await?.process.unwrap_or_default();
    if [&process.stdout, &process.stderr].into_iter().any(|pipe| has_reader(Path::new(pipe))) {
        return Ok(false);
    }
    let delete = DeleteProcessRequest { container_id, exec_id };
    call(REQUEST_TIMEOUT, tasks(runtime).delete_process(in_namespace(delete))).await?;
    Ok(true)
}

/// Whether a process reads from this named pipe: the shim while the command writes, the runtime until it has read all.
fn has_reader(pipe: &Path) -> bool {
    let is_pipe = stat(pipe).is_ok_and(|s| SFlag::from_bits_truncate(s.st_mode) & SFlag::S_IFMT == SFlag::S_IFIFO);
    is_pipe && open(pipe, OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC, Mode::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::mkfifo;

    #[tokio::test]
    async fn exited_commands_are_recorded_during_writing_sessions() {
        let runtime = CriRuntime::new("unix:///nowhere", Path::new("/data")).unwrap();
        let (ended, id) = (ExitedCommands::default(), ContainerId("c".to_owned()));
        ended.note("c", "before".to_owned());
        let (one, two) = (ended.watch(&id, &runtime), ended.watch(&id, &runtime));
        drop(one);
        ended.note("c", "meanwhile".to_owned());
        ended.note("c", "later".to_owned());
        ended.note("other", "elsewhere".to_owned());
        assert_eq!(ended.commands("c"), ["meanwhile", "later"]);
        ended.forget("c", "meanwhile");
        assert_eq!(ended.commands("c"), ["later"]);
        drop(two);
        assert_eq!(ended.commands("c"), [""; 0]);
    }

    #[test]
    fn pipe_with_a_reader_is_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("stdout");
        assert!(!has_reader(&pipe), "not there");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert!(!has_reader(&pipe), "nobody reads");
        let reader = open(&pipe, OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty()).unwrap();
        assert!(has_reader(&pipe));
        drop(reader);
        assert!(!has_reader(&pipe));
        assert!(!has_reader(Path::new("")) && !has_reader(Path::new("/dev/null")));
    }
}
