//! systemd-logind over D-Bus: it tells that the machine goes down, and waits for whoever holds a delay lock
//! (`org.freedesktop.login1`, "Delay locks").

use futures::StreamExt;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use zbus::{Connection, OwnedFd, connection::Builder, proxy};

/// Where logind is told to wait longer than it would; upstream's kubelet has its file there, too.
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-podium.conf";
/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(10);
/// How often logind is asked whether it has read the file, with a pause that doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Why logind cannot be listened to.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogindError {
    /// No system bus, no logind, or it does not answer.
    #[error("{0}")]
    Bus(#[from] zbus::Error),
    /// The connection was closed.
    #[error("the connection was closed")]
    Closed,
    /// The time that logind waits could not be set.
    #[error("cannot write {path}: {source}")]
    DropIn {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// logind waits less than Pods may take.
    #[error("logind waits {found:?} (InhibitDelayMaxSec), which is less than the {wanted:?} of shutdownGracePeriod")]
    TooShort {
        /// What it waits.
        found: Duration,
        /// What all groups of Pods may take together.
        wanted: Duration,
    },
}

#[proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Manager {
    /// Takes a lock, which holds for as long as the descriptor is open.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;
    /// How long delay locks are waited for, in microseconds.
    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;
    /// Whether the machine is going down already.
    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
    /// The machine goes down, or does not after all.
    #[zbus(signal)]
    fn prepare_for_shutdown(&self, start: bool) -> zbus::Result<()>;
}

#[proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Systemd {
    /// Sends a signal to the processes of a unit.
    fn kill_unit(&self, name: &str, whom: &str, signal: i32) -> zbus::Result<()>;
}

/// A connection to logind that holds back shutdowns.
pub(super) struct Logind {
    manager: ManagerProxy<'static>,
    shutdowns: PrepareForShutdownStream,
    preparing: bool,
    lock: Option<OwnedFd>,
}

impl Logind {
    /// Connects to the system bus (`DBUS_SYSTEM_BUS_ADDRESS`), makes sure that logind waits for so long, and takes the lock.
    pub(super) async fn connect(wanted: Duration) -> Result<Self, LogindError> {
        let bus = Builder::system().method_timeout(ANSWER).build().await?;
        Self::on(&bus, wanted, Path::new(DROP_IN)).await
    }

    async fn on(bus: &Connection, wanted: Duration, drop_in: &Path) -> Result<Self, LogindError> {
        let manager = ManagerProxy::new(bus).await?;
        make_patient(bus, &manager, wanted, drop_in).await?;
        // Whoever listens before the lock is taken misses nothing.
        let shutdowns = manager.receive_prepare_for_shutdown().await?;
        let preparing = manager.preparing_for_shutdown().await?;
        let mut logind = Self { manager, shutdowns, preparing, lock: None };
        // A shutdown that has begun waits for nobody who comes later.
        logind.hold(!preparing).await?;
        Ok(logind)
    }

    /// Whether the machine was going down already when the connection was made.
    pub(super) fn preparing(&self) -> bool {
        self.preparing
    }

    /// Takes the lock (anew, if need be), or lets the machine go.
    pub(super) async fn hold(&mut self, hold: bool) -> Result<(), LogindError> {
        self.lock = if hold {
            let why = "Podium needs time to handle node shutdown";
            Some(self.manager.inhibit("shutdown", "podium", why, "delay").await?)
        } else {
            None
        };
        Ok(())
    }

    /// Waits until the machine is told to go down (true), or that is called off.
    pub(super) async fn next(&mut self) -> Result<bool, LogindError> {
        let signal = self.shutdowns.next().await.ok_or(LogindError::Closed)?;
        Ok(signal.args()?.start)
    }
}

/// logind waits 5 s by default: where that is less than Pods may take, it is told to wait for as long as they may.
async fn make_patient(
    bus: &Connection,
    manager: &ManagerProxy<'_>,
    wanted: Duration,
    drop_in: &Path,
) -> Result<(), LogindError> {
    let delay = async || manager.inhibit_delay_max_usec().await.map(Duration::from_micros);
    let mut found = delay().await?;
    if found >= wanted {
        return Ok(());
    }
    let text = format!("# Podium's shutdownGracePeriod.\n[Login]\nInhibitDelayMaxSec={}\n", wanted.as_secs());
    let dir = drop_in.parent().unwrap_or(Path::new("/"));
    let write = || {
        files::create_dir_all_with_mode(dir, 0o755)?;
        fs::write(drop_in, text)?;
        fs::set_permissions(drop_in, Permissions::from_mode(0o644))
    };
    let written = write();
    written.map_err(|source| LogindError::DropIn { path: drop_in.to_owned(), source })?;
    let hangup = nix::sys::signal::Signal::SIGHUP as i32;
    SystemdProxy::new(bus).await?.kill_unit("systemd-logind.service", "all", hangup).await?;
    // It reads the file whenever it gets to it.
    for n in 0..TRIES {
        found = delay().await?;
        if found >= wanted {
            return Ok(());
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(n)).await;
    }
    Err(LogindError::TooShort { found, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_logind::Logind as Fake;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn on(fake: &Fake, wanted: Duration) -> Result<Logind, LogindError> {
        let bus = Builder::address(fake.address()).method_timeout(ANSWER).build().await?;
        Logind::on(&bus, wanted, &fake.drop_in()).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_lock_is_held_until_the_pods_have_ended_and_taken_again_when_the_shutdown_is_called_off() {
        let fake = Fake::start(MINUTE).await;
        let mut logind = on(&fake, MINUTE).await.unwrap();
        assert!(!logind.preparing());
        assert_eq!(fake.locks(), ["shutdown podium delay"]);
        for start in [true, false] {
            fake.prepare(start).await;
            assert_eq!(logind.next().await.unwrap(), start);
            logind.hold(!start).await.unwrap();
            assert_eq!(fake.locks().len(), usize::from(!start));
        }
        assert!(!fake.drop_in().exists(), "it was patient enough");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_shutdown_that_has_begun_is_seen_and_no_lock_asked_for() {
        let fake = Fake::start(MINUTE).await;
        fake.prepare(true).await;
        let logind = on(&fake, MINUTE).await.unwrap();
        assert!(logind.preparing() && fake.locks().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn logind_is_told_to_wait_for_as_long_as_pods_may_take() {
        let fake = Fake::start(Duration::from_secs(5)).await;
        let _logind = on(&fake, MINUTE).await.unwrap();
        let text = crate::node_file::read_text(fake.drop_in()).unwrap();
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=60\n"), "{text}");
        assert_eq!(fake.locks().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_logind_that_will_not_wait_is_named() {
        let fake = Fake::start(Duration::from_secs(5)).await.stubborn();
        let error = on(&fake, MINUTE).await.err().unwrap();
        assert!(matches!(error, LogindError::TooShort { .. }), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bus_that_goes_ends_the_connection() {
        let fake = Fake::start(MINUTE).await;
        let mut logind = on(&fake, MINUTE).await.unwrap();
        drop(fake);
        assert!(logind.next().await.is_err());
    }
}
