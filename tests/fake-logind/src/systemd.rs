//! A fake systemd that creates directories for slices.

use crate::{SYSTEMD, bus::Bus};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::task::JoinHandle;
use zbus::{
    Connection, OwnedObjectPath, OwnedVariant, Variant, connection::Builder, interface, object_server::SignalEmitter,
};

/// Properties of a unit, by name.
type Properties = BTreeMap<String, OwnedVariant>;

/// State of systemd.
#[derive(Default)]
struct State {
    cgroups: PathBuf,
    units: BTreeMap<String, Properties>,
    jobs: u32,
    fails: bool,
    loses_signals: bool,
}

/// A systemd on a bus of its own, stopped on drop.
pub struct FakeSystemd {
    connection: Arc<Mutex<Option<Connection>>>,
    state: Arc<Mutex<State>>,
    cgroups: PathBuf,
    bus: Bus,
}

impl FakeSystemd {
    /// Starts a systemd without units.
    ///
    /// # Panics
    /// When `dbus-daemon` is not installed or does not start.
    pub async fn start() -> Self {
        let bus = Bus::start();
        let cgroups = bus.dir().join("cgroups");
        std::fs::create_dir(&cgroups).expect("a directory");
        let state = Arc::new(Mutex::new(State { cgroups: cgroups.clone(), ..State::default() }));
        let connection = Arc::new(Mutex::new(Some(connect(bus.address(), &state).await)));
        Self { connection, state, cgroups, bus }
    }

    /// Returns the address of the bus.
    #[must_use]
    pub fn address(&self) -> &str {
        self.bus.address()
    }

    /// Returns the directory that stands in for the cgroup file system.
    #[must_use]
    pub fn cgroups(&self) -> &Path {
        &self.cgroups
    }

    /// Returns the names of the units.
    #[must_use]
    pub fn units(&self) -> Vec<String> {
        self.state.lock().units.keys().cloned().collect()
    }

    /// Returns a number among the properties of a unit.
    #[must_use]
    pub fn number(&self, unit: &str, property: &str) -> Option<u64> {
        let state = self.state.lock();
        match &**state.units.get(unit)?.get(property)? {
            Variant::U64(number) => Some(*number),
            _ => None,
        }
    }

    /// Makes new jobs fail.
    pub fn fail_jobs(&self) {
        self.state.lock().fails = true;
    }

    /// Sends no signals about jobs.
    pub fn lose_signals(&self) {
        self.state.lock().loses_signals = true;
    }

    /// Leaves the bus, and comes back after a moment with the same units.
    pub async fn reexecute(&self) -> JoinHandle<()> {
        let old = self.connection.lock().take();
        if let Some(old) = old {
            let _ = old.close().await;
        }
        let (address, state) = (self.bus.address().to_owned(), Arc::clone(&self.state));
        let connection = Arc::clone(&self.connection);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let again = connect(&address, &state).await;
            *connection.lock() = Some(again);
        })
    }
}

async fn connect(address: &str, state: &Arc<Mutex<State>>) -> Connection {
    let builder = Builder::address(address).name(SYSTEMD.0).serve_at(SYSTEMD.1, Manager(Arc::clone(state)));
    builder.build().await.expect("a connection")
}

/// Returns the path of a slice's cgroup.
fn path(unit: &str) -> PathBuf {
    let name = unit.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    ends.map(|end| format!("{}.slice", &name[..end])).collect()
}

/// Errors of systemd.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum Error {
    #[zbus(error)]
    ZBus(zbus::Error),
    UnitExists(String),
    NoSuchUnit(String),
}

struct Manager(Arc<Mutex<State>>);

impl Manager {
    /// Runs a job, and announces its end.
    fn job(&self, unit: &str, emitter: &SignalEmitter<'_>, work: impl FnOnce(&mut State, PathBuf)) -> OwnedObjectPath {
        let mut state = self.0.lock();
        state.jobs += 1;
        let (id, fails, silent) = (state.jobs, state.fails, state.loses_signals);
        if !fails {
            let dir = state.cgroups.join(path(unit));
            work(&mut state, dir);
        }
        let job = OwnedObjectPath::try_from(format!("/org/freedesktop/systemd1/job/{id}")).expect("a path");
        let (emitter, unit, ended) = (emitter.to_owned(), unit.to_owned(), job.clone());
        tokio::spawn(async move {
            if !silent {
                let result = if fails { "failed" } else { "done" };
                let _ = Self::job_removed(&emitter, id, ended, &unit, result).await;
            }
        });
        job
    }
}

fn owned(properties: Vec<(String, Variant<'_>)>) -> Properties {
    properties.into_iter().map(|(name, value)| (name, value.try_to_owned().expect("no descriptors"))).collect()
}

#[interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    #[zbus(property)]
    fn version(&self) -> &'static str {
        "252.38-1~deb12u1"
    }

    fn subscribe(&self) {}

    fn start_transient_unit(
        &self,
        name: &str,
        _mode: &str,
        properties: Vec<(String, Variant<'_>)>,
        _aux: Vec<(String, Vec<(String, Variant<'_>)>)>,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Error> {
        if self.0.lock().units.contains_key(name) {
            return Err(Error::UnitExists(format!("Unit {name} already exists.")));
        }
        Ok(self.job(name, &emitter, |state, dir| {
            std::fs::create_dir_all(dir).expect("a directory");
            state.units.insert(name.to_owned(), owned(properties));
        }))
    }

    fn start_unit(
        &self,
        name: &str,
        _mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Error> {
        Ok(self.job(name, &emitter, |_, dir| std::fs::create_dir_all(dir).expect("a directory")))
    }

    fn stop_unit(
        &self,
        name: &str,
        _mode: &str,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Result<OwnedObjectPath, Error> {
        if !self.0.lock().units.contains_key(name) {
            return Err(Error::NoSuchUnit(format!("Unit {name} not loaded.")));
        }
        Ok(self.job(name, &emitter, |state, dir| {
            let _ = std::fs::remove_dir_all(dir);
            state.units.remove(name);
        }))
    }

    fn set_unit_properties(
        &self,
        name: &str,
        _runtime: bool,
        properties: Vec<(String, Variant<'_>)>,
    ) -> Result<(), Error> {
        let mut state = self.0.lock();
        let unit = state.units.get_mut(name).ok_or_else(|| Error::NoSuchUnit(name.to_owned()))?;
        unit.extend(owned(properties));
        Ok(())
    }

    fn reset_failed_unit(&self, _name: &str) {}

    #[zbus(signal)]
    async fn job_removed(
        emitter: &SignalEmitter<'_>,
        id: u32,
        job: OwnedObjectPath,
        unit: &str,
        result: &str,
    ) -> zbus::Result<()>;
}
