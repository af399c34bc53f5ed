//! Commands in containers: what they do, and what was run.

use super::FakeRuntime;
use kubelet::Clock;
use parking_lot::Mutex;
use runtime::{ContainerId, ExecOutput, RuntimeError};
use std::{collections::BTreeMap, time::Duration};

/// How a command in a container behaves.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    /// Ends at once, with this code and output.
    Ends(i32, String),
    /// Ends well after so many seconds.
    Takes(u64),
    /// Runs until its time is over.
    Hangs,
    /// Cannot be started, for this reason.
    Fails(String),
}

#[derive(Default)]
pub(super) struct Commands(Mutex<State>);

#[derive(Default)]
struct State {
    /// By their words.
    behaviours: BTreeMap<String, Command>,
    /// Those that were run, and where.
    run: Vec<(String, String)>,
    begun: Vec<jiff::Timestamp>,
    /// Those that were not cut off.
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
            Some(Command::Fails(why)) => return Err(RuntimeError::Failed(why)),
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
    /// From now on this command behaves so, in every container; one that nobody told of cannot be started.
    pub(crate) fn command(&self, words: &str, behaviour: Command) {
        self.commands.0.lock().behaviours.insert(words.to_owned(), behaviour);
    }

    /// The commands that were run: the container's id and the words.
    pub(crate) fn commands(&self) -> Vec<(String, String)> {
        self.commands.0.lock().run.clone()
    }

    /// When commands were begun.
    pub(crate) fn begun(&self) -> Vec<jiff::Timestamp> {
        self.commands.0.lock().begun.clone()
    }

    /// How many commands have ended by themselves.
    pub(crate) fn ended_commands(&self) -> usize {
        self.commands.0.lock().ended
    }
}
