//! Runtime handlers: the OCI runtimes that RuntimeClasses name.
//!
//! `runtimes.yaml` in the data directory configures them; without the file there are the handlers of [`BUILT_IN`], as far as
//! their programs are installed.

use crate::oci_features::{self, Features};
use futures::future::join_all;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};
use tokio::sync::OnceCell;

/// Name of the configuration file in the data directory.
const CONFIG_FILE: &str = "runtimes.yaml";
/// Maximum size of the configuration file in bytes.
const MAX_CONFIG: u64 = 1 << 20;
/// Handlers without a configuration file: name and program.
const BUILT_IN: [(&str, &str); 2] = [("runc", "runc"), ("crun", "crun")];
/// Directories that are searched in addition to `PATH`, which a service may lack.
const PROGRAM_DIRS: [&str; 5] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin"];

/// An OCI runtime program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handler {
    /// Path of the program.
    pub(crate) program: PathBuf,
    /// Global arguments, before the subcommand.
    pub(crate) args: Vec<String>,
    /// Whether the container's processes are processes of this machine, which can be signalled directly. Not for runtimes
    /// with virtual machines.
    pub(crate) signals_directly: bool,
    /// Whether the program runs a Pod in one sandbox, which is a container of its own.
    pub(crate) sandbox_container: bool,
    /// Whether the program refuses hybrid cgroups with controllers in v2.
    pub(crate) refuses_hybrid_cgroups: bool,
}

impl Handler {
    fn new(program: PathBuf, args: Vec<String>) -> Self {
        let refuses_hybrid_cgroups = program.file_name() == Some(OsStr::new("crun"));
        Self { program, args, signals_directly: true, sandbox_container: false, refuses_hybrid_cgroups }
    }

    /// Whether Pods can have the network of the node. Without this argument, gVisor gives them an empty network.
    pub(crate) fn has_host_network(&self) -> bool {
        let is_host = |argument: &String| argument.trim_start_matches('-') == "network=host";
        !self.sandbox_container || self.args.iter().any(is_host)
    }
}

/// Runtime handlers by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handlers {
    default: String,
    by_name: BTreeMap<String, Handler>,
    /// Features by handler, once they were queried.
    features: OnceCell<BTreeMap<String, Features>>,
}

/// The runtime handlers cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum HandlersError {
    /// The configuration file cannot be read.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The configuration file is invalid.
    #[error("{path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A program is not installed.
    #[error(
        "failed to find the OCI runtime {0}: install it (Debian has the packages runc and crun: apt-get install runc)"
    )]
    NotInstalled(String),
    /// The default handler is none of the built-in ones.
    #[error("there is no runtime handler {0:?}: without {CONFIG_FILE} in the data directory, Podium has runc and crun")]
    Unknown(String),
}

/// `runtimes.yaml`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Handler of Pods without a RuntimeClass.
    #[serde(default)]
    default_handler: Option<String>,
    handlers: BTreeMap<String, HandlerConfig>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HandlerConfig {
    /// Path, or a name that is searched.
    program: PathBuf,
    #[serde(default)]
    args: Vec<String>,
    /// Whether signals are sent by the program (`kill`), as for virtual machines.
    #[serde(default)]
    virtual_machine: bool,
    /// Whether a Pod is one sandbox of the program, as of gVisor's `runsc`. Its containers are no processes of this machine.
    #[serde(default)]
    sandbox_container: bool,
}

impl Handlers {
    /// Loads the handlers of a data directory. `default` is the default handler, unless the file names another one.
    ///
    /// # Errors
    /// When the file is invalid, or names a program that is not installed.
    pub(crate) fn load(data_dir: &Path, default: &str) -> Result<Self, HandlersError> {
        let path = data_dir.join(CONFIG_FILE);
        let text = match files::read_bounded(&path, MAX_CONFIG) {
            Ok(text) if text.is_empty() => return Self::built_in(default),
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::built_in(default),
            Err(source) => return Err(HandlersError::Read { path, source }),
        };
        let invalid = |reason: String| HandlersError::Invalid { path: path.clone(), reason };
        let config: Config = serde_saphyr::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        let default = config.default_handler.unwrap_or_else(|| default.to_owned());
        let mut by_name = BTreeMap::new();
        for (name, handler) in config.handlers {
            let program = find_program(handler.program.as_os_str())
                .ok_or_else(|| HandlersError::NotInstalled(handler.program.display().to_string()))?;
            let HandlerConfig { args, virtual_machine, sandbox_container, .. } = handler;
            let signals_directly = !virtual_machine && !sandbox_container;
            by_name.insert(name, Handler { signals_directly, sandbox_container, ..Handler::new(program, args) });
        }
        if !by_name.contains_key(&default) {
            return Err(invalid(format!("defaultHandler: {default:?} is not a handler of the file")));
        }
        Ok(Self { default, by_name, features: OnceCell::new() })
    }

    fn built_in(default: &str) -> Result<Self, HandlersError> {
        let found = BUILT_IN.iter().filter_map(|(name, program)| {
            let program = find_program(OsStr::new(program))?;
            Some(((*name).to_owned(), Handler::new(program, Vec::new())))
        });
        let by_name: BTreeMap<_, _> = found.collect();
        if by_name.contains_key(default) {
            return Ok(Self { default: default.to_owned(), by_name, features: OnceCell::new() });
        }
        let is_known = BUILT_IN.iter().any(|(name, _)| *name == default);
        Err(if is_known { HandlersError::NotInstalled } else { HandlersError::Unknown }(default.to_owned()))
    }

    /// Returns a handler; that of Pods without a RuntimeClass for an empty name.
    pub(crate) fn get(&self, name: &str) -> Option<&Handler> {
        self.by_name.get(self.resolve(name))
    }

    /// Returns the name of a handler: that of the default one for an empty name.
    pub(crate) fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        if name.is_empty() { &self.default } else { name }
    }

    /// Returns the features of a handler; none of an unknown one. The first call runs all programs.
    pub(crate) async fn features(&self, name: &str) -> Features {
        let query = || async {
            let of_handler = |(name, handler): (&String, &Handler)| {
                let (name, program, args) = (name.clone(), handler.program.clone(), handler.args.clone());
                async move { (name, oci_features::query(&program, &args).await) }
            };
            join_all(self.by_name.iter().map(of_handler)).await.into_iter().collect()
        };
        self.features.get_or_init(query).await.get(self.resolve(name)).copied().unwrap_or_default()
    }

    /// Returns the names of all handlers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// Finds a program by its path, or by its name in `PATH` and the usual directories.
pub(crate) fn find_program(name: &OsStr) -> Option<PathBuf> {
    let given = Path::new(name);
    if given.is_absolute() {
        return given.is_file().then(|| given.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(PROGRAM_DIRS.iter().map(PathBuf::from));
    dirs.map(|dir| dir.join(given)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Handlers, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CONFIG_FILE), text).unwrap();
        let prefix = format!("{}/", dir.path().display());
        Handlers::load(dir.path(), "runc").map_err(|error| error.to_string().replace(&prefix, ""))
    }

    #[test]
    fn file_names_programs_arguments_and_the_default() {
        let text = "defaultHandler: a\nhandlers:\n  a: {program: /bin/true, args: [--debug]}\n  \
                    vm: {program: true, virtualMachine: true}\n  \
                    pod: {program: true, sandboxContainer: true}\n";
        let handlers = load(text).unwrap();
        let a = Handler::new("/bin/true".into(), vec!["--debug".into()]);
        assert!(!a.refuses_hybrid_cgroups && Handler::new("/usr/bin/crun".into(), Vec::new()).refuses_hybrid_cgroups);
        assert_eq!((handlers.get(""), handlers.get("a")), (Some(&a), Some(&a)));
        let of_host = Handler { args: vec!["--network=host".into()], ..handlers.get("pod").unwrap().clone() };
        assert!(a.has_host_network() && !handlers.get("pod").unwrap().has_host_network() && of_host.has_host_network());
        let properties = |name| handlers.get(name).map(|found| (found.signals_directly, found.sandbox_container));
        let found = ["a", "vm", "pod"].map(properties);
        assert_eq!(found, [Some((true, false)), Some((false, false)), Some((false, true))]);
        assert_eq!((handlers.resolve(""), handlers.resolve("vm")), ("a", "vm"));
        assert_eq!((handlers.get("other"), handlers.names().collect::<Vec<_>>()), (None, vec!["a", "pod", "vm"]));
    }

    #[test]
    fn invalid_file_is_an_error_with_its_reason() {
        let check = |text: &str, expected: &str| {
            let error = load(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        check("handlers:\n  a: {program: /nowhere/a}\n", "failed to find the OCI runtime /nowhere/a");
        check("handlers:\n  a: {program: /bin/true}\n", "runtimes.yaml: defaultHandler: \"runc\" is not a handler");
        check("handlers:\n  a: {binary: /bin/true}\n", "runtimes.yaml: ");
        check("[]", "runtimes.yaml: ");
    }
}
