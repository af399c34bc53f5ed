//! Commands in containers: `exec` with collected output.

use crate::{
    cgroup::Cgroup,
    prepare,
    sandboxes::new_id,
    state::{Container, Inner, Sandbox},
    steps::{blocking, failed},
    streams,
};
use keeper::{Client as Keeper, Exec, ExecStreams};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::{ContainerState, ExecOutput, RuntimeError};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum size of each output in bytes; the rest is discarded. Callers need 10 KiB (messages of probes), and many probes
/// run at the same time.
const MAX_OUTPUT: usize = 64 << 10;
/// Longest timeout: a longer one is no timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);
const SIGKILL: i32 = 9;

/// File with the process of an exec; removed when the process has started.
pub(crate) struct ProcessFile(PathBuf);

impl ProcessFile {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ProcessFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A process that is to be executed.
pub(crate) struct Prepared {
    pub(crate) exec_id: String,
    pub(crate) process: ProcessFile,
}

/// Finds a running container.
///
/// # Errors
/// When it does not exist or run.
pub(crate) fn running(inner: &Inner, id: &str) -> Result<(Arc<Sandbox>, Arc<Container>), RuntimeError> {
    let (sandbox, container) = inner.container(id)?;
    match container.state() {
        ContainerState::Running => Ok((sandbox, container)),
        // As containerd words it.
        state => {
            let state = match state {
                ContainerState::Created => "CONTAINER_CREATED",
                _ => "CONTAINER_EXITED",
            };
            Err(RuntimeError::Failed(format!("container is in {state} state")))
        }
    }
}

/// Writes the process of an exec: the container's own, with another command.
///
/// # Errors
/// When the command is invalid, or the file system fails.
pub(crate) async fn prepare(container: &Container, command: &[String], tty: bool) -> Result<Prepared, RuntimeError> {
    let (dir, command, exec_id) = (container.dir.clone(), command.to_vec(), new_id());
    let path = dir.join(format!("exec-{exec_id}.json"));
    let process = ProcessFile(path.clone());
    let write = move || -> io::Result<()> {
        let spec = prepare::read_spec(&dir)?;
        let process = bundle::exec_process(&spec, &command, tty).map_err(io::Error::other)?;
        let text = bundle::encode(&process).map_err(io::Error::other)?;
        // Not durable: it is read once, at once.
        files::create_private(&path).and_then(|mut file| io::Write::write_all(&mut file, &text))
    };
    blocking(write).await.map_err(failed("exec"))?;
    Ok(Prepared { exec_id, process })
}

/// Runs a command and collects its output. A timeout of zero is none.
///
/// # Errors
/// [`RuntimeError::Deadline`] after the timeout: the command and its descendants are killed.
pub(crate) async fn exec_sync(
    inner: &Inner,
    id: &str,
    command: &[String],
    timeout: Duration,
) -> Result<ExecOutput, RuntimeError> {
    let (sandbox, container) = running(inner, id)?;
    let keeper = sandbox.keeper()?;
    let Prepared { exec_id, process } = prepare(&container, command, false).await?;
    let (stdout, stdout_end) = streams::output().map_err(failed("exec"))?;
    let (stderr, stderr_end) = streams::output().map_err(failed("exec"))?;
    let descriptors = ExecStreams::Descriptors { stdin: None, stdout: Some(stdout_end), stderr: Some(stderr_end) };
    let mut exit = sandbox.execs.wait(id, &exec_id);
    let command = Command { cgroup: container.record().cgroup, id: id.to_owned(), exec_id };
    let mut starting = tokio::spawn(command.clone().start(keeper.clone(), process, descriptors));
    let mut started = None;
    let work = async {
        let Exec { pid, .. } =
            (&mut starting).await.map_err(io::Error::other).map_err(failed("exec in container"))??;
        started = Some(pid);
        let (code, stdout, stderr) = tokio::join!(exit.code(), collect(stdout), collect(stderr));
        let code = code.ok_or_else(|| RuntimeError::Failed("the keeper of the Pod has ended".to_owned()))?;
        Ok(ExecOutput { code, stdout, stderr })
    };
    let limit = if timeout.is_zero() { MAX_TIMEOUT } else { timeout.min(MAX_TIMEOUT) };
    if let Ok(output) = tokio::time::timeout(limit, work).await {
        return output;
    }
    tokio::spawn(async move {
        let pid = match started {
            Some(pid) => pid,
            // The OCI runtime was slow: the process begins after the timeout.
            None => match starting.await {
                Ok(Ok(exec)) => exec.pid,
                _ => return,
            },
        };
        command.kill(&keeper, pid).await;
    });
    Err(RuntimeError::Deadline(format!("failed to exec in container: timeout {limit:?} exceeded")))
}

/// A command in a container.
#[derive(Clone)]
struct Command {
    cgroup: String,
    id: String,
    exec_id: String,
}

impl Command {
    async fn start(self, keeper: Keeper, process: ProcessFile, streams: ExecStreams) -> Result<Exec, RuntimeError> {
        let started = keeper.exec(&self.id, &self.exec_id, process.path(), streams).await;
        started.map_err(failed("exec in container"))
    }

    /// Kills the command with its descendants. It may have ended, while they hold its output open.
    async fn kill(&self, keeper: &Keeper, pid: i32) {
        let cgroup = self.cgroup.clone();
        let list = move || Ok(Cgroup::find(&cgroup).map(|cgroup| descendants(pid, &cgroup)).unwrap_or_default());
        // Before the kill: afterwards, the parents of orphans are not known.
        let descendants = blocking(list).await.unwrap_or_default();
        let _ = keeper.kill_exec(&self.id, &self.exec_id, SIGKILL).await;
        for pid in descendants {
            // The process may have exited meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Returns the descendants of a command in the container's cgroup: its children, and the processes of its session. `crun`
/// makes the command a member of a session whose leader has exited.
fn descendants(pid: i32, cgroup: &Cgroup) -> BTreeSet<i32> {
    let processes: Vec<_> = cgroup.processes().into_iter().filter_map(runtime::Process::read).collect();
    let session = processes.iter().find(|process| process.pid == pid).map(|process| process.session);
    let has_leader = |session: &i32| processes.iter().any(|process| process.pid == *session);
    let mut found = BTreeSet::from([pid]);
    found.extend(session.filter(|session| !has_leader(session)));
    runtime::add_descendants(&mut found, &processes);
    found.retain(|found| *found != pid && processes.iter().any(|process| process.pid == *found));
    found
}

/// Reads a stream to its end, and keeps its beginning.
async fn collect(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        let rest = MAX_OUTPUT.saturating_sub(kept.len());
        kept.extend_from_slice(buffer.get(..read.min(rest)).unwrap_or_default());
    }
    kept
}
