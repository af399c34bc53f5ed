//! The keeper's state and event loop.

use crate::{
    attachment::Attachment,
    config::KeeperConfig,
    connection::{Connection, ReplyTo},
    container::{Container, ProcessExit},
    cri_log::Stream,
    exits::ExecProcess,
    io_source::{Interest, Kind, Source, Token},
    namespaces::Namespaces,
    operation::Operation,
    process::child_signals,
    protocol::{Answer, CallError, Event, Hello, MAX_MESSAGE, Message, Request},
    socket,
};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
    },
    net::{SocketFlags, accept_with},
};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, ErrorKind},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

/// Maximum number of clients.
const MAX_CLIENTS: usize = 64;
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Number of events that one system call returns.
const EVENTS: usize = 32;

/// Buffers that all streams share.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Received messages and output. One byte more than a message, to recognize a larger one.
    pub(crate) input: Vec<u8>,
    /// Entries of logs.
    pub(crate) log: Vec<u8>,
}

/// State of a keeper.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) config: KeeperConfig,
    /// Directory of the sandbox, absolute.
    pub(crate) dir: PathBuf,
    pub(crate) hello: Hello,
    /// Pins the namespaces, and locks the directory.
    _pinned: (Namespaces, File),
    pub(crate) epoll: Rc<OwnedFd>,
    listener: Source,
    /// When connections are accepted again.
    accepts_at: Option<Instant>,
    signals: SignalFd,
    pub(crate) clients: BTreeMap<u32, Connection>,
    pub(crate) containers: BTreeMap<u32, Container>,
    pub(crate) attachments: BTreeMap<u32, Attachment>,
    pub(crate) operations: BTreeMap<u32, Operation>,
    /// Processes of `exec`, by process ID.
    pub(crate) execs: BTreeMap<i32, ExecProcess>,
    /// Exits of processes whose ID the OCI runtime has not reported yet.
    pub(crate) early_exits: BTreeMap<i32, ProcessExit>,
    pub(crate) buffers: Buffers,
    last_serial: u32,
    /// Whether a child may have ended without a signal.
    pub(crate) must_reap: bool,
    /// Whether the keeper ends.
    pub(crate) is_stopping: bool,
}

impl Keeper {
    pub(crate) fn new(
        (config, dir): (KeeperConfig, PathBuf),
        hello: Hello,
        namespaces: Namespaces,
        (listener, directory): (OwnedFd, File),
    ) -> io::Result<Self> {
        let epoll = Rc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let signals = child_signals();
        signals.thread_block()?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        epoll::add(&*epoll, &signals, Token(Kind::Signals, 0).data(), EventFlags::IN)?;
        let listener = Source::new(&epoll, listener, Token(Kind::Listener, 0), Interest::Read)?;
        Ok(Self {
            config,
            dir,
            hello,
            _pinned: (namespaces, directory),
            epoll,
            listener,
            accepts_at: None,
            signals,
            clients: BTreeMap::new(),
            containers: BTreeMap::new(),
            attachments: BTreeMap::new(),
            operations: BTreeMap::new(),
            execs: BTreeMap::new(),
            early_exits: BTreeMap::new(),
            buffers: Buffers { input: vec![0; MAX_MESSAGE + 1], log: Vec::new() },
            last_serial: 0,
            must_reap: false,
            is_stopping: false,
        })
    }

    /// Runs until a client requests the end.
    ///
    /// # Errors
    /// If the kernel cannot wait for events.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        while !self.is_stopping {
            if std::mem::take(&mut self.must_reap) {
                self.reap();
                continue;
            }
            let timeout = self.timeout();
            let count = match epoll::wait(&*self.epoll, &mut events, timeout.as_ref()) {
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => 0,
                Err(error) => return Err(error.into()),
            };
            for event in events.iter().take(count) {
                let (data, flags) = (event.data, event.flags);
                if let Some(token) = Token::from_data(data) {
                    self.dispatch(token, flags);
                }
            }
            self.enforce_deadlines();
        }
        Ok(())
    }

    /// Returns a serial number, which is used once.
    pub(crate) const fn next_serial(&mut self) -> u32 {
        self.last_serial = self.last_serial.wrapping_add(1);
        self.last_serial
    }

    fn timeout(&self) -> Option<Timespec> {
        let attempts = self.containers.values().filter_map(|container| Some(container.unstored.as_ref()?.next_attempt));
        let deadlines = self.operations.values().filter_map(|operation| operation.deadline);
        let deadlines = deadlines.chain(self.accepts_at).chain(attempts);
        // Rounded up, so that the deadline is over afterwards.
        let left = deadlines.min()?.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec::try_from(left).ok()
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        for operation in self.operations.values_mut() {
            operation.enforce_deadline(now);
        }
        self.store_exits(now);
        if self.accepts_at.is_some_and(|time| time <= now) {
            self.accepts_at = None;
            let _ = self.listener.set_interest(Interest::Read);
        }
    }

    fn dispatch(&mut self, token: Token, flags: EventFlags) {
        let is_readable = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        let is_writable = flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR);
        let serial = token.1;
        match token.0 {
            Kind::Listener => self.accept(),
            Kind::Signals => {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.must_reap = true;
            }
            Kind::Client => self.on_client(serial, is_readable, flags.intersects(EventFlags::OUT)),
            Kind::Stdout => {
                if is_readable {
                    self.read_output(serial, Stream::Stdout);
                }
                if flags.intersects(EventFlags::OUT) {
                    self.flush_stdin(serial);
                }
            }
            Kind::Stderr => {
                self.read_output(serial, Stream::Stderr);
            }
            Kind::Stdin if flags.intersects(EventFlags::ERR | EventFlags::HUP) => self.drop_stdin(serial),
            Kind::Stdin => self.flush_stdin(serial),
            Kind::AttachedStdin => self.read_attached_stdin(serial),
            Kind::AttachedStdout if is_writable => self.flush_attached(serial, Stream::Stdout),
            Kind::AttachedStderr if is_writable => self.flush_attached(serial, Stream::Stderr),
            Kind::AttachedStdout | Kind::AttachedStderr => {}
        }
    }

    fn accept(&mut self) {
        let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(connection) => connection,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => {
                // Without free descriptors, the connection would be reported again at once.
                self.accepts_at = Some(Instant::now() + ACCEPT_PAUSE);
                let _ = self.listener.set_interest(Interest::Paused);
                return;
            }
        };
        if self.clients.len() >= MAX_CLIENTS || socket::check_peer(connection.as_fd()).is_err() {
            return;
        }
        let serial = self.next_serial();
        if let Ok(source) = Source::new(&self.epoll, connection, Token(Kind::Client, serial), Interest::Read) {
            self.clients.insert(serial, Connection::new(source));
        }
    }

    fn on_client(&mut self, serial: u32, is_readable: bool, is_writable: bool) {
        let Some(client) = self.clients.get_mut(&serial) else { return };
        if is_writable && client.flush().is_err() {
            self.clients.remove(&serial);
            return;
        }
        if !is_readable {
            return;
        }
        let received = match client.receive(&mut self.buffers.input) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => {
                self.clients.remove(&serial);
                return;
            }
        };
        let text = self.buffers.input.get(..received.length).unwrap_or_default();
        let is_malformed = received.is_truncated || text.is_empty() || text.len() > MAX_MESSAGE;
        let request = if is_malformed { None } else { serde_json::from_slice::<Request>(text).ok() };
        match request {
            Some(request) => self.handle(serial, request, received.descriptors),
            None => drop(self.clients.remove(&serial)),
        }
    }

    /// Sends a reply, if its client still exists.
    pub(crate) fn reply(
        &mut self,
        to: Option<ReplyTo>,
        result: Result<Answer, CallError>,
        descriptor: Option<OwnedFd>,
    ) {
        if let Some(to) = to {
            self.send(to.client, &Message::Reply { id: to.request, result }, descriptor);
        }
    }

    /// Sends an event to the subscribed clients.
    pub(crate) fn publish(&mut self, event: Event) {
        let message = Message::Event(event);
        let is_subscribed = |(serial, client): (&u32, &Connection)| client.is_subscribed.then_some(*serial);
        for client in self.clients.iter().filter_map(is_subscribed).collect::<Vec<u32>>() {
            self.send(client, &message, None);
        }
    }

    fn send(&mut self, client: u32, message: &Message, descriptor: Option<OwnedFd>) {
        if self.clients.get_mut(&client).is_some_and(|client| client.send(message, descriptor).is_err()) {
            self.clients.remove(&client);
        }
    }

    /// Returns the serial number of a container.
    pub(crate) fn find_container(&self, id: &str) -> Option<u32> {
        self.containers.iter().find(|(_, container)| container.id == id).map(|(serial, _)| *serial)
    }
}
