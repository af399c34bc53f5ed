//! Commands of kubectl that print until they are stopped: `logs --follow`, `get --watch`.

use crate::{Kubectl, scaled};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

/// Longest time between two lines.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// A running command of kubectl that has printed its first line: it sees everything that happens from now on.
///
/// A test that only starts such a command, and then changes what it follows, fails wherever the change is faster than
/// kubectl's start.
#[derive(Debug)]
pub struct Following {
    child: Child,
    lines: Receiver<String>,
    /// The first line, until it is taken.
    first: Option<String>,
}

impl Kubectl {
    /// Starts a command and waits until it has printed a line.
    ///
    /// # Panics
    /// When kubectl cannot be started, or prints no line for 60 s.
    #[track_caller]
    #[must_use]
    pub fn follow(&self, args: &[&str]) -> Following {
        let mut child = self.command(args).stdout(Stdio::piped()).spawn().expect("kubectl starts");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut following = Following { child, lines, first: None };
        let first = following.next_line();
        following.first = Some(first.unwrap_or_else(|| panic!("kubectl {args:?} ended without a line")));
        following
    }
}

impl Following {
    /// Returns the next line, from the first one on; `None` when the command has ended.
    ///
    /// # Panics
    /// When no line comes for 60 s.
    #[track_caller]
    pub fn next_line(&mut self) -> Option<String> {
        self.first.take().or_else(|| match self.lines.recv_timeout(scaled(LINE_TIMEOUT)) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("kubectl printed no line for {:?}", scaled(LINE_TIMEOUT)),
        })
    }

    /// Waits for a line that matches.
    ///
    /// # Panics
    /// When the command ends before, or prints no line for 60 s.
    #[track_caller]
    pub fn wait_for_line(&mut self, description: &str, matches: impl Fn(&str) -> bool) {
        let mut seen = Vec::new();
        while let Some(line) = self.next_line() {
            if matches(&line) {
                return;
            }
            seen.push(line);
        }
        panic!("kubectl did not print {description}, but {seen:?}");
    }

    /// Waits until the command ends, and returns the lines that were not taken.
    #[track_caller]
    #[must_use]
    pub fn until_end(mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next_line()).collect()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
