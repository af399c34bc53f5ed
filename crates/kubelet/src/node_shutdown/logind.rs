//! D-Bus client of systemd-logind, which announces shutdowns and waits for the holders of delay inhibitor locks
//! (`org.freedesktop.login1`, "Delay locks").

use futures::StreamExt;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use zbus::{Connection, OwnedFd, connection::Builder, proxy};

/// Drop-in file that raises logind's maximum delay, in the directory that upstream's kubelet uses.
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-podium.conf";
/// Timeout of a D-Bus method call.
const ANSWER: Duration = Duration::from_secs(10);
/// Number of checks whether logind has reloaded its configuration, with a doubling delay.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Error of the connection to logind.
#[derive(Debug, thiserror::Error)]
pub(super) enum LogindError {
    /// The system bus or logind is missing or does not respond.
    #[error("{0}")]
    Bus(#[from] zbus::Error),
    /// The connection was closed.
    #[error("the connection was closed")]
    Closed,
    /// The drop-in file could not be written.
    #[error("cannot write {path}: {source}")]
    DropIn {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// logind's maximum delay is shorter than the grace period.
    #[error(
        "logind waits {found:?} (InhibitDelayMaxSec), which is less than the {inhibit_delay:?} of shutdownGracePeriod"
    )]
    TooShort {
        /// logind's maximum delay.
        found: Duration,
        /// Total grace period of all groups.
        inhibit_delay: Duration,
    },
}

#[proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1"
)]
trait Manager {
    /// Takes an inhibitor lock, which is held while the file descriptor is open.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;
    /// Maximum delay by inhibitor locks in microseconds.
    #[zbus(property(emits_changed_signal = "false"), name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;
    /// Whether a shutdown is in progress.
    #[zbus(property(emits_changed_signal = "false"))]
    fn preparing_for_shutdown(&self) -> zbus::Result<bool>;
    /// Signal: a shutdown starts or was cancelled.
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

/// Connection to logind with a delay inhibitor lock.
pub(super) struct Logind {
    manager: ManagerProxy<'static>,
    shutdowns: PrepareForShutdownStream,
    preparing: bool,
    lock: Option<OwnedFd>,
}

impl Logind {
    /// Connects to the system bus (`DBUS_SYSTEM_BUS_ADDRESS`), raises logind's maximum delay, and takes the lock.
    pub(super) async fn connect(inhibit_delay: Duration) -> Result<Self, LogindError> {
        let bus = Builder::system().method_timeout(ANSWER).build().await?;
        Self::on(&bus, inhibit_delay, Path::new(DROP_IN)).await
    }

    async fn on(bus: &Connection, inhibit_delay: Duration, drop_in: &Path) -> Result<Self, LogindError> {
        let manager = ManagerProxy::new(bus).await?;
        raise_inhibit_delay(bus, &manager, inhibit_delay, drop_in).await?;
        // Subscribed before the lock is taken, so that no signal is missed.
        let shutdowns = manager.receive_prepare_for_shutdown().await?;
        let preparing = manager.preparing_for_shutdown().await?;
        let mut logind = Self { manager, shutdowns, preparing, lock: None };
        // A shutdown in progress does not wait for new locks.
        logind.set_lock(!preparing).await?;
        Ok(logind)
    }

    /// Whether a shutdown was in progress at the time of the connection.
    pub(super) fn preparing(&self) -> bool {
        self.preparing
    }

    /// Takes or releases the lock.
    pub(super) async fn set_lock(&mut self, locked: bool) -> Result<(), LogindError> {
        self.lock = if locked {
            let reason = "Podium needs time to handle node shutdown";
            Some(self.manager.inhibit("shutdown", "podium", reason, "delay").await?)
        } else {
            None
        };
        Ok(())
    }

    /// Waits for the start (true) or the cancellation (false) of a shutdown.
    pub(super) async fn next(&mut self) -> Result<bool, LogindError> {
        let signal = self.shutdowns.next().await.ok_or(LogindError::Closed)?;
        Ok(signal.args()?.start)
    }
}

/// Raises logind's maximum delay (5 s by default) to the grace period of all groups.
async fn raise_inhibit_delay(
    bus: &Connection,
    manager: &ManagerProxy<'_>,
    inhibit_delay: Duration,
    drop_in: &Path,
) -> Result<(), LogindError> {
    let delay = async || manager.inhibit_delay_max_usec().await.map(Duration::from_micros);
    let mut found = delay().await?;
    if found >= inhibit_delay {
        return Ok(());
    }
    let text = format!("# Podium's shutdownGracePeriod.\n[Login]\nInhibitDelayMaxSec={}\n", inhibit_delay.as_secs());
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
    // logind reloads its configuration asynchronously.
    for n in 0..TRIES {
        found = delay().await?;
        if found >= inhibit_delay {
            return Ok(());
        }
        tokio::time::sleep(PAUSE * 2_u32.pow(n)).await;
    }
    Err(LogindError::TooShort { found, inhibit_delay })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_logind::FakeLogind as Fake;

    const MINUTE: Duration = Duration::from_secs(60);

    async fn on(fake: &Fake, inhibit_delay: Duration) -> Result<Logind, LogindError> {
        let bus = Builder::address(fake.address()).method_timeout(ANSWER).build().await?;
        Logind::on(&bus, inhibit_delay, &fake.drop_in()).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lock_is_released_on_shutdown_and_retaken_on_cancellation() {
        let fake = Fake::start(MINUTE).await;
        let mut logind = on(&fake, MINUTE).await.unwrap();
        assert!(!logind.preparing());
        assert_eq!(fake.locks(), ["shutdown podium delay"]);
        for start in [true, false] {
            fake.prepare_for_shutdown(start).await;
            assert_eq!(logind.next().await.unwrap(), start);
            logind.set_lock(!start).await.unwrap();
            assert_eq!(fake.locks().len(), usize::from(!start));
        }
        assert!(!fake.drop_in().exists(), "it was patient enough");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn shutdown_in_progress_takes_no_lock() {
        let fake = Fake::start(MINUTE).await;
        fake.prepare_for_shutdown(true).await;
        let logind = on(&fake, MINUTE).await.unwrap();
        assert!(logind.preparing() && fake.locks().is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn logind_delay_is_raised_to_the_grace_period() {
        let fake = Fake::start(Duration::from_secs(5)).await;
        let _logind = on(&fake, MINUTE).await.unwrap();
        let text = crate::host_file::read_text(fake.drop_in()).unwrap();
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=60\n"), "{text}");
        assert_eq!(fake.locks().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn insufficient_logind_delay_is_an_error() {
        let fake = Fake::start(Duration::from_secs(5)).await.ignoring_configuration();
        let error = on(&fake, MINUTE).await.err().unwrap();
        assert!(matches!(error, LogindError::TooShort { .. }), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn closed_bus_ends_the_connection() {
        let fake = Fake::start(MINUTE).await;
        let mut logind = on(&fake, MINUTE).await.unwrap();
        drop(fake);
        assert!(logind.next().await.is_err());
    }
}
