//! Sessions of exec and attach.

use crate::{
    exec,
    state::{Container, Inner, Sandbox},
    steps::failed,
    streams::{self, Terminal},
};
use futures::{FutureExt, future::BoxFuture};
use keeper::{AttachStreams, Client as Keeper, ExecStreams};
use runtime::{RuntimeError, Session, SessionExit, SessionIo, TerminalSize};
use std::{os::fd::OwnedFd, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::task::AbortOnDropHandle;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Sizes that wait for the terminal; a newer one replaces them soon.
const MAX_SIZES: usize = 16;

/// Our ends of a session's pipes, and those of the process.
#[derive(Default)]
struct Pipes {
    stdin: Option<Writer>,
    stdout: Option<Reader>,
    stderr: Option<Reader>,
    process: [Option<OwnedFd>; 3],
}

impl Pipes {
    fn new(io: SessionIo) -> std::io::Result<Self> {
        let mut pipes = Self::default();
        if io.stdin {
            let (writer, process) = streams::input()?;
            pipes.stdin = Some(Box::new(writer));
            pipes.process[0] = Some(process);
        }
        if io.stdout {
            let (reader, process) = streams::output()?;
            pipes.stdout = Some(Box::new(reader));
            pipes.process[1] = Some(process);
        }
        if io.stderr && !io.tty {
            let (reader, process) = streams::output()?;
            pipes.stderr = Some(Box::new(reader));
            pipes.process[2] = Some(process);
        }
        Ok(pipes)
    }
}

/// Runs a command with streams.
///
/// # Errors
/// When the container does not run, or the command cannot be started.
pub(crate) async fn exec(inner: &Inner, id: &str, command: &[String], io: SessionIo) -> Result<Session, RuntimeError> {
    let (sandbox, container) = exec::running(inner, id)?;
    let keeper = sandbox.keeper()?;
    let exec::Prepared { exec_id, process } = exec::prepare(&container, command, io.tty).await?;
    let mut pipes = Pipes::new(SessionIo { stdin: io.stdin && !io.tty, stdout: io.stdout && !io.tty, ..io })
        .map_err(failed("exec"))?;
    let [stdin, stdout, stderr] = std::mem::take(&mut pipes.process);
    let streams = if io.tty { ExecStreams::Terminal } else { ExecStreams::Descriptors { stdin, stdout, stderr } };
    let (started, exit) = tokio::sync::oneshot::channel();
    // The exit is awaited by a task, before the process starts.
    let (waiting, container_id, waiting_id) = (sandbox.clone(), id.to_owned(), exec_id.clone());
    let code = AbortOnDropHandle::new(tokio::spawn(async move {
        let mut wait = waiting.execs.wait(&container_id, &waiting_id);
        let _ = started.send(());
        wait.code().await
    }));
    let _ = exit.await;
    let running = match keeper.exec(id, &exec_id, process.path(), streams).await {
        Ok(running) => running,
        Err(error) => return Err(RuntimeError::Failed(format!("failed to exec in container: {error}"))),
    };
    let mut session = Session {
        stdin: pipes.stdin,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
        resize: None,
        exit: async move {
            let code = code.await.ok().flatten();
            let ended = || RuntimeError::Failed("the keeper of the Pod has ended".to_owned());
            code.map(SessionExit::Code).ok_or_else(ended)
        }
        .boxed(),
    };
    if let Some(master) = running.terminal {
        let terminal = Terminal::new(master).map_err(failed("exec"))?;
        session.stdin = io.stdin.then(|| Box::new(terminal.clone()) as Writer);
        session.stdout = Some(Box::new(terminal.clone()));
        session.resize = Some(resizer(move |size| {
            let resized = terminal.resize(size).map_err(|error| error.to_string());
            std::future::ready(resized).boxed()
        }));
    }
    Ok(session)
}

/// Attaches to the process of a container.
///
/// # Errors
/// When the container does not run.
pub(crate) async fn attach(inner: &Inner, id: &str, io: SessionIo) -> Result<Session, RuntimeError> {
    let (sandbox, container) = exec::running(inner, id)?;
    let keeper = sandbox.keeper()?;
    let mut pipes = Pipes::new(io).map_err(failed("attach"))?;
    let [stdin, stdout, stderr] = std::mem::take(&mut pipes.process);
    keeper.attach(id, AttachStreams { stdin, stdout, stderr }).await.map_err(failed("attach to container"))?;
    let resize = container.record().tty.then(|| terminal_resizer(keeper, id));
    Ok(Session {
        stdin: pipes.stdin,
        stdout: pipes.stdout,
        stderr: pipes.stderr,
        resize,
        exit: ended(sandbox, container).boxed(),
    })
}

/// An attach session ends regularly with its container.
async fn ended(_sandbox: Arc<Sandbox>, container: Arc<Container>) -> Result<SessionExit, RuntimeError> {
    container.wait().await;
    Ok(SessionExit::Code(0))
}

fn terminal_resizer(keeper: Keeper, id: &str) -> mpsc::Sender<TerminalSize> {
    let id = id.to_owned();
    resizer(move |size: TerminalSize| {
        let (keeper, id) = (keeper.clone(), id.clone());
        let resize = async move { keeper.resize_terminal(&id, size.width, size.height).await };
        resize.map(|resized| resized.map_err(|error| error.to_string())).boxed()
    })
}

/// Sets sizes until the session ends.
fn resizer(
    set: impl Fn(TerminalSize) -> BoxFuture<'static, Result<(), String>> + Send + 'static,
) -> mpsc::Sender<TerminalSize> {
    let (sender, mut receiver) = mpsc::channel(MAX_SIZES);
    tokio::spawn(async move {
        while let Some(size) = receiver.recv().await {
            if let Err(error) = set(size).await {
                tracing::debug!(error, "failed to resize a terminal");
            }
        }
    });
    sender
}
