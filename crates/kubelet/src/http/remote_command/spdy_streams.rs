//! Exec and attach over SPDY for older clients, such as `NewSPDYExecutor` of client-go. Each stream has its type in a
//! header (`k8s.io/kubelet/pkg/cri/streaming/remotecommand`).

use super::{exit_message, terminal_size, wait_for_exit};
use futures::StreamExt;
use runtime::{Session, SessionIo, TerminalSize};
use spdy::{Role, Stream};
use std::time::Duration;
use tokio::{
    io::{self, AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_util::codec::{FramedRead, LinesCodec};

/// Supported protocols. Version 3 adds the terminal size, version 4 the exit code as a Status. The first clients sent
/// none.
pub(super) const PROTOCOLS: [&str; 5] =
    ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io", ""];
/// How long a client may take to open its streams.
const STREAM_CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of a terminal size line in bytes.
const MAX_RESIZE_LINE: usize = 1024;

/// Streams that a client has opened.
#[derive(Default)]
struct Streams {
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    error: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// Waits for all streams of the client; `None` if it disconnects before.
    async fn open(session: &mut spdy::Session, io: SessionIo, protocol: &str) -> Option<Self> {
        let sizes = io.tty && matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
        let mut streams = Self::default();
        let complete = |s: &Self| {
            s.error.is_some()
                && s.stdin.is_some() == io.stdin
                && s.stdout.is_some() == io.stdout
                && s.stderr.is_some() == io.stderr
                && s.resize.is_some() == sizes
        };
        while !complete(&streams) {
            let stream = session.next().await?;
            let slot = match stream.header("streamtype") {
                Some("error") => &mut streams.error,
                Some("stdin") if io.stdin => &mut streams.stdin,
                Some("stdout") if io.stdout => &mut streams.stdout,
                Some("stderr") if io.stderr => &mut streams.stderr,
                Some("resize") if sizes => &mut streams.resize,
                // Dropping the stream resets it.
                _ => continue,
            };
            stream.accept();
            *slot = Some(stream);
        }
        Some(streams)
    }
}

/// Copies between a client and a process until one of them ends.
pub(super) async fn bridge(
    connection: impl AsyncRead + AsyncWrite + Send + 'static,
    protocol: &'static str,
    io: SessionIo,
    process: Session,
) {
    let mut session = spdy::Session::new(connection, Role::Server);
    let opened = tokio::time::timeout(STREAM_CREATION_TIMEOUT, Streams::open(&mut session, io, protocol)).await;
    let Ok(Some(mut streams)) = opened else { return };
    let Session { stdin, stdout, stderr, resize, exit } = process;
    let output = async {
        tokio::join!(copy_output(stdout, streams.stdout.as_mut()), copy_output(stderr, streams.stderr.as_mut()));
    };
    let input = async {
        tokio::join!(copy_input(streams.stdin, stdin), forward_resizes(streams.resize, resize));
        std::future::pending::<()>().await;
    };
    let disconnected = async { while session.next().await.is_some() {} };
    let exit = tokio::select! {
        exit = wait_for_exit(output, exit) => exit,
        () = input => return,
        () = disconnected => return,
    };
    let text = exit_message(protocol, exit);
    for mut stream in [streams.stdout, streams.stderr].into_iter().flatten() {
        let _ = stream.shutdown().await;
    }
    if let Some(mut error) = streams.error {
        let _ = error.write_all(text.as_bytes()).await;
        let _ = error.shutdown().await;
    }
    // Clients close the connection when they have read everything.
    let _ = tokio::time::timeout(STREAM_CREATION_TIMEOUT, async { while session.next().await.is_some() {} }).await;
}

/// Copies output of the process to a stream.
async fn copy_output(from: Option<Box<dyn AsyncRead + Send + Unpin>>, to: Option<&mut Stream>) {
    if let (Some(mut from), Some(to)) = (from, to) {
        let _ = io::copy(&mut from, to).await;
        let _ = to.shutdown().await;
    }
}

/// Copies input of the client to the process. The session continues if the process closes its stdin.
async fn copy_input(from: Option<Stream>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        if io::copy(&mut from, &mut to).await.is_err() {
            let _ = io::copy(&mut from, &mut io::sink()).await;
        }
        let _ = to.shutdown().await;
    }
}

/// Forwards terminal sizes, one JSON object per line. A line that is too long ends the stream; upstream's
/// `handleResizeEvents` ends it at invalid JSON.
async fn forward_resizes(from: Option<Stream>, to: Option<mpsc::Sender<TerminalSize>>) {
    if let (Some(from), Some(to)) = (from, to) {
        let mut lines = FramedRead::new(from, LinesCodec::new_with_max_length(MAX_RESIZE_LINE));
        while let Some(Ok(line)) = lines.next().await {
            if let Some(size) = terminal_size(line.as_bytes()) {
                let _ = to.send(size).await;
            }
        }
    }
}
