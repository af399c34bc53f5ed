//! SPDY session: a reader task and a writer task, connected to the streams by channels.

use crate::{
    Headers, Stream,
    flow_control::FlowControl,
    frame::{FIN, FrameHeader, OutgoingFrame, control, reset},
    headers::{Decoder, HeaderError},
    writer::{Frames, write_all},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::HashMap, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadHalf},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

/// Timeout for SYN_REPLY (upstream's `createStreamResponseTimeout`).
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Capacity of a stream's receive queue, in data frames. A full queue blocks the connection.
const QUEUE_CAPACITY: usize = 16;
/// Capacity of the receive queue of a stream that this end opened. It is larger, because data that the peer has not sent
/// when it closes may be lost.
const LOCAL_QUEUE_CAPACITY: usize = 256;
/// Maximum number of open streams per connection. A forwarded connection has two streams.
const MAX_STREAMS: usize = 1024;
/// Maximum size of a read from the connection.
const READ_CHUNK: usize = 32 << 10;

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The connecting end: its stream IDs are odd.
    Client,
    /// The accepting end.
    Server,
}

/// Error of a session or of opening a stream.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The connection is closed, or the peer reset the stream.
    #[error("the SPDY connection is closed")]
    Closed,
    /// The peer did not reply within 30 s.
    #[error("timed out waiting for the peer to accept the stream")]
    NoReply,
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer does not use SPDY/3.1.
    #[error("not a SPDY/3.1 frame")]
    Protocol,
    /// A header block could not be decoded.
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// State of an open stream.
struct StreamState {
    data: Option<mpsc::Sender<Bytes>>,
    reply: Option<oneshot::Sender<()>>,
}

/// State of a session.
#[derive(Default)]
struct SessionState {
    streams: HashMap<u32, StreamState>,
    /// ID of the stream that carries the peer's exit status: its data means that the peer is closing.
    final_stream: Option<u32>,
    next: u32,
    closed: bool,
}

/// SPDY session. It ends when the transport ends, or when the session and all its streams are dropped.
pub struct Session {
    state: Arc<Mutex<SessionState>>,
    accepted: mpsc::Receiver<Stream>,
    outgoing: mpsc::Sender<OutgoingFrame>,
    control_frames: mpsc::UnboundedSender<OutgoingFrame>,
}

impl Session {
    /// Starts a session on a transport. Needs a tokio runtime.
    pub fn new(transport: impl AsyncRead + AsyncWrite + Send + 'static, role: Role) -> Self {
        let (read, write) = tokio::io::split(transport);
        let (outgoing, data) = mpsc::channel(QUEUE_CAPACITY);
        let (control_frames, control_queue) = mpsc::unbounded_channel();
        let (new, accepted) = mpsc::channel(QUEUE_CAPACITY);
        let next = if role == Role::Client { 1 } else { 2 };
        let state = Arc::new(Mutex::new(SessionState { next, ..SessionState::default() }));
        let flow_control = (role == Role::Client).then(|| Arc::new(FlowControl::default()));
        let done = CancellationToken::new();
        let reader = Reader {
            role,
            state: Arc::clone(&state),
            new,
            outgoing: outgoing.downgrade(),
            control_frames: control_frames.downgrade(),
            flow_control: flow_control.clone(),
            decoder: Decoder::new(),
        };
        tokio::spawn(read_until_done(reader, read, done.clone()));
        tokio::spawn(write_all(write, Frames { control_frames: control_queue, data, flow_control }, done));
        Self { state, accepted, outgoing, control_frames }
    }

    /// Opens a stream and waits until the peer accepts it.
    ///
    /// # Errors
    /// If the connection closes, or the peer does not accept the stream within 30 s.
    pub async fn open(&self, headers: Headers) -> Result<Stream, SpdyError> {
        let (data, incoming) = mpsc::channel(LOCAL_QUEUE_CAPACITY);
        let (reply, replied) = oneshot::channel();
        let id = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(SpdyError::Closed);
            }
            let id = state.next;
            state.next += 2;
            state.streams.insert(id, StreamState { data: Some(data), reply: Some(reply) });
            // Sent under the lock: stream IDs must increase on the wire.
            let _ = self.control_frames.send(OutgoingFrame::Open { stream: id, headers: headers.clone() });
            id
        };
        let stream = Stream::new(id, headers, incoming, self.outgoing.clone(), self.control_frames.clone());
        match tokio::time::timeout(REPLY_TIMEOUT, replied).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(_)) => Err(SpdyError::Closed),
            Err(_) => Err(SpdyError::NoReply),
        }
    }

    /// Marks the stream that carries the exit status. The peer closes the connection after its data, so no data is sent
    /// from then on.
    pub fn set_final_stream(&self, stream: &Stream) {
        self.state.lock().final_stream = Some(stream.id());
    }

    /// Returns the next stream opened by the peer, or `None` when the connection has ended.
    /// The peer sends no data before [`Stream::accept`].
    pub async fn next(&mut self) -> Option<Stream> {
        self.accepted.recv().await
    }
}

async fn read_until_done<R: AsyncRead>(mut reader: Reader, mut read: ReadHalf<R>, done: CancellationToken) {
    let guard = done.clone().drop_guard();
    tokio::select! {
        () = done.cancelled() => {}
        // The error is not reported: the streams end.
        _ = reader.run(&mut read) => {}
    }
    {
        let mut state = reader.state.lock();
        state.closed = true;
        state.streams.clear();
    }
    drop(guard);
}

struct Reader {
    role: Role,
    state: Arc<Mutex<SessionState>>,
    new: mpsc::Sender<Stream>,
    outgoing: mpsc::WeakSender<OutgoingFrame>,
    control_frames: mpsc::WeakUnboundedSender<OutgoingFrame>,
    flow_control: Option<Arc<FlowControl>>,
    decoder: Decoder,
}

impl Reader {
    async fn run<R: AsyncRead + Unpin>(&mut self, read: &mut R) -> Result<(), SpdyError> {
        loop {
            let mut head = [0; 8];
            read.read_exact(&mut head).await?;
            match FrameHeader::parse(head).ok_or(SpdyError::Protocol)? {
                FrameHeader::Data { stream, flags, length } => self.handle_data(read, stream, flags, length).await?,
                FrameHeader::Control { kind, flags, length } => {
                    let mut body = vec![0; length];
                    read.read_exact(&mut body).await?;
                    self.handle_control(kind, flags, &body).await?;
                }
            }
        }
    }

    async fn handle_data<R: AsyncRead + Unpin>(
        &mut self,
        read: &mut R,
        stream: u32,
        flags: u8,
        mut length: usize,
    ) -> Result<(), SpdyError> {
        let (sender, is_final) = {
            let state = self.state.lock();
            (state.streams.get(&stream).and_then(|s| s.data.clone()), state.final_stream == Some(stream))
        };
        if let (true, Some(flow_control)) = (is_final, &self.flow_control) {
            flow_control.close();
        }
        while length > 0 {
            let mut piece = vec![0; length.min(READ_CHUNK)];
            read.read_exact(&mut piece).await?;
            length -= piece.len();
            if let Some(sender) = &sender {
                // The receiver is closed if the stream was dropped.
                let _ = sender.send(piece.into()).await;
            }
        }
        if flags & FIN != 0 {
            self.handle_fin(stream);
        }
        Ok(())
    }

    async fn handle_control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<(), SpdyError> {
        let number = |at: usize| -> Result<u32, SpdyError> {
            let bytes = body.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(SpdyError::Protocol)?;
            Ok(u32::from_be_bytes(bytes))
        };
        match kind {
            control::SYN_STREAM => {
                let headers = self.decoder.decode(body.get(10..).ok_or(SpdyError::Protocol)?)?;
                self.handle_syn_stream(number(0)? & 0x7fff_ffff, headers, flags & FIN != 0).await;
            }
            control::SYN_REPLY => {
                self.decoder.decode(body.get(4..).ok_or(SpdyError::Protocol)?)?;
                let stream = number(0)? & 0x7fff_ffff;
                if let Some(reply) = self.state.lock().streams.get_mut(&stream).and_then(|s| s.reply.take()) {
                    let _ = reply.send(());
                }
                if flags & FIN != 0 {
                    self.handle_fin(stream);
                }
            }
            control::RST_STREAM => {
                // Data received before the reset can still be read.
                self.state.lock().streams.remove(&(number(0)? & 0x7fff_ffff));
            }
            control::PING => {
                let id = number(0)?;
                let peer_parity = u32::from(self.role == Role::Server);
                match (id % 2 == peer_parity, self.control_frames.upgrade(), &self.flow_control) {
                    (true, Some(control_frames), _) => drop(control_frames.send(OutgoingFrame::Ping { id })),
                    (false, _, Some(flow_control)) => flow_control.handle_ping_reply(id),
                    _ => {}
                }
            }
            // Kubernetes does not use GOAWAY, SETTINGS, WINDOW_UPDATE and HEADERS.
            _ => {}
        }
        Ok(())
    }

    async fn handle_syn_stream(&mut self, id: u32, headers: Headers, fin: bool) {
        let (Some(outgoing), Some(control_frames)) = (self.outgoing.upgrade(), self.control_frames.upgrade()) else {
            return;
        };
        let (data, incoming) = mpsc::channel(QUEUE_CAPACITY);
        let refused = {
            let mut state = self.state.lock();
            let peer_parity = u32::from(self.role == Role::Server);
            if id % 2 != peer_parity || state.streams.contains_key(&id) {
                Some(reset::PROTOCOL_ERROR)
            } else if state.streams.len() >= MAX_STREAMS {
                Some(reset::REFUSED_STREAM)
            } else {
                if !fin {
                    state.streams.insert(id, StreamState { data: Some(data), reply: None });
                }
                None
            }
        };
        if let Some(code) = refused {
            let _ = control_frames.send(OutgoingFrame::Reset { stream: id, code });
            return;
        }
        let _ = self.new.send(Stream::new(id, headers, incoming, outgoing, control_frames)).await;
    }

    /// Handles FIN: the peer sends no more data on this stream.
    fn handle_fin(&self, stream: u32) {
        let mut state = self.state.lock();
        if let Some(open) = state.streams.get_mut(&stream) {
            open.data = None;
            if open.reply.is_none() {
                state.streams.remove(&stream);
            }
        }
    }
}

#[cfg(test)]
mod tests;
