//! Exec and attach over SPDY, where each stream says what it is for (`k8s.io/kubelet/pkg/cri/streaming/remotecommand`):
//! for clients that know no other way, such as `NewSPDYExecutor` of client-go.

use super::{ended, last_word, terminal_size};
use futures::StreamExt;
use runtime::{Session, SessionIo, TerminalSize};
use spdy::{Role, Stream};
use std::time::Duration;
use tokio::{
    io::{self, AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};
use tokio_util::codec::{FramedRead, LinesCodec};

/// What the versions add: 3 the terminal's size, 4 the exit code as a Status. The first clients named none.
pub(super) const PROTOCOLS: [&str; 5] =
    ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io", ""];
/// How long a client may take to open its streams.
const CREATION: Duration = Duration::from_secs(30);
/// The longest line about the terminal's size, in bytes.
const LONGEST_SIZE: usize = 1024;

/// The streams of a client.
#[derive(Default)]
struct Streams {
    stdin: Option<Stream>,
    stdout: Option<Stream>,
    stderr: Option<Stream>,
    error: Option<Stream>,
    resize: Option<Stream>,
}

impl Streams {
    /// All that the client is to open; `None` when it goes before.
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
            let place = match stream.header("streamtype") {
                Some("error") => &mut streams.error,
                Some("stdin") if io.stdin => &mut streams.stdin,
                Some("stdout") if io.stdout => &mut streams.stdout,
                Some("stderr") if io.stderr => &mut streams.stderr,
                Some("resize") if sizes => &mut streams.resize,
                // Dropped, which resets it.
                _ => continue,
            };
            stream.accept();
            *place = Some(stream);
        }
        Some(streams)
    }
}

/// Joins a client and a process until one of them ends.
pub(super) async fn bridge(
    connection: impl AsyncRead + AsyncWrite + Send + 'static,
    protocol: &'static str,
    io: SessionIo,
    process: Session,
) {
    let mut session = spdy::Session::new(connection, Role::Server);
    let opened = tokio::time::timeout(CREATION, Streams::open(&mut session, io, protocol)).await;
    let Ok(Some(mut streams)) = opened else { return };
    let Session { stdin, stdout, stderr, resize, exit } = process;
    let output = async {
        tokio::join!(carry(stdout, streams.stdout.as_mut()), carry(stderr, streams.stderr.as_mut()));
    };
    let input = async {
        tokio::join!(feed(streams.stdin, stdin), follow(streams.resize, resize));
        std::future::pending::<()>().await;
    };
    let gone = async { while session.next().await.is_some() {} };
    let exit = tokio::select! {
        exit = ended(output, exit) => exit,
        () = input => return,
        () = gone => return,
    };
    let text = last_word(protocol, exit);
    for mut stream in [streams.stdout, streams.stderr].into_iter().flatten() {
        let _ = stream.shutdown().await;
    }
    if let Some(mut error) = streams.error {
        let _ = error.write_all(text.as_bytes()).await;
        let _ = error.shutdown().await;
    }
    // Clients close the connection once they have read everything.
    let _ = tokio::time::timeout(CREATION, async { while session.next().await.is_some() {} }).await;
}

/// Output of the process, to its end.
async fn carry(from: Option<Box<dyn AsyncRead + Send + Unpin>>, to: Option<&mut Stream>) {
    if let (Some(mut from), Some(to)) = (from, to) {
        let _ = io::copy(&mut from, to).await;
        let _ = to.shutdown().await;
    }
}

/// Input of the client, to its end. A process that reads no more is no reason to end.
async fn feed(from: Option<Stream>, to: Option<Box<dyn AsyncWrite + Send + Unpin>>) {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        if io::copy(&mut from, &mut to).await.is_err() {
            let _ = io::copy(&mut from, &mut io::sink()).await;
        }
        let _ = to.shutdown().await;
    }
}

/// Sizes of the client's terminal, a JSON object in each line. A line that is too long ends them, as one that is not
/// JSON does upstream (`handleResizeEvents`).
async fn follow(from: Option<Stream>, to: Option<mpsc::Sender<TerminalSize>>) {
    if let (Some(from), Some(to)) = (from, to) {
        let mut lines = FramedRead::new(from, LinesCodec::new_with_max_length(LONGEST_SIZE));
        while let Some(Ok(line)) = lines.next().await {
            if let Some(size) = terminal_size(line.as_bytes()) {
                let _ = to.send(size).await;
            }
        }
    }
}
