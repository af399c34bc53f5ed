//! Exec and attach over a WebSocket with numbered channels.

use super::{ended, last_word, terminal_size};
use crate::http::{
    channels::{self, Said},
    upgrade::Socket,
};
use runtime::{Session, SessionIo, TerminalSize};
use std::time::Duration;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// How long a client may take to close, once everything was said.
const LINGER: Duration = Duration::from_secs(5);

/// Subprotocols, and what they add: 4 tells the exit code as a Status, 5 lets a client end its input.
pub(super) const PROTOCOLS: [&str; 7] = [
    "v5.channel.k8s.io",
    "v5.base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];
/// Numbers of the channels.
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const ERROR: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
}

/// Joins a client and a process until one of them ends.
pub(super) async fn bridge(socket: Socket, protocol: &'static str, io: SessionIo, session: Session) {
    let Session { stdin, mut stdout, mut stderr, resize, exit } = session;
    let (sender, mut receiver, writer) = channels::open(socket, protocol);
    // Tells the client that the streams are open, before there is output.
    let first = if io.stdout {
        channel::STDOUT
    } else if io.stderr {
        channel::STDERR
    } else {
        channel::ERROR
    };
    sender.send(first, &[]).await;
    let output = async {
        let stdout = async {
            if let Some(from) = &mut stdout {
                sender.copy(channel::STDOUT, from).await;
            }
        };
        let stderr = async {
            if let Some(from) = &mut stderr {
                sender.copy(channel::STDERR, from).await;
            }
        };
        tokio::join!(stdout, stderr);
    };
    let ended = async {
        let text = last_word(protocol, ended(output, exit).await);
        if !text.is_empty() {
            sender.send(channel::ERROR, text.as_bytes()).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = input(&mut receiver, stdin, resize) => return,
    }
    drop(sender);
    // A client that is still sending is heard until it closes: what nobody takes of it would cost it what it has not read.
    let heard = async { while receiver.next().await.is_some() {} };
    let _ = tokio::join!(writer, tokio::time::timeout(LINGER, heard));
}

/// Hands what the client says to the process, until the client goes.
async fn input(
    receiver: &mut channels::Receiver,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
) {
    while let Some(said) = receiver.next().await {
        match said {
            Said::Data(channel::STDIN, bytes) => {
                // A process that reads no more is no reason to end: its output and its exit are still wanted.
                if let Some(to) = &mut stdin
                    && to.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Said::Closed(channel::STDIN) => {
                if let Some(mut to) = stdin.take() {
                    let _ = to.shutdown().await;
                }
            }
            Said::Data(channel::RESIZE, bytes) => {
                if let (Some(resize), Some(size)) = (&resize, terminal_size(&bytes)) {
                    let _ = resize.send(size).await;
                }
            }
            Said::Data(..) | Said::Closed(_) => {}
        }
    }
}
