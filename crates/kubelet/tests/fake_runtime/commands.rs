//! Exec commands of the fake runtime: their behaviour and a record of runs.

use super::FakeRuntime;
use kubelet::Clock;
use parking_lot::Mutex;
use runtime::{ContainerId, ExecOutput, RuntimeError};
use std::{collections::BTreeMap, time::Duration};

/// Behaviour of a command.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Exits at once with this code and output.
    Ends(i32, String),
    /// Exits with code 0 after this many seconds.
    Takes(u64),
    /// Runs until its timeout.
    Hangs,
    /// Cannot be started, with this error.
    Fails(String),
}

#[derive(Default)]
pub(super) struct Commands(Mutex<State>);

#[derive(Default)]
struct State {
    /// Behaviours by command line.
    behaviours: BTreeMap<String, Command>,
    /// Container ID and command line of each run.
    run: Vec<(String, String)>,
    begun: Vec<jiff::Timestamp>,
    /// Number of commands that ended before their timeout.
    ended: usize,
}

impl Commands {
    pub(super) async fn run(
        &self,
        id: &ContainerId,
        command: &[String],
        timeout: Duration,
        clock: &Clock,
    ) -> Result<ExecOutput, RuntimeError> {
        let words = command.join(" ");
        let behaviour = {
            let mut state = self.0.lock();
            state.run.push((id.0.clone(), words.clone()));
            state.begun.push(clock.now());
            state.behaviours.get(&words).cloned()
        };
        let (takes, code, output) = match behaviour {
            Some(Command::Ends(code, output)) => (Duration::ZERO, code, output),
            Some(Command::Takes(seconds)) => (Duration::from_secs(seconds), 0, String::new()),
            Some(Command::Hangs) => (Duration::MAX, 0, String::new()),
            Some(Command::Fails(message)) => return Err(RuntimeError::Failed(message)),
            None => return Err(RuntimeError::Failed(format!("{words}: no such file"))),
        };
        if !takes.is_zero() {
            tokio::time::sleep(takes.min(timeout)).await;
        }
        if takes >= timeout {
            return Err(RuntimeError::Deadline(words));
        }
        self.0.lock().ended += 1;
        Ok(ExecOutput { code, stdout: output.into_bytes(), stderr: Vec::new() })
    }
}

impl FakeRuntime {
    /// Sets the behaviour of a command in all containers. Other commands cannot be started.
    pub(crate) fn command(&self, words: &str, behaviour: Command) {
        self.commands.0.lock().behaviours.insert(words.to_owned(), behaviour);
    }

    /// Returns container ID and command line of each run.
    pub(crate) fn commands(&self) -> Vec<(String, String)> {
        self.commands.0.lock().run.clone()
    }

    /// Returns the start times of commands.
    pub(crate) fn begun(&self) -> Vec<jiff::Timestamp> {
        self.commands.0.lock().begun.clone()
    }

    /// Returns the number of commands that ended before their timeout.
    pub(crate) fn ended_commands(&self) -> usize {
        self.commands.0.lock().ended
    }
}
