//! A fake systemd-logind, and a fake systemd, on a private D-Bus, controlled by a test.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod bus;
mod systemd;

pub use systemd::FakeSystemd;

use bus::Bus;
use parking_lot::Mutex;
use std::{
    io::{ErrorKind, Read},
    os::{fd, unix::net::UnixStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};
use zbus::{Connection, OwnedFd, connection::Builder, fdo, interface, object_server::SignalEmitter};

const LOGIND: (&str, &str) = ("org.freedesktop.login1", "/org/freedesktop/login1");
const SYSTEMD: (&str, &str) = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1");

/// State of both services.
struct State {
    delay: Duration,
    preparing: bool,
    /// Inhibitor locks: description and the other end of the lock's file descriptor.
    locks: Vec<(String, UnixStream)>,
    drop_in: PathBuf,
    stubborn: bool,
}

/// A D-Bus daemon with fake logind and systemd services, stopped on drop.
pub struct FakeLogind {
    connection: Connection,
    state: Arc<Mutex<State>>,
    bus: Bus,
}

impl FakeLogind {
    /// Starts a logind with this `InhibitDelayMaxSec`.
    ///
    /// # Panics
    /// When `dbus-daemon` is not installed or does not start.
    pub async fn start(delay: Duration) -> Self {
        let bus = Bus::start();
        let state = State {
            delay,
            preparing: false,
            locks: Vec::new(),
            drop_in: bus.dir().join("logind.conf.d/99-podium.conf"),
            stubborn: false,
        };
        let state = Arc::new(Mutex::new(state));
        let builder = Builder::address(bus.address()).name(LOGIND.0).name(SYSTEMD.0);
        let builder = builder.serve_at(LOGIND.1, Manager(Arc::clone(&state)));
        let connection = builder.serve_at(SYSTEMD.1, Systemd(Arc::clone(&state))).build().await.expect("a connection");
        Self { connection, state, bus }
    }

    /// Makes logind ignore new configuration.
    #[must_use]
    pub fn ignoring_configuration(self) -> Self {
        self.state.lock().stubborn = true;
        self
    }

    /// Returns the value for `DBUS_SYSTEM_BUS_ADDRESS`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.bus.address()
    }

    /// Returns the path of the drop-in configuration that logind reads at SIGHUP.
    #[must_use]
    pub fn drop_in(&self) -> PathBuf {
        self.state.lock().drop_in.clone()
    }

    /// Sends the signal `PrepareForShutdown`.
    ///
    /// # Panics
    /// When the signal cannot be sent.
    pub async fn prepare_for_shutdown(&self, start: bool) {
        self.state.lock().preparing = start;
        let emitter = SignalEmitter::new(&self.connection, LOGIND.1).expect("a path");
        Manager::prepare_for_shutdown(&emitter, start).await.expect("the bus takes a signal");
    }

    /// Returns the held locks as `what who mode`.
    #[must_use]
    pub fn locks(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let held = |other: &mut UnixStream| match other.read(&mut [0]) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        state.locks.retain_mut(|(_, other)| held(other));
        state.locks.iter().map(|(who, _)| who.clone()).collect()
    }
}

struct Manager(Arc<Mutex<State>>);

#[interface(name = "org.freedesktop.login1.Manager")]
impl Manager {
    fn inhibit(&self, what: &str, who: &str, _why: &str, mode: &str) -> fdo::Result<OwnedFd> {
        let mut state = self.0.lock();
        if state.preparing {
            let text = "The operation inhibition has been requested for is already running";
            return Err(fdo::Error::Failed(text.to_owned()));
        }
        let failed = |error: std::io::Error| fdo::Error::Failed(error.to_string());
        let (held, other) = UnixStream::pair().map_err(failed)?;
        other.set_nonblocking(true).map_err(failed)?;
        state.locks.push((format!("{what} {who} {mode}"), other));
        Ok(fd::OwnedFd::from(held).into())
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> u64 {
        u64::try_from(self.0.lock().delay.as_micros()).unwrap_or(u64::MAX)
    }

    #[zbus(property)]
    fn preparing_for_shutdown(&self) -> bool {
        self.0.lock().preparing
    }

    #[zbus(signal)]
    async fn prepare_for_shutdown(emitter: &SignalEmitter<'_>, start: bool) -> zbus::Result<()>;
}

struct Systemd(Arc<Mutex<State>>);

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    /// Handles SIGHUP for logind, which reloads its configuration. Other signals fail.
    fn kill_unit(&self, name: &str, _whom: &str, signal: i32) -> fdo::Result<()> {
        let mut state = self.0.lock();
        if name != "systemd-logind.service" || signal != 1 {
            return Err(fdo::Error::InvalidArgs(format!("{name} {signal}")));
        }
        let text = std::fs::read_to_string(&state.drop_in).unwrap_or_default();
        let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")?.parse().ok());
        if let Some(seconds) = seconds.filter(|_| !state.stubborn) {
            state.delay = Duration::from_secs(seconds);
        }
        Ok(())
    }
}
