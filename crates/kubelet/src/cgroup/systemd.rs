//! Client of systemd, which creates and removes slices (`org.freedesktop.systemd1`).
//!
//! As upstream's `dbusConnManager`, over the system bus, but not over systemd's private socket: its messages have the sender
//! `org.freedesktop.systemd1`, which is not a unique name, and which the D-Bus library refuses. A lost connection is reopened.
//! Every wait has a deadline.

mod properties;

use super::{name::Slice, resource_config::ResourceConfig};
use futures::StreamExt;
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};
use zbus::{Connection, OwnedObjectPath, Variant, connection::Builder, fdo, proxy};

pub(super) use properties::Property;

/// Exists if systemd is the init system (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// Deadline of a method call, and of opening the connection with all its retries.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Deadline of a job, as upstream's.
const JOB_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of checks whether a job is done whose signal is lost, for example because systemd was re-executed.
const JOB_INTERVAL: Duration = Duration::from_millis(500);
/// Delays before a call is repeated whose connection was lost, or could not be opened.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// Failure of systemd.
#[derive(Debug, thiserror::Error)]
pub(super) enum SystemdError {
    #[error("systemd is not the init system of this machine ({BOOTED} does not exist)")]
    NotBooted,
    #[error("failed to connect to systemd over the system bus of D-Bus: {0}")]
    Connect(zbus::Error),
    #[error("systemd did not answer within {CALL_TIMEOUT:?}")]
    Deadline,
    #[error("failed to {method} {unit}: {source}")]
    Call { method: &'static str, unit: String, source: zbus::Error },
    #[error("the job of systemd for {unit} ended with {result:?}")]
    Job { unit: String, result: String },
    #[error("the job of systemd for {unit} did not end within {JOB_TIMEOUT:?}")]
    JobDeadline { unit: String },
    #[error("systemd created no cgroup {path} for {unit}")]
    NoCgroup { unit: String, path: String },
    #[error("{unit} has processes")]
    Busy { unit: String },
}

impl From<SystemdError> for io::Error {
    fn from(error: SystemdError) -> Self {
        match error {
            SystemdError::Busy { .. } => Self::new(io::ErrorKind::ResourceBusy, error),
            error => Self::other(error),
        }
    }
}

#[proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: &[(&'static str, Variant<'static>)],
        aux: &[(&str, Vec<(&str, Variant<'_>)>)],
    ) -> zbus::Result<OwnedObjectPath>;
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn set_unit_properties(
        &self,
        name: &str,
        runtime: bool,
        properties: &[(&'static str, Variant<'static>)],
    ) -> zbus::Result<()>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    /// Requests signals.
    fn subscribe(&self) -> zbus::Result<()>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn version(&self) -> zbus::Result<String>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: OwnedObjectPath, unit: &str, result: &str) -> zbus::Result<()>;
}

/// A method call about a unit.
enum Call<'a> {
    StartTransient(&'a [Property]),
    Start,
    SetProperties(&'a [Property]),
    /// With a function that returns whether the unit has processes, which systemd would kill.
    Stop(&'a (dyn Fn() -> bool + Sync)),
    ResetFailed,
}

impl Call<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::StartTransient(_) => "create the unit",
            Self::Start => "start the unit",
            Self::SetProperties(_) => "set properties of the unit",
            Self::Stop(_) => "stop the unit",
            Self::ResetFailed => "reset the unit",
        }
    }

    /// Sends the call, and returns its job.
    async fn send(&self, manager: &ManagerProxy<'_>, unit: &str) -> zbus::Result<Option<OwnedObjectPath>> {
        match self {
            Self::StartTransient(properties) => {
                manager.start_transient_unit(unit, "replace", properties, &[]).await.map(Some)
            }
            Self::Start => manager.start_unit(unit, "replace").await.map(Some),
            Self::SetProperties(properties) => manager.set_unit_properties(unit, true, properties).await.map(|()| None),
            Self::Stop(_) => manager.stop_unit(unit, "replace").await.map(Some),
            Self::ResetFailed => manager.reset_failed_unit(unit).await.map(|()| None),
        }
    }
}

/// Connection to systemd.
#[derive(Clone)]
struct Connected {
    manager: ManagerProxy<'static>,
    /// Version of systemd; 0 if it is unknown.
    version: u32,
    /// Tells this connection from its successors.
    identity: Arc<()>,
}

/// Address of systemd.
enum Target {
    /// The system bus (`DBUS_SYSTEM_BUS_ADDRESS`).
    Machine,
    #[cfg(test)]
    Bus(String),
}

/// Client of systemd. Connects at the first call.
pub(super) struct Systemd {
    target: Target,
    connected: Mutex<Option<Connected>>,
    /// Held while a connection is opened.
    opening: tokio::sync::Mutex<()>,
}

impl Systemd {
    pub(super) fn new() -> Self {
        Self::with_target(Target::Machine)
    }

    fn with_target(target: Target) -> Self {
        Self { target, connected: Mutex::new(None), opening: tokio::sync::Mutex::new(()) }
    }

    #[cfg(test)]
    pub(super) fn at(address: &str) -> Self {
        Self::with_target(Target::Bus(address.to_owned()))
    }

    /// Checks that systemd is there and answers.
    pub(super) async fn check(&self) -> Result<(), SystemdError> {
        if matches!(self.target, Target::Machine) && !Path::new(BOOTED).is_dir() {
            return Err(SystemdError::NotBooted);
        }
        self.connect().await.map(drop)
    }

    /// Creates a slice with these limits, or sets the limits of an existing one. Returns the limits as systemd set them.
    pub(super) async fn set(
        &self,
        slice: &Slice,
        description: &str,
        limits: &ResourceConfig,
        is_v2: bool,
        exists: impl Fn() -> bool + Sync,
    ) -> Result<ResourceConfig, SystemdError> {
        let version = self.connect().await?.version;
        let limit_properties = properties::of_limits(limits, is_v2, version);
        let mut all = properties::of_slice(description, &slice.parent, is_v2);
        all.extend(properties::of_limits(limits, is_v2, version));
        match self.call(&slice.unit, &Call::StartTransient(&all), &exists).await {
            Err(error) if has_name(&error, "org.freedesktop.systemd1.UnitExists") => {
                self.call(&slice.unit, &Call::SetProperties(&limit_properties), &exists).await?;
                // A unit that was just stopped is still known.
                if !exists() {
                    self.call(&slice.unit, &Call::Start, &exists).await?;
                }
            }
            Err(error @ (SystemdError::Job { .. } | SystemdError::JobDeadline { .. })) => {
                let _ = self.call(&slice.unit, &Call::ResetFailed, &exists).await;
                return Err(error);
            }
            started => started?,
        }
        if !exists() {
            return Err(SystemdError::NoCgroup { unit: slice.unit.clone(), path: slice.path.clone() });
        }
        Ok(properties::rounded(limits))
    }

    /// Stops a slice with all units in it, which removes them. Succeeds if it does not exist.
    ///
    /// # Errors
    /// When it `is_busy`: systemd would kill its processes.
    pub(super) async fn stop(
        &self,
        slice: &Slice,
        exists: impl Fn() -> bool + Sync,
        is_busy: impl Fn() -> bool + Sync,
    ) -> Result<(), SystemdError> {
        let stopped = self.call(&slice.unit, &Call::Stop(&is_busy), &|| !exists()).await;
        if matches!(stopped, Err(SystemdError::Busy { .. })) {
            return stopped;
        }
        // A failed unit stays until then.
        let _ = self.call(&slice.unit, &Call::ResetFailed, &|| true).await;
        match stopped {
            Err(error) if has_name(&error, "org.freedesktop.systemd1.NoSuchUnit") => Ok(()),
            other => other,
        }
    }

    /// Calls a method and waits for its job. A lost connection is reopened, and the call repeated.
    async fn call(
        &self,
        unit: &str,
        call: &Call<'_>,
        is_done: &(impl Fn() -> bool + Sync),
    ) -> Result<(), SystemdError> {
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            let connected = self.connect().await?;
            match timeout(CALL_TIMEOUT, send(&connected.manager, unit, call)).await {
                Ok(Ok(Some(job))) => return job.wait(unit, is_done).await,
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) if is_connection_lost(&error) => {
                    self.disconnect(&connected);
                    match delays.next() {
                        Some(delay) => tokio::time::sleep(delay).await,
                        None => return Err(error),
                    }
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    // The next call gets a new connection.
                    self.disconnect(&connected);
                    return Err(SystemdError::Deadline);
                }
            }
        }
    }

    /// Drops a connection, unless another task has already replaced it.
    fn disconnect(&self, failed: &Connected) {
        let mut connected = self.connected.lock();
        if connected.as_ref().is_some_and(|current| Arc::ptr_eq(&current.identity, &failed.identity)) {
            *connected = None;
        }
    }

    /// Returns the connection, which is opened if there is none. The deadline includes the wait for a task that opens it.
    async fn connect(&self) -> Result<Connected, SystemdError> {
        let connect = async {
            let mut delays = RETRY_DELAYS.into_iter();
            loop {
                match (self.try_connect().await, delays.next()) {
                    (Err(_), Some(delay)) => tokio::time::sleep(delay).await,
                    (result, _) => return result.map_err(SystemdError::Connect),
                }
            }
        };
        timeout(CALL_TIMEOUT, connect).await.map_err(|_| SystemdError::Deadline)?
    }

    async fn try_connect(&self) -> zbus::Result<Connected> {
        if let Some(connected) = self.connected.lock().clone() {
            return Ok(connected);
        }
        let _opening = self.opening.lock().await;
        if let Some(connected) = self.connected.lock().clone() {
            return Ok(connected);
        }
        let builder = match &self.target {
            Target::Machine => Builder::system(),
            #[cfg(test)]
            Target::Bus(address) => Builder::address(address.as_str()),
        };
        let opened = open(builder).await?;
        *self.connected.lock() = Some(opened.clone());
        Ok(opened)
    }
}

async fn open(builder: Builder<'_>) -> zbus::Result<Connected> {
    let connection: Connection = builder.method_timeout(CALL_TIMEOUT).build().await?;
    let manager = ManagerProxy::new(&connection).await?;
    let version: String = manager.version().await?;
    let version = parse_version(&version);
    manager.subscribe().await.or_else(|error| match &error {
        zbus::Error::MethodError(name, ..) if name.ends_with(".AlreadySubscribed") => Ok(()),
        _ => Err(error),
    })?;
    Ok(Connected { manager, version, identity: Arc::new(()) })
}

/// Parses a version such as `252.38-1~deb12u1` or `v245.4-1.fc32` (upstream's `systemdVersionAtoi`).
fn parse_version(text: &str) -> u32 {
    let digits: String = text.trim_start_matches(['"', 'v']).chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

/// A job, and the signals about its unit.
struct Job {
    path: OwnedObjectPath,
    removed: JobRemovedStream,
}

impl Job {
    /// Waits until the job has ended, or its effect is there.
    async fn wait(mut self, unit: &str, is_done: &impl Fn() -> bool) -> Result<(), SystemdError> {
        let deadline = Instant::now() + JOB_TIMEOUT;
        loop {
            match timeout(JOB_INTERVAL, self.removed.next()).await {
                Ok(Some(signal)) => {
                    let Ok(removed) = signal.args() else { continue };
                    if removed.job == self.path {
                        return match removed.result {
                            "done" => Ok(()),
                            result => Err(SystemdError::Job { unit: unit.to_owned(), result: result.to_owned() }),
                        };
                    }
                }
                // Without a connection the stream has ended.
                Ok(None) => tokio::time::sleep(JOB_INTERVAL).await,
                Err(_) => {}
            }
            if is_done() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(SystemdError::JobDeadline { unit: unit.to_owned() });
            }
        }
    }
}

/// Sends a call. Signals are subscribed to before, so that none is missed, and only those about the unit, so that their queue
/// cannot fill.
async fn send(manager: &ManagerProxy<'static>, unit: &str, call: &Call<'_>) -> Result<Option<Job>, SystemdError> {
    let failed = |source| SystemdError::Call { method: call.name(), unit: unit.to_owned(), source };
    if matches!(call, Call::SetProperties(_) | Call::ResetFailed) {
        return call.send(manager, unit).await.map(|_| None).map_err(failed);
    }
    let removed = manager.receive_job_removed_with_args(&[(2, unit)]).await.map_err(failed)?;
    if let Call::Stop(is_busy) = call
        && is_busy()
    {
        return Err(SystemdError::Busy { unit: unit.to_owned() });
    }
    let path = call.send(manager, unit).await.map_err(failed)?;
    Ok(path.map(|path| Job { path, removed }))
}

/// Returns whether this is an error of the bus with this name.
fn has_name(error: &SystemdError, name: &str) -> bool {
    matches!(error, SystemdError::Call { source: zbus::Error::MethodError(found, ..), .. } if found.as_str() == name)
}

/// Returns whether the connection is closed, or systemd is not on the bus, for example because it is re-executed.
fn is_connection_lost(error: &SystemdError) -> bool {
    match error {
        SystemdError::Call { source: zbus::Error::InputOutput(error), .. } => error.kind() != io::ErrorKind::TimedOut,
        SystemdError::Call { source: zbus::Error::FDO(error), .. } => matches!(
            **error,
            fdo::Error::NoReply(_)
                | fdo::Error::Disconnected(_)
                | fdo::Error::ServiceUnknown(_)
                | fdo::Error::NameHasNoOwner(_)
                // The bus tries to start systemd.
                | fdo::Error::SpawnChildExited(_)
                | fdo::Error::SpawnFailed(_)
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
