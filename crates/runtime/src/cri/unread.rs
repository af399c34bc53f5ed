//! Input that a command left unread.
//!
//! containerd (1.6) tells how a command ended when all that was sent to it is written. The shim keeps the reading end of
//! the command's pipe open, so what the command did not read is never written: `head` of a large file ended, and nobody
//! was told, here as upstream. Deleting a command that has ended closes its pipes, and its end is told.

use super::{
    CriRuntime, REQUEST_TIMEOUT, call,
    proto::tasks::DeleteProcessRequest,
    tasks::{in_namespace, tasks},
};
use crate::{ContainerId, RuntimeError, Session};
use futures::FutureExt;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::mpsc,
};

/// How long a command's end may take to be told after its output has ended.
const TOLD: Duration = Duration::from_secs(1);

/// The commands that have ended in containers into which somebody writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended(Arc<Mutex<HashMap<String, Watched>>>);

#[derive(Debug, Default)]
struct Watched {
    sessions: usize,
    commands: Vec<String>,
}

impl Ended {
    /// A command has ended.
    pub(super) fn note(&self, container: &str, command: String) {
        if let Some(watched) = self.0.lock().get_mut(container) {
            watched.commands.push(command);
        }
    }

    /// Commands of this container are remembered from now on, until the answer is dropped.
    pub(super) fn watch(&self, container: &ContainerId) -> Watch {
        self.0.lock().entry(container.0.clone()).or_default().sessions += 1;
        Watch { ended: self.clone(), container: container.clone() }
    }
}

/// Somebody writes into a container.
pub(super) struct Watch {
    ended: Ended,
    container: ContainerId,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = self.ended.0.lock();
        let Some(watched) = all.get_mut(&self.container.0) else { return };
        watched.sessions -= 1;
        if watched.sessions == 0 {
            all.remove(&self.container.0);
        }
    }
}

/// The same session, which ends with its command even if that left input unread.
pub(super) fn released(session: Session, runtime: &CriRuntime, watch: Watch) -> Session {
    let (open, ended) = mpsc::channel(1);
    let watched = |output: Option<Box<dyn AsyncRead + Send + Unpin>>| {
        output.map(|o| Box::new(Output { inner: o, open: Some(open.clone()) }) as Box<dyn AsyncRead + Send + Unpin>)
    };
    let (stdout, stderr) = (watched(session.stdout), watched(session.stderr));
    let release = watch.release(runtime.clone(), ended);
    let exit = async move {
        tokio::select! {
            exit = session.exit => exit,
            never = release => match never {},
        }
    };
    Session { stdout, stderr, exit: exit.boxed(), ..session }
}

impl Watch {
    /// Closes the pipes of commands that have ended, once the output of this session has: until then they may hold some
    /// of it.
    async fn release(self, runtime: CriRuntime, mut output: mpsc::Receiver<()>) -> Infallible {
        while output.recv().await.is_some() {}
        loop {
            tokio::time::sleep(TOLD).await;
            let ended = self.ended.0.lock().get_mut(&self.container.0).map(|w| std::mem::take(&mut w.commands));
            for command in ended.unwrap_or_default() {
                let request = DeleteProcessRequest { container_id: self.container.0.clone(), exec_id: command };
                match call(REQUEST_TIMEOUT, tasks(&runtime).delete_process(in_namespace(request))).await {
                    Ok(_) | Err(RuntimeError::NotFound(_)) => {}
                    Err(error) => tracing::warn!(container = %self.container, %error, "a command's pipes stay open"),
                }
            }
        }
    }
}

/// Output that tells when it has ended: its sender is dropped then.
struct Output<R> {
    inner: R,
    open: Option<mpsc::Sender<()>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Output<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
        if read.is_err() || buffer.filled().len() == before && buffer.remaining() > 0 {
            self.open = None;
        }
        Poll::Ready(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn commands_are_remembered_while_somebody_writes_into_their_container() {
        let (ended, id) = (Ended::default(), ContainerId("c".to_owned()));
        ended.note("c", "before".to_owned());
        let (one, two) = (ended.watch(&id), ended.watch(&id));
        drop(one);
        ended.note("c", "meanwhile".to_owned());
        ended.note("other", "elsewhere".to_owned());
        let known = |ended: &Ended| ended.0.lock().get("c").map(|w| w.commands.clone());
        assert_eq!(known(&ended), Some(vec!["meanwhile".to_owned()]));
        drop(two);
        assert_eq!(known(&ended), None);
    }

    #[tokio::test]
    async fn output_tells_when_it_has_ended() {
        let (open, mut ended) = mpsc::channel(1);
        let mut output = Output { inner: &b"all"[..], open: Some(open) };
        assert_eq!(ended.try_recv(), Err(mpsc::error::TryRecvError::Empty));
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!((text.as_str(), ended.try_recv()), ("all", Err(mpsc::error::TryRecvError::Disconnected)));
    }
}
