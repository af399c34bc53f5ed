//! The real kubectl, as a user types it.

use crate::objects;
use serde_json::Value;
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// No command of a test takes longer; one that does hangs, and is killed so that the other tests go on.
const COMMAND: Duration = Duration::from_secs(180);
/// Commands whose streams a kubectl before 1.34 may lose ("Unknown stream id"): it reads its WebSocket before it has made all
/// streams, which newer ones wait for (kubernetes/kubernetes#131203).
const STREAMING: [&str; 5] = ["exec", "attach", "run", "cp", "debug"];
/// The version that runs them instead of an older kubectl of the machine.
const STREAMS: &str = "kubectl-1.35";

/// kubectl against one cluster, in one namespace.
#[derive(Debug, Clone)]
pub struct Kubectl {
    /// `None` is the machine's own.
    program: Option<PathBuf>,
    kubeconfig: PathBuf,
    namespace: String,
    /// Whether it uses WebSockets for streams.
    websockets: bool,
}

/// What a program said and how it ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl From<std::process::Output> for Outcome {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Outcome {
    /// Its output, when it ended well.
    ///
    /// # Panics
    /// When it failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Whether it ended well and said this: for what may fail until it is so.
    #[must_use]
    pub fn is_ok_and(&self, said: impl FnOnce(&str) -> bool) -> bool {
        self.code == 0 && said(&self.stdout)
    }

    /// Its error output, when it failed.
    ///
    /// # Panics
    /// When it ended well.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stderr
    }
}

impl Kubectl {
    /// kubectl with this kubeconfig and namespace.
    #[must_use]
    pub fn new(kubeconfig: PathBuf, namespace: &str) -> Self {
        Self { program: None, kubeconfig, namespace: namespace.to_owned(), websockets: true }
    }

    /// The same with the kubectl of another version, for example `1.35`, as `cargo xtask setup` fetches it.
    ///
    /// # Panics
    /// When it was not fetched.
    #[must_use]
    pub fn version(&self, version: &str) -> Self {
        let program = crate::tool(&format!("kubectl-{version}"));
        Self { program: Some(program), ..self.clone() }
    }

    /// The same with SPDY for streams, as older clients have them.
    #[must_use]
    pub fn without_websockets(&self) -> Self {
        Self { websockets: false, ..self.clone() }
    }

    /// The kubeconfig it uses.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The namespace it works in.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A command line, split at spaces; for arguments with spaces see [`Kubectl::args`].
    ///
    /// # Panics
    /// When kubectl cannot be started.
    #[track_caller]
    pub fn run(&self, line: &str) -> Outcome {
        self.args(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// Arguments and standard input.
    ///
    /// # Panics
    /// When kubectl cannot be started.
    #[track_caller]
    pub fn args(&self, args: &[&str], stdin: &str) -> Outcome {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts: `cargo xtask setup` installs it");
        let mut pipe = child.stdin.take().expect("stdin is piped");
        let (id, (ended, end)) = (child.id(), mpsc::channel::<()>());
        std::thread::scope(|scope| {
            // Beside the reading: a program that writes while it reads would wait for us, and we for it.
            // One that does not read its input may be gone already; what it says is what counts.
            scope.spawn(move || pipe.write_all(stdin.as_bytes()));
            scope.spawn(move || {
                if end.recv_timeout(COMMAND) == Err(mpsc::RecvTimeoutError::Timeout) {
                    eprintln!("kubectl did not end within {COMMAND:?} and is killed");
                    let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                }
            });
            let output = child.wait_with_output().expect("kubectl ends");
            drop(ended);
            Outcome::from(output)
        })
    }

    /// The command, for tests that keep it running.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None if self.websockets && args.first().is_some_and(|command| STREAMING.contains(command)) => {
                Command::new(crate::tool(STREAMS))
            }
            None => Command::new("kubectl"),
        };
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]).args(args);
        if !self.websockets {
            command
                .envs([("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]);
        }
        command
    }

    /// `kubectl apply -f -`.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        self.args(&["apply", "-f", "-"], manifest).ok();
    }

    /// Whether it is the machine's own, whose answers do not differ from the API's.
    fn is_default(&self) -> bool {
        self.program.is_none()
    }

    /// An object as JSON; `None` when there is none.
    ///
    /// # Panics
    /// When kubectl fails otherwise, or does not print JSON.
    #[track_caller]
    pub fn get(&self, object: &str) -> Option<Value> {
        if let Some(found) =
            self.is_default().then(|| objects::get(&self.kubeconfig, &self.namespace, object)).flatten()
        {
            return found;
        }
        let outcome = self.args(&["get", object, "-o", "json"], "");
        if outcome.code != 0 && outcome.stderr.contains("NotFound") {
            return None;
        }
        Some(serde_json::from_str(&outcome.ok()).expect("kubectl prints JSON"))
    }

    /// One value of an object by JSON pointer; `null` when the object or the value is not there.
    #[track_caller]
    #[must_use]
    pub fn value(&self, object: &str, pointer: &str) -> Value {
        self.get(object).and_then(|o| o.pointer(pointer).cloned()).unwrap_or(Value::Null)
    }

    /// Waits until a value of an object is this one, and gives the object as it was then: on a slow machine it may have
    /// changed again before it is asked for once more.
    ///
    /// # Panics
    /// When it is not within 60 s.
    #[track_caller]
    pub fn wait_value(&self, object: &str, pointer: &str, expected: &Value) -> Value {
        crate::wait_for(&format!("{object} {pointer} = {expected}"), std::time::Duration::from_secs(60), || {
            let object = self.get(object).unwrap_or_default();
            let seen = object.pointer(pointer).unwrap_or(&Value::Null);
            if seen == expected { Ok(object) } else { Err(object["status"].to_string()) }
        })
    }

    /// Reasons and messages of the Kubernetes Events about an object, oldest first.
    #[track_caller]
    #[must_use]
    pub fn events(&self, name: &str) -> Vec<(String, String)> {
        let selector = format!("involvedObject.name={name}");
        let list = self
            .args(
                &[
                    "get",
                    "events",
                    "--field-selector",
                    &selector,
                    "--sort-by",
                    ".metadata.creationTimestamp",
                    "-o",
                    "json",
                ],
                "",
            )
            .ok();
        let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
        let text = |e: &Value, f: &str| e[f].as_str().unwrap_or("").to_owned();
        list["items"].as_array().into_iter().flatten().map(|e| (text(e, "reason"), text(e, "message"))).collect()
    }
}
