//! A connection: one task reads frames, one writes them, streams are the ends of channels to both.

use crate::{
    Headers, Stream,
    frame::{FIN, Head, Out, control, reset},
    headers::{Decoder, HeaderError},
    pace::Pace,
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

/// How long the other end may take to accept a stream; upstream's `createStreamResponseTimeout`.
const REPLY: Duration = Duration::from_secs(30);
/// Pieces of data that wait for a stream's reader before the connection waits with them.
const BUFFERED: usize = 16;
/// The same of a stream that this end opened. It takes in what there is: what the other end still holds when it closes may
/// be lost.
const TAKEN_IN: usize = 256;
/// Open streams per connection; a hundred forwarded connections have two each.
const MAX_STREAMS: usize = 1024;
/// Largest piece that is read from the connection at once.
const CHUNK: usize = 32 << 10;

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The end that connected: its streams have odd numbers.
    Client,
    /// The end that was connected to.
    Server,
}

/// Why a stream could not be opened, or a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The connection is closed, or the other end reset the stream.
    #[error("the SPDY connection is closed")]
    Closed,
    /// The other end did not reply within 30 s.
    #[error("the other end did not accept the stream in time")]
    NoReply,
    /// The transport failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other end does not speak SPDY/3.1.
    #[error("not a SPDY/3.1 frame")]
    Protocol,
    /// A header block could not be read.
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// What is known of an open stream.
struct Open {
    data: Option<mpsc::Sender<Bytes>>,
    reply: Option<oneshot::Sender<()>>,
}

#[derive(Default)]
struct Table {
    streams: HashMap<u32, Open>,
    /// The stream whose data are the other end's last words.
    last: Option<u32>,
    next: u32,
    closed: bool,
}

/// A connection. It ends when the transport does, or when it and all its streams are dropped: a stream keeps it open.
pub struct Session {
    table: Arc<Mutex<Table>>,
    accepted: mpsc::Receiver<Stream>,
    outgoing: mpsc::Sender<Out>,
    urgent: mpsc::UnboundedSender<Out>,
}

impl Session {
    /// Speaks SPDY on this transport. Needs a tokio runtime.
    pub fn new(transport: impl AsyncRead + AsyncWrite + Send + 'static, role: Role) -> Self {
        let (read, write) = tokio::io::split(transport);
        let (outgoing, data) = mpsc::channel(BUFFERED);
        let (urgent, control) = mpsc::unbounded_channel();
        let (new, accepted) = mpsc::channel(BUFFERED);
        let next = if role == Role::Client { 1 } else { 2 };
        let table = Arc::new(Mutex::new(Table { next, ..Table::default() }));
        let pace = (role == Role::Client).then(|| Arc::new(Pace::default()));
        let done = CancellationToken::new();
        let reader = Reader {
            role,
            table: Arc::clone(&table),
            new,
            outgoing: outgoing.downgrade(),
            urgent: urgent.downgrade(),
            pace: pace.clone(),
            decoder: Decoder::new(),
        };
        tokio::spawn(read_until_done(reader, read, done.clone()));
        tokio::spawn(write_all(write, Frames { urgent: control, data, pace }, done));
        Self { table, accepted, outgoing, urgent }
    }

    /// Opens a stream and waits until the other end accepts it.
    ///
    /// # Errors
    /// When the connection closes, or the other end does not accept within 30 s.
    pub async fn open(&self, headers: Headers) -> Result<Stream, SpdyError> {
        let (data, incoming) = mpsc::channel(TAKEN_IN);
        let (reply, replied) = oneshot::channel();
        let id = {
            let mut table = self.table.lock();
            if table.closed {
                return Err(SpdyError::Closed);
            }
            let id = table.next;
            table.next += 2;
            table.streams.insert(id, Open { data: Some(data), reply: Some(reply) });
            // Inside the lock: numbers must rise on the wire.
            let _ = self.urgent.send(Out::Open { stream: id, headers: headers.clone() });
            id
        };
        let stream = Stream::new(id, headers, incoming, self.outgoing.clone(), self.urgent.clone());
        match tokio::time::timeout(REPLY, replied).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(_)) => Err(SpdyError::Closed),
            Err(_) => Err(SpdyError::NoReply),
        }
    }

    /// What comes on this stream is the last that the other end says before it closes: nothing is sent to it from then on.
    pub fn ends_with(&self, stream: &Stream) {
        self.table.lock().last = Some(stream.id());
    }

    /// The next stream that the other end opens; `None` when the connection has ended.
    /// It sends nothing before [`Stream::accept`].
    pub async fn next(&mut self) -> Option<Stream> {
        self.accepted.recv().await
    }
}

async fn read_until_done<R: AsyncRead>(mut reader: Reader, mut read: ReadHalf<R>, done: CancellationToken) {
    let guard = done.clone().drop_guard();
    tokio::select! {
        () = done.cancelled() => {}
        // How it ends is told by the streams: they end.
        _ = reader.run(&mut read) => {}
    }
    {
        let mut table = reader.table.lock();
        table.closed = true;
        table.streams.clear();
    }
    drop(guard);
}

struct Reader {
    role: Role,
    table: Arc<Mutex<Table>>,
    new: mpsc::Sender<Stream>,
    outgoing: mpsc::WeakSender<Out>,
    urgent: mpsc::WeakUnboundedSender<Out>,
    pace: Option<Arc<Pace>>,
    decoder: Decoder,
}

impl Reader {
    async fn run<R: AsyncRead + Unpin>(&mut self, read: &mut R) -> Result<(), SpdyError> {
        loop {
            let mut head = [0; 8];
            read.read_exact(&mut head).await?;
            match Head::parse(head).ok_or(SpdyError::Protocol)? {
                Head::Data { stream, flags, length } => self.data(read, stream, flags, length).await?,
                Head::Control { kind, flags, length } => {
                    let mut body = vec![0; length];
                    read.read_exact(&mut body).await?;
                    self.control(kind, flags, &body).await?;
                }
            }
        }
    }

    async fn data<R: AsyncRead + Unpin>(
        &mut self,
        read: &mut R,
        stream: u32,
        flags: u8,
        mut length: usize,
    ) -> Result<(), SpdyError> {
        let (to, last) = {
            let table = self.table.lock();
            (table.streams.get(&stream).and_then(|s| s.data.clone()), table.last == Some(stream))
        };
        if let (true, Some(pace)) = (last, &self.pace) {
            pace.over();
        }
        while length > 0 {
            let mut piece = vec![0; length.min(CHUNK)];
            read.read_exact(&mut piece).await?;
            length -= piece.len();
            if let Some(to) = &to {
                // A stream that was dropped takes no data any more.
                let _ = to.send(piece.into()).await;
            }
        }
        if flags & FIN != 0 {
            self.ended(stream);
        }
        Ok(())
    }

    async fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<(), SpdyError> {
        let number = |at: usize| -> Result<u32, SpdyError> {
            let bytes = body.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(SpdyError::Protocol)?;
            Ok(u32::from_be_bytes(bytes))
        };
        match kind {
            control::SYN_STREAM => {
                let headers = self.decoder.decode(body.get(10..).ok_or(SpdyError::Protocol)?)?;
                self.opened(number(0)? & 0x7fff_ffff, headers, flags & FIN != 0).await;
            }
            control::SYN_REPLY => {
                self.decoder.decode(body.get(4..).ok_or(SpdyError::Protocol)?)?;
                let stream = number(0)? & 0x7fff_ffff;
                if let Some(reply) = self.table.lock().streams.get_mut(&stream).and_then(|s| s.reply.take()) {
                    let _ = reply.send(());
                }
                if flags & FIN != 0 {
                    self.ended(stream);
                }
            }
            control::RST_STREAM => {
                // Seen from here it ends: what it sent before is still read.
                self.table.lock().streams.remove(&(number(0)? & 0x7fff_ffff));
            }
            control::PING => {
                let id = number(0)?;
                let theirs = u32::from(self.role == Role::Server);
                match (id % 2 == theirs, self.urgent.upgrade(), &self.pace) {
                    (true, Some(urgent), _) => drop(urgent.send(Out::Ping { id })),
                    (false, _, Some(pace)) => pace.answered(id),
                    _ => {}
                }
            }
            // Goodbyes, settings, windows and what else there may be: nothing that Kubernetes uses.
            _ => {}
        }
        Ok(())
    }

    async fn opened(&mut self, id: u32, headers: Headers, fin: bool) {
        let (Some(outgoing), Some(urgent)) = (self.outgoing.upgrade(), self.urgent.upgrade()) else { return };
        let (data, incoming) = mpsc::channel(BUFFERED);
        let refused = {
            let mut table = self.table.lock();
            let theirs = u32::from(self.role == Role::Server);
            if id % 2 != theirs || table.streams.contains_key(&id) {
                Some(reset::PROTOCOL_ERROR)
            } else if table.streams.len() >= MAX_STREAMS {
                Some(reset::REFUSED_STREAM)
            } else {
                if !fin {
                    table.streams.insert(id, Open { data: Some(data), reply: None });
                }
                None
            }
        };
        if let Some(code) = refused {
            let _ = urgent.send(Out::Reset { stream: id, code });
            return;
        }
        let _ = self.new.send(Stream::new(id, headers, incoming, outgoing, urgent)).await;
    }

    /// The other end sends no more on this stream.
    fn ended(&self, stream: u32) {
        let mut table = self.table.lock();
        if let Some(open) = table.streams.get_mut(&stream) {
            open.data = None;
            if open.reply.is_none() {
                table.streams.remove(&stream);
            }
        }
    }
}

#[cfg(test)]
mod tests;
