//! A connection: one task reads frames, one writes them, streams are the ends of channels to both.

use crate::{
    Headers, Stream,
    frame::{FIN, Head, Out, control, reset},
    headers::{Decoder, Encoder, HeaderError},
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::HashMap, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter, ReadHalf, WriteHalf},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

/// How long the other end may take to accept a stream; upstream's `createStreamResponseTimeout`.
const REPLY: Duration = Duration::from_secs(30);
/// Pieces of data that wait for a stream's reader before the connection waits with them.
const BUFFERED: usize = 16;
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
        let done = CancellationToken::new();
        let reader = Reader {
            role,
            table: Arc::clone(&table),
            new,
            outgoing: outgoing.downgrade(),
            urgent: urgent.downgrade(),
            decoder: Decoder::new(),
        };
        tokio::spawn(read_until_done(reader, read, done.clone()));
        tokio::spawn(write_all(write, data, control, done));
        Self { table, accepted, outgoing, urgent }
    }

    /// Opens a stream and waits until the other end accepts it.
    ///
    /// # Errors
    /// When the connection closes, or the other end does not accept within 30 s.
    pub async fn open(&self, headers: Headers) -> Result<Stream, SpdyError> {
        let (data, incoming) = mpsc::channel(BUFFERED);
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

    /// The next stream that the other end opens; `None` when the connection has ended.
    /// It sends nothing before [`Stream::accept`].
    pub async fn next(&mut self) -> Option<Stream> {
        self.accepted.recv().await
    }
}

/// Writes frames until nobody can send any more. What is urgent goes first: it belongs to no data before it.
async fn write_all<W: AsyncWrite>(
    write: WriteHalf<W>,
    mut data: mpsc::Receiver<Out>,
    mut urgent: mpsc::UnboundedReceiver<Out>,
    done: CancellationToken,
) {
    let _done = done.clone().drop_guard();
    let mut write = BufWriter::new(write);
    let (mut encoder, mut lost) = (Encoder::new(), false);
    loop {
        let next = async {
            tokio::select! {
                biased;
                Some(frame) = urgent.recv() => Some(frame),
                Some(frame) = data.recv() => Some(frame),
                else => None,
            }
        };
        let Some(next) = done.run_until_cancelled(next).await else { return };
        let Some(frame) = next else { break };
        // Who closed the connection may have sent something before: it is still read, and what is sent now goes nowhere.
        let idle = urgent.is_empty() && data.is_empty();
        if !lost {
            lost =
                write.write_all(&frame.encode(&mut encoder)).await.is_err() || (idle && write.flush().await.is_err());
        }
    }
    let _ = write.shutdown().await;
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
        let to = self.table.lock().streams.get(&stream).and_then(|s| s.data.clone());
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
                // Ours would come back with our own parity; we send none.
                let theirs = u32::from(self.role == Role::Server);
                if let (Some(urgent), true) = (self.urgent.upgrade(), id % 2 == theirs) {
                    let _ = urgent.send(Out::Pong { id });
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
mod tests {
    use super::*;

    fn headers(name: &str, value: &str) -> Headers {
        vec![(name.to_owned(), value.to_owned())]
    }

    fn pair() -> (Session, Session) {
        let (a, b) = tokio::io::duplex(1 << 12);
        (Session::new(a, Role::Client), Session::new(b, Role::Server))
    }

    /// Sends back what it receives on every stream, and ends each when it was ended.
    fn echo(mut server: Session) {
        tokio::spawn(async move {
            while let Some(stream) = server.next().await {
                stream.accept();
                tokio::spawn(async move {
                    let (mut read, mut write) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    let _ = write.shutdown().await;
                });
            }
        });
    }

    #[tokio::test]
    async fn streams_carry_bytes_both_ways_and_end_one_way_at_a_time() {
        let (client, server) = pair();
        echo(server);
        let sizes = [0, 1, 100, 40_000, 1_000_000];
        let all = sizes.map(|size| {
            let client = &client;
            async move {
                let stream = client.open(headers("streamtype", "stdin")).await.unwrap();
                let sent: Vec<u8> = (0..size).map(|i: u32| u8::try_from(i % 251).unwrap()).collect();
                let (mut read, mut write) = tokio::io::split(stream);
                let mut received = Vec::new();
                let write = async {
                    write.write_all(&sent).await.unwrap();
                    write.shutdown().await.unwrap();
                };
                let (_, n) = tokio::join!(write, read.read_to_end(&mut received));
                assert_eq!((n.unwrap(), received == sent), (sent.len(), true));
            }
        });
        futures::future::join_all(all).await;
    }

    #[tokio::test]
    async fn the_opener_names_the_stream() {
        let (client, mut server) = pair();
        let (opened, accepted) = tokio::join!(client.open(headers("port", "8080")), async {
            let stream = server.next().await.unwrap();
            stream.accept();
            stream
        });
        opened.unwrap();
        assert_eq!(accepted.header("port"), Some("8080"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_accepts_is_given_up() {
        let (client, _server) = pair();
        assert!(matches!(client.open(Headers::new()).await, Err(SpdyError::NoReply)));
    }

    #[tokio::test]
    async fn streams_end_with_the_connection() {
        let (client, mut server) = pair();
        let (opened, accepted) = tokio::join!(client.open(Headers::new()), async {
            let stream = server.next().await.unwrap();
            stream.accept();
            stream
        });
        drop((accepted, server));
        let mut rest = Vec::new();
        assert_eq!(opened.unwrap().read_to_end(&mut rest).await.unwrap(), 0);
        assert!(matches!(client.open(Headers::new()).await, Err(SpdyError::Closed)));
    }

    /// containerd ends a command's session with its last words, and resets the connection if input is still to come.
    #[tokio::test]
    async fn what_was_sent_before_the_connection_was_closed_is_read() {
        let (a, b) = tokio::io::duplex(4 << 20);
        let (client, mut server) = (Session::new(a, Role::Client), Session::new(b, Role::Server));
        let (opened, accepted) = tokio::join!(client.open(Headers::new()), async {
            let stream = server.next().await.unwrap();
            stream.accept();
            stream
        });
        let (mut opened, mut accepted, words) = (opened.unwrap(), accepted, vec![7; 2 << 20]);
        accepted.write_all(&words).await.unwrap();
        accepted.shutdown().await.unwrap();
        drop((accepted, server));
        // Nobody reads yet, and sending goes on.
        for _ in 0..100 {
            let _ = opened.write_all(&[1; 1 << 10]).await;
            tokio::task::yield_now().await;
        }
        let mut read = Vec::new();
        opened.read_to_end(&mut read).await.unwrap();
        assert!(read == words, "{} bytes", read.len());
    }

    #[tokio::test]
    async fn pings_of_the_other_end_are_answered() {
        let (transport, mut raw) = tokio::io::duplex(1 << 12);
        let _server = Session::new(transport, Role::Server);
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 7];
        raw.write_all(&ping).await.unwrap();
        let mut answer = [0; 12];
        raw.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, ping);
    }

    #[tokio::test]
    async fn garbage_ends_the_session() {
        let (transport, mut raw) = tokio::io::duplex(1 << 12);
        let mut server = Session::new(transport, Role::Server);
        raw.write_all(&[0xff; 64]).await.unwrap();
        assert!(server.next().await.is_none());
    }
}
