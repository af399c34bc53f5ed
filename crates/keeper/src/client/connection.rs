//! Connection of a client: requests that wait for their replies, and events.

use super::Error;
use crate::{
    protocol::{Answer, Call, CallError, Event, MAX_MESSAGE, Message, Request},
    socket,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::Interest,
    net::UnixStream,
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::timeout,
};

/// Events that wait to be handled. A client that does not handle them is disconnected, and lists everything.
const MAX_EVENTS: usize = 1024;

/// Buffer for messages, which all connections share.
static BUFFER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

type Reply = (Result<Answer, CallError>, Option<OwnedFd>);

/// Connection of a client. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    last_id: AtomicU64,
    receiver: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    /// A stream only in its type, which has safe functions to wait for other reads and writes, too.
    socket: UnixStream,
    /// Calls without a reply; `None` after the end of the connection.
    pending: Mutex<Option<BTreeMap<u64, oneshot::Sender<Reply>>>>,
    events: Mutex<Option<mpsc::Sender<Event>>>,
}

/// Forgets a call whose future is dropped.
struct PendingCall<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(pending) = self.shared.pending.lock().as_mut() {
            pending.remove(&self.id);
        }
    }
}

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            socket: UnixStream::from_std(socket.into())?,
            pending: Mutex::new(Some(BTreeMap::new())),
            events: Mutex::new(None),
        });
        let receiver = tokio::spawn(receive_all(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, last_id: AtomicU64::new(0), receiver })
    }

    /// Returns whether it has not ended.
    pub(super) fn is_connected(&self) -> bool {
        self.shared.pending.lock().is_some()
    }

    /// Returns the events from now on.
    pub(super) fn receive_events(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(MAX_EVENTS);
        // After the end of the connection, the stream is empty.
        if self.shared.pending.lock().is_some() {
            *self.shared.events.lock() = Some(sender);
        }
        receiver
    }

    /// Sends a request, and returns the reply and its descriptor.
    pub(super) async fn call(
        &self,
        call: Call,
        descriptors: Vec<OwnedFd>,
        deadline: Duration,
    ) -> Result<(Answer, Option<OwnedFd>), Error> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let text = serde_json::to_vec(&Request { id, call }).map_err(|_| Error::TooLarge)?;
        if text.len() > MAX_MESSAGE {
            return Err(Error::TooLarge);
        }
        let (sender, receiver) = oneshot::channel();
        self.shared.pending.lock().as_mut().ok_or(Error::Disconnected)?.insert(id, sender);
        let _pending = PendingCall { shared: &self.shared, id };
        let exchange = async {
            self.shared.send(&text, descriptors).await.map_err(|_| Error::Disconnected)?;
            receiver.await.map_err(|_| Error::Disconnected)
        };
        let (result, descriptor) = timeout(deadline, exchange).await.map_err(|_| Error::Deadline)??;
        Ok((result?, descriptor))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.receiver.abort();
        self.shared.end();
    }
}

impl Shared {
    async fn send(&self, text: &[u8], descriptors: Vec<OwnedFd>) -> io::Result<()> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let send = || socket::send(self.socket.as_fd(), text, &borrowed);
        self.socket.async_io(Interest::WRITABLE, send).await
    }

    async fn receive(&self) -> io::Result<(Message, Vec<OwnedFd>)> {
        let receive = || {
            let mut buffer = BUFFER.lock();
            buffer.resize(MAX_MESSAGE + 1, 0);
            let received = socket::receive(self.socket.as_fd(), &mut buffer)?;
            let text = buffer.get(..received.length).unwrap_or_default();
            if received.is_truncated || text.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            Ok((serde_json::from_slice(text)?, received.descriptors))
        };
        self.socket.async_io(Interest::READABLE, receive).await
    }

    /// Dispatches a message. Returns false if its receiver is too slow.
    fn dispatch(&self, message: Message, descriptors: Vec<OwnedFd>) -> bool {
        match message {
            Message::Reply { id, result } => {
                let sender = self.pending.lock().as_mut().and_then(|pending| pending.remove(&id));
                if let Some(sender) = sender {
                    let _ = sender.send((result, descriptors.into_iter().next()));
                }
                true
            }
            Message::Event(event) => {
                let sender = self.events.lock().clone();
                !sender.is_some_and(|sender| matches!(sender.try_send(event), Err(mpsc::error::TrySendError::Full(_))))
            }
        }
    }

    /// Ends all calls and events.
    fn end(&self) {
        self.pending.lock().take();
        self.events.lock().take();
    }
}

async fn receive_all(shared: Arc<Shared>) {
    while let Ok((message, descriptors)) = shared.receive().await {
        if !shared.dispatch(message, descriptors) {
            break;
        }
    }
    shared.end();
}
