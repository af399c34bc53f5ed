//! AppArmor of the node: the default profile, which the engine loads, and the profiles that are loaded.

mod profile;

use crate::{handlers::find_program, steps::blocking};
use bundle::AppArmor;
use profile::NAME;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, process::Command, time::Instant};

/// Program that compiles and loads profiles, of the package `apparmor`.
const PARSER: &str = "apparmor_parser";
/// Profile of this process, with its mode.
const OWN_LABEL: &str = "/proc/self/attr/apparmor/current";
/// Deadline of the program. It needs 10 ms, and on an emulated processor less than a second.
const PARSER_DEADLINE: Duration = Duration::from_secs(20);
/// Minimum time between attempts to load the profile: the creation of a container waits for them.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum length of the parser's message in an error, in characters.
const MAX_MESSAGE: usize = 500;

/// Loads the default profile, and lists all profiles that are loaded.
pub(crate) struct Profiles {
    paths: Paths,
    last: tokio::sync::Mutex<Option<Attempt>>,
}

/// Files of the machine.
struct Paths {
    /// `Y` if AppArmor is enabled.
    enabled: PathBuf,
    /// Loaded profiles, a line each. Without securityfs the file does not exist, and nothing can be loaded.
    profiles: PathBuf,
    /// Configuration of AppArmor, with the versions of its features.
    config: PathBuf,
    /// Path or name of the parser.
    parser: PathBuf,
}

/// The last attempt to load the default profile.
struct Attempt {
    retry_at: Instant,
    problem: Option<String>,
}

impl Profiles {
    pub(crate) fn new() -> Self {
        Self::with_paths(Paths {
            enabled: "/sys/module/apparmor/parameters/enabled".into(),
            profiles: "/sys/kernel/security/apparmor/profiles".into(),
            config: "/etc/apparmor.d".into(),
            parser: PARSER.into(),
        })
    }

    fn with_paths(paths: Paths) -> Self {
        Self { paths, last: tokio::sync::Mutex::new(None) }
    }

    /// Returns the state of AppArmor for a new container; `None` if the kernel has none, or it is disabled.
    ///
    /// The first call of this process loads the default profile, so that it is that of this version of Podium. Later calls
    /// load it if it is gone: `aa-remove-unknown` and a restart of the service `apparmor` remove it.
    pub(crate) async fn current(&self) -> Option<AppArmor> {
        if !read(&self.paths.enabled).starts_with('Y') || !self.paths.profiles.exists() {
            return None;
        }
        let mut last = self.last.lock().await;
        let is_loaded = self.loaded().await.contains(NAME);
        let is_due = match &*last {
            None => true,
            // A profile that was removed is loaded at once.
            Some(last) => !is_loaded && (last.problem.is_none() || Instant::now() >= last.retry_at),
        };
        if is_due {
            let problem = self.load().await.err();
            warn_once(last.as_ref(), problem.as_deref());
            *last = Some(Attempt { retry_at: Instant::now() + RETRY_INTERVAL, problem });
        }
        let loaded = self.loaded().await;
        let default_profile = match loaded.contains(NAME) {
            true => Ok(NAME.to_owned()),
            false => Err(last.as_ref().and_then(|last| last.problem.clone()).unwrap_or_default()),
        };
        Some(AppArmor { default_profile, loaded })
    }

    /// Reads the names of the loaded profiles.
    async fn loaded(&self) -> BTreeSet<String> {
        let path = self.paths.profiles.clone();
        let text = blocking(move || fs::read_to_string(path)).await.unwrap_or_default();
        text.lines().filter_map(|line| Some(line.rsplit_once(" (")?.0.to_owned())).collect()
    }

    /// Compiles and loads the default profile.
    async fn load(&self) -> Result<(), String> {
        let parser = find_program(self.paths.parser.as_os_str())
            .ok_or_else(|| format!("{PARSER} is missing: install the package apparmor"))?;
        let text = profile::text(self.paths.config.join("abi/3.0").exists(), read(OWN_LABEL).trim());
        let output = match tokio::time::timeout(PARSER_DEADLINE, run(&parser, &text)).await {
            Ok(output) => output.map_err(|error| format!("failed to run {}: {error}", parser.display()))?,
            Err(_) => return Err(format!("{} did not end within {PARSER_DEADLINE:?}", parser.display())),
        };
        if output.status.success() {
            return Ok(());
        }
        let message: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(MAX_MESSAGE).collect();
        Err(format!("{} failed: {message}", parser.display()))
    }
}

/// Runs the parser with a profile, which it reads from its standard input. Nothing is cached, and a loaded one is replaced.
async fn run(parser: &Path, text: &str) -> io::Result<std::process::Output> {
    let mut command = Command::new(parser);
    command.args(["--skip-cache", "--replace"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(text.as_bytes()).await {
            // The parser has ended, and its output has the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
    }
    child.wait_with_output().await
}

/// Warns of a problem, unless the last attempt had the same.
fn warn_once(last: Option<&Attempt>, problem: Option<&str>) {
    let Some(problem) = problem else { return };
    if last.and_then(|last| last.problem.as_deref()) != Some(problem) {
        tracing::warn!(
            profile = NAME,
            problem,
            "failed to load the default AppArmor profile: containers without a profile of their own are unconfined"
        );
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests;
