//! Exec and attach over the channels of a WebSocket.

use super::{exit_message, terminal_size, wait_for_exit};
use crate::http::{
    upgrade::Socket,
    websocket_channels::{self, ClientMessage},
};
use runtime::{Session, SessionIo, TerminalSize};
use std::time::Duration;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

/// Time limit for a client to close after the last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Supported subprotocols. Version 4 adds the exit code as a Status, version 5 lets a client close stdin.
pub(super) const PROTOCOLS: [&str; 7] = [
    "v5.channel.k8s.io",
    "v5.base64.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];
/// Channel numbers.
mod channel {
    pub(super) const STDIN: u8 = 0;
    pub(super) const STDOUT: u8 = 1;
    pub(super) const STDERR: u8 = 2;
    pub(super) const ERROR: u8 = 3;
    pub(super) const RESIZE: u8 = 4;
}

/// Copies between a client and a process until one of them ends.
pub(super) async fn bridge(socket: Socket, protocol: &'static str, io: SessionIo, session: Session) {
    let Session { stdin, mut stdout, mut stderr, resize, exit } = session;
    let (sender, mut receiver, writer) = websocket_channels::open(socket, protocol);
    // An empty message tells the client that the streams are open.
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
        let text = exit_message(protocol, wait_for_exit(output, exit).await);
        if !text.is_empty() {
            sender.send(channel::ERROR, text.as_bytes()).await;
        }
    };
    tokio::select! {
        () = ended => {}
        () = input(&mut receiver, stdin, resize) => return,
    }
    drop(sender);
    // Input is drained until the client closes: unread input would reset the connection and discard unread output.
    let drain = async { while receiver.next().await.is_some() {} };
    let _ = tokio::join!(writer, tokio::time::timeout(CLOSE_TIMEOUT, drain));
}

/// Forwards messages of the client to the process until the client disconnects.
async fn input(
    receiver: &mut websocket_channels::Receiver,
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    resize: Option<mpsc::Sender<TerminalSize>>,
) {
    while let Some(message) = receiver.next().await {
        match message {
            ClientMessage::Data(channel::STDIN, bytes) => {
                // The session continues if the process closes its stdin: its output and exit are still reported.
                if let Some(to) = &mut stdin
                    && to.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            ClientMessage::Closed(channel::STDIN) => {
                if let Some(mut to) = stdin.take() {
                    let _ = to.shutdown().await;
                }
            }
            ClientMessage::Data(channel::RESIZE, bytes) => {
                if let (Some(resize), Some(size)) = (&resize, terminal_size(&bytes)) {
                    let _ = resize.send(size).await;
                }
            }
            ClientMessage::Data(..) | ClientMessage::Closed(_) => {}
        }
    }
}
