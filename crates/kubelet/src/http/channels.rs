//! Numbered channels in a WebSocket (`*.channel.k8s.io`): the first byte of each message, or its first digit in the
//! base64 forms, says which channel the rest belongs to.

use super::upgrade::Socket;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::{
    Message, Utf8Bytes,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

/// "This channel ends here", in version 5.
const CLOSE: u8 = 255;
/// Messages that wait for a slow client before their source waits with them.
const QUEUED: usize = 8;
/// Largest piece of output in one message.
const PIECE: usize = 32 << 10;

/// What a client says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Bytes for a channel.
    Data(u8, Bytes),
    /// It sends no more on a channel.
    Closed(u8),
}

/// The sending side. Cheap to clone; the socket closes when all clones are gone.
#[derive(Clone)]
pub(super) struct Sender {
    queue: mpsc::Sender<Message>,
    base64: bool,
}

/// The receiving side.
pub(super) struct Receiver {
    socket: SplitStream<Socket>,
    base64: bool,
    closes: bool,
}

/// Splits a socket. The task ends when everything was sent and the socket is closed in order.
pub(super) fn open(socket: Socket, protocol: &str) -> (Sender, Receiver, JoinHandle<()>) {
    let base64 = protocol.contains("base64");
    let (sink, socket) = socket.split();
    let (queue, messages) = mpsc::channel(QUEUED);
    let writer = tokio::spawn(write(sink, messages));
    (Sender { queue, base64 }, Receiver { socket, base64, closes: protocol.starts_with("v5.") }, writer)
}

async fn write(mut sink: SplitSink<Socket, Message>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        if sink.send(message).await.is_err() {
            return;
        }
    }
    // Clients read the end of a channel from this code: without one it is an error to them.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    let _ = sink.close().await;
}

impl Sender {
    /// Sends to a channel; false when the client has gone.
    pub(super) async fn send(&self, channel: u8, bytes: &[u8]) -> bool {
        let message = if self.base64 {
            let mut text = channel.to_string();
            STANDARD.encode_string(bytes, &mut text);
            Message::text(text)
        } else {
            let mut all = BytesMut::with_capacity(bytes.len() + 1);
            all.extend_from_slice(&[channel]);
            all.extend_from_slice(bytes);
            Message::Binary(all.freeze())
        };
        self.queue.send(message).await.is_ok()
    }

    /// Sends all that can be read, until there is no more, or nobody to send it to.
    pub(super) async fn copy(&self, channel: u8, from: &mut (impl AsyncRead + Unpin)) {
        let mut buffer = vec![0; PIECE];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if !self.send(channel, &buffer[..n]).await {
                return;
            }
        }
    }
}

impl Receiver {
    /// The next word of the client; `None` when it has gone, or does not speak the protocol.
    pub(super) async fn next(&mut self) -> Option<Said> {
        loop {
            let said = match self.socket.next().await?.ok()? {
                Message::Binary(bytes) => self.parse(bytes),
                Message::Text(text) => self.parse(Bytes::from(text)),
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            if said.is_some() {
                return said;
            }
        }
    }

    fn parse(&self, mut bytes: Bytes) -> Option<Said> {
        if bytes.is_empty() {
            return None;
        }
        let channel = bytes.split_to(1)[0];
        if self.base64 {
            let channel = channel.checked_sub(b'0').filter(|c| *c < 10)?;
            return Some(Said::Data(channel, STANDARD.decode(&bytes).ok()?.into()));
        }
        if channel == CLOSE && self.closes {
            return bytes.first().copied().map(Said::Closed);
        }
        Some(Said::Data(channel, bytes))
    }
}
