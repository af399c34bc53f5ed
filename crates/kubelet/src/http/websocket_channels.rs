//! Channels in a WebSocket (`*.channel.k8s.io`): the first byte of each message, or the first digit in the base64
//! protocols, is the number of the channel.

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

/// Channel number of the close signal in protocol version 5.
const CLOSE: u8 = 255;
/// Capacity of the send queue in messages; a full queue applies backpressure.
const QUEUE_CAPACITY: usize = 8;
/// Limit of output in one message, in bytes.
const MAX_CHUNK: usize = 32 << 10;

/// Message from a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientMessage {
    /// Bytes for a channel.
    Data(u8, Bytes),
    /// The client closed its side of a channel.
    Closed(u8),
}

/// Sending half. Cheap to clone; the socket closes when all clones are dropped.
#[derive(Clone)]
pub(super) struct Sender {
    queue: mpsc::Sender<Message>,
    base64: bool,
}

/// Receiving half.
pub(super) struct Receiver {
    socket: SplitStream<Socket>,
    base64: bool,
    closes: bool,
}

/// Splits a socket. The task ends when all messages were sent and the close frame was written.
pub(super) fn open(socket: Socket, protocol: &str) -> (Sender, Receiver, JoinHandle<()>) {
    let base64 = protocol.contains("base64");
    let (sink, socket) = socket.split();
    let (queue, messages) = mpsc::channel(QUEUE_CAPACITY);
    let writer = tokio::spawn(write(sink, messages));
    (Sender { queue, base64 }, Receiver { socket, base64, closes: protocol.starts_with("v5.") }, writer)
}

async fn write(mut sink: SplitSink<Socket, Message>, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        if sink.send(message).await.is_err() {
            return;
        }
    }
    // Clients treat a connection that closes without this code as an error.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    let _ = sink.close().await;
}

impl Sender {
    /// Sends to a channel; returns false if the client has disconnected.
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

    /// Copies a reader to a channel until the end of the input, or until the client has disconnected.
    pub(super) async fn copy(&self, channel: u8, from: &mut (impl AsyncRead + Unpin)) {
        let mut buffer = vec![0; MAX_CHUNK];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if !self.send(channel, &buffer[..n]).await {
                return;
            }
        }
    }
}

impl Receiver {
    /// Returns the next message of the client; `None` if it has disconnected or violates the protocol.
    pub(super) async fn next(&mut self) -> Option<ClientMessage> {
        loop {
            let message = match self.socket.next().await?.ok()? {
                Message::Binary(bytes) => self.parse(bytes),
                Message::Text(text) => self.parse(Bytes::from(text)),
                Message::Close(_) => return None,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
            };
            if message.is_some() {
                return message;
            }
        }
    }

    fn parse(&self, mut bytes: Bytes) -> Option<ClientMessage> {
        if bytes.is_empty() {
            return None;
        }
        let channel = bytes.split_to(1)[0];
        if self.base64 {
            let channel = channel.checked_sub(b'0').filter(|c| *c < 10)?;
            return Some(ClientMessage::Data(channel, STANDARD.decode(&bytes).ok()?.into()));
        }
        if channel == CLOSE && self.closes {
            return bytes.first().copied().map(ClientMessage::Closed);
        }
        Some(ClientMessage::Data(channel, bytes))
    }
}
