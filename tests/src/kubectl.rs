//! Runs the real kubectl.

use crate::{PodBuilder, api_get, scaled};
use serde_json::Value;
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};

/// Command timeout. A command that exceeds it hangs, and is killed so that the other tests can continue.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(180);
/// Commands whose streams kubectl before 1.34 may lose ("Unknown stream id"), because it reads the WebSocket before it has
/// created all streams (kubernetes/kubernetes#131203).
const STREAMING_COMMANDS: [&str; 5] = ["exec", "attach", "run", "cp", "debug"];
/// The kubectl that runs [`STREAMING_COMMANDS`] instead of the machine's own.
const STREAMING_KUBECTL: &str = "kubectl-1.35";

/// Timeout of kubectl's requests for OpenAPI and discovery, unless `--request-timeout` is set (client-go's `defaultTimeout`).
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(32);
/// Commands without a stream, whose requests all have the same timeout.
const SHORT_COMMANDS: [&str; 9] =
    ["annotate", "apply", "create", "expose", "label", "patch", "replace", "scale", "set"];

/// kubectl with a kubeconfig and a namespace.
#[derive(Debug, Clone)]
pub struct Kubectl {
    /// Path of the program; `None` for the machine's own kubectl.
    program: Option<PathBuf>,
    kubeconfig: PathBuf,
    namespace: String,
    /// Whether kubectl uses WebSockets for streams; else SPDY.
    websockets: bool,
}

/// Output and exit code of a command.
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
    /// Returns the standard output of a successful command.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout
    }

    /// Returns whether the command succeeded and its output matches. For commands that may fail until a condition holds.
    #[must_use]
    pub fn is_ok_and(&self, matches: impl FnOnce(&str) -> bool) -> bool {
        self.code == 0 && matches(&self.stdout)
    }

    /// Returns the standard error of a failed command.
    ///
    /// # Panics
    /// When the command succeeded.
    #[track_caller]
    pub fn failed(self) -> String {
        assert_ne!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stderr
    }
}

impl Kubectl {
    /// Returns kubectl with this kubeconfig and namespace.
    #[must_use]
    pub fn new(kubeconfig: PathBuf, namespace: &str) -> Self {
        Self { program: None, kubeconfig, namespace: namespace.to_owned(), websockets: true }
    }

    /// Returns the same with another version of kubectl, for example `1.35`, which `cargo xtask setup` fetches.
    ///
    /// # Panics
    /// When that version was not fetched.
    #[must_use]
    pub fn version(&self, version: &str) -> Self {
        let program = crate::tool(&format!("kubectl-{version}"));
        Self { program: Some(program), ..self.clone() }
    }

    /// Returns the same with SPDY for streams, as in older clients.
    #[must_use]
    pub fn without_websockets(&self) -> Self {
        Self { websockets: false, ..self.clone() }
    }

    /// Returns the path of the kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Runs a command line, split at spaces. For arguments with spaces see [`Kubectl::args`].
    ///
    /// # Panics
    /// When kubectl cannot be started.
    #[track_caller]
    pub fn run(&self, line: &str) -> Outcome {
        self.args(&line.split_whitespace().collect::<Vec<_>>(), "")
    }

    /// Runs kubectl with arguments and standard input.
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
            // Writing in parallel avoids a deadlock with a program that writes while it reads.
            // A failed write is ignored, for the program may exit without reading its input.
            scope.spawn(move || pipe.write_all(stdin.as_bytes()));
            scope.spawn(move || {
                if end.recv_timeout(scaled(COMMAND_TIMEOUT)) == Err(mpsc::RecvTimeoutError::Timeout) {
                    eprintln!("kubectl did not end within {:?} and is killed", scaled(COMMAND_TIMEOUT));
                    let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                }
            });
            let output = child.wait_with_output().expect("kubectl ends");
            drop(ended);
            Outcome::from(output)
        })
    }

    /// Returns the command, for tests that keep it running. See [`Kubectl::follow`] for commands that follow something.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.program {
            Some(program) => Command::new(program),
            None if self.websockets && args.first().is_some_and(|command| STREAMING_COMMANDS.contains(command)) => {
                Command::new(crate::tool(STREAMING_KUBECTL))
            }
            None => Command::new("kubectl"),
        };
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", &self.namespace]);
        let timeout = scaled(DISCOVERY_TIMEOUT);
        if timeout > DISCOVERY_TIMEOUT && args.first().is_some_and(|command| SHORT_COMMANDS.contains(command)) {
            command.arg(format!("--request-timeout={}s", timeout.as_secs()));
        }
        command.args(args.iter().map(|arg| scale_timeout(arg)));
        if !self.websockets {
            command
                .envs([("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")]);
        }
        command
    }

    /// Runs `kubectl apply -f -`.
    ///
    /// # Panics
    /// When the command fails.
    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        self.args(&["apply", "-f", "-"], manifest).ok();
    }

    /// Returns whether this is the machine's own kubectl, whose `get` can be replaced by a request to the API.
    fn is_default(&self) -> bool {
        self.program.is_none()
    }

    /// Returns an object as JSON; `None` when it does not exist.
    ///
    /// # Panics
    /// When kubectl fails otherwise, or does not print JSON.
    #[track_caller]
    pub fn get(&self, object: &str) -> Option<Value> {
        if let Some(found) =
            self.is_default().then(|| api_get::get(&self.kubeconfig, &self.namespace, object)).flatten()
        {
            return found;
        }
        let outcome = self.args(&["get", object, "-o", "json"], "");
        if outcome.code != 0 && outcome.stderr.contains("NotFound") {
            return None;
        }
        Some(serde_json::from_str(&outcome.ok()).expect("kubectl prints JSON"))
    }

    /// Returns a value of an object by JSON pointer; `null` when the object or the value does not exist.
    #[track_caller]
    #[must_use]
    pub fn value(&self, object: &str, pointer: &str) -> Value {
        self.get(object).and_then(|o| o.pointer(pointer).cloned()).unwrap_or(Value::Null)
    }

    /// Waits until a value of an object is the expected one, and returns the object as read then: on a slow machine it
    /// may have changed again before another read.
    ///
    /// # Panics
    /// When the value is another one for 60 s.
    #[track_caller]
    pub fn wait_value(&self, object: &str, pointer: &str, expected: &Value) -> Value {
        crate::wait_for(&format!("{object} {pointer} = {expected}"), std::time::Duration::from_secs(60), || {
            let object = self.get(object).unwrap_or_default();
            let seen = object.pointer(pointer).unwrap_or(&Value::Null);
            if seen == expected { Ok(object) } else { Err(object["status"].to_string()) }
        })
    }

    /// Waits up to 60 s until a Pod is Ready.
    ///
    /// # Panics
    /// When the Pod does not exist, or is not Ready in time.
    #[track_caller]
    pub fn wait_ready(&self, pod: &str) {
        self.run(&format!("wait --for=condition=Ready --timeout=60s pod/{pod}")).ok();
    }

    /// Creates a Pod, waits up to 60 s until it ends, deletes it, and returns its output.
    ///
    /// # Panics
    /// When the Pod is not accepted or does not end in time.
    #[track_caller]
    #[must_use]
    pub fn output_of(&self, pod: &PodBuilder) -> String {
        let object = format!("pod/{}", pod.name());
        self.apply(&pod.to_string());
        crate::wait_for(&format!("{object} to end"), Duration::from_secs(60), || {
            let status = self.value(&object, "/status");
            if matches!(status["phase"].as_str(), Some("Succeeded" | "Failed")) {
                Ok(())
            } else {
                Err(status.to_string())
            }
        });
        let output = self.run(&format!("logs {object}")).ok();
        self.run(&format!("delete {object} --wait")).ok();
        output
    }

    /// Returns the condition of an object with this type; `null` when the object or the condition does not exist.
    #[track_caller]
    #[must_use]
    pub fn condition(&self, object: &str, type_: &str) -> Value {
        let conditions = self.value(object, "/status/conditions");
        conditions.as_array().into_iter().flatten().find(|c| c["type"] == type_).cloned().unwrap_or_default()
    }

    /// Returns the objects of a resource with these labels, for example `list("pods", "app=web")`.
    ///
    /// # Panics
    /// When kubectl fails.
    #[track_caller]
    #[must_use]
    pub fn list(&self, resource: &str, selector: &str) -> Vec<Value> {
        let list = self.run(&format!("get {resource} -l {selector} -o json")).ok();
        let list: Value = serde_json::from_str(&list).expect("kubectl prints JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the names of the Pods with these labels.
    ///
    /// # Panics
    /// When kubectl fails.
    #[track_caller]
    #[must_use]
    pub fn pod_names(&self, selector: &str) -> Vec<String> {
        let names = self.run(&format!("get pods -l {selector} -o name")).ok();
        names.lines().map(|line| line.trim_start_matches("pod/").to_owned()).collect()
    }

    /// Waits up to 100 s for an Event about an object whose message contains a text. Events are written apart from what
    /// they report, so that they may come later than it is seen.
    ///
    /// # Panics
    /// When there is no such Event in time.
    #[track_caller]
    pub fn wait_for_event(&self, name: &str, reason: &str, text: &str) {
        crate::wait_for(&format!("{name}: {reason} {text:?}"), Duration::from_secs(100), || {
            let events = self.events(name);
            let is_there = events.iter().any(|(r, message)| r == reason && message.contains(text));
            if is_there { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }

    /// Waits up to 60 s until the output of a command is the expected one.
    ///
    /// # Panics
    /// When it is another one until then.
    #[track_caller]
    pub fn wait_for_output(&self, line: &str, expected: &str) {
        crate::wait_for(&format!("kubectl {line}: {expected:?}"), Duration::from_secs(60), || {
            let outcome = self.run(line);
            if outcome.is_ok_and(|output| output == expected) { Ok(()) } else { Err(format!("{outcome:?}")) }
        });
    }

    /// Returns reasons and messages of the Events about an object, oldest first.
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

/// Scales a flag like `--timeout=60s`.
fn scale_timeout(arg: &str) -> String {
    let seconds = arg.strip_prefix("--timeout=").and_then(|rest| rest.strip_suffix('s')?.parse().ok());
    let scaled = |seconds| format!("--timeout={}s", scaled(Duration::from_secs(seconds)).as_secs());
    seconds.map_or_else(|| arg.to_owned(), scaled)
}
