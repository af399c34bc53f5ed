//! Command lines with kubectl, and with other clients, as a user types them, and what the user then reads.

use crate::{Kubectl, Outcome};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A directory with a user's manifests, and kubectl.
#[derive(Debug)]
pub struct Shell {
    kubectl: Kubectl,
    /// Other clients, by the name that lines give them.
    programs: Vec<(&'static str, PathBuf)>,
    dir: tempfile::TempDir,
}

/// A command line, its exit code, and what it prints: see [`Shell::check`].
pub type Line<'a> = (&'a str, i32, &'a str);

impl Shell {
    /// A shell with an empty directory.
    ///
    /// # Panics
    /// When the directory cannot be made.
    #[must_use]
    pub fn new(kubectl: Kubectl) -> Self {
        Self { kubectl, programs: Vec::new(), dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// The same shell, in which lines may run one more program. It finds the cluster as a user's does: by `KUBECONFIG`, whose
    /// context has no namespace.
    #[must_use]
    pub fn with(mut self, name: &'static str, program: PathBuf) -> Self {
        self.programs.push((name, program));
        self
    }

    /// The kubectl of this shell.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// The directory in which commands run.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into the directory.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), text).expect("a file");
    }

    /// Runs one line: variables (`EDITOR=...`), then `kubectl` or another client and its arguments, quoted as in a shell.
    ///
    /// # Panics
    /// When it is no such line, or the client cannot be started.
    #[track_caller]
    pub fn run(&self, line: &str) -> Outcome {
        let words = shlex::split(line).unwrap_or_else(|| panic!("quotes do not close: {line}"));
        let at = words.iter().take_while(|w| w.contains('=')).count();
        let args: Vec<&str> = words[at + 1..].iter().map(String::as_str).collect();
        let mut command = self.command(&words[at], &args);
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command.envs(words[..at].iter().filter_map(|w| w.split_once('=')));
        Outcome::from(command.output().expect("the client starts: `cargo xtask setup` installs it"))
    }

    #[track_caller]
    fn command(&self, name: &str, args: &[&str]) -> Command {
        if name == "kubectl" {
            return self.kubectl.command(args);
        }
        let (_, program) =
            self.programs.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("there is no {name}"));
        let mut command = Command::new(program);
        // What a client keeps at home goes with the shell.
        command.args(args).env("KUBECONFIG", self.kubectl.kubeconfig()).env("HOME", self.dir.path());
        command
    }

    /// Runs lines one after another, and tells of all that end or read otherwise than they should.
    ///
    /// What is expected is the whole of standard output and then of standard error, in which `...` stands for
    /// anything, and any white space for any other.
    ///
    /// # Panics
    /// When a line ends with another code or prints something else.
    #[track_caller]
    pub fn check(&self, lines: &[Line<'_>]) {
        let wrong: Vec<String> = lines.iter().filter_map(|line| self.differs(*line)).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[track_caller]
    fn differs(&self, (line, code, expected): Line<'_>) -> Option<String> {
        let outcome = self.run(line);
        let seen = format!("{}\n{}", outcome.stdout, outcome.stderr);
        if outcome.code == code && reads(&seen, expected) {
            return None;
        }
        Some(format!("$ {line}\n[{}] {}\nexpected:\n[{code}] {expected}\n", outcome.code, seen.trim()))
    }
}

/// Whether a text is what is expected; `...` stands for anything, and any white space for any other.
fn reads(text: &str, expected: &str) -> bool {
    let plain = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
    let (text, expected) = (plain(text), plain(expected));
    let mut parts = expected.split("...").map(str::trim);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::reads;

    #[test]
    fn three_dots_stand_for_anything() {
        for (text, expected, same) in [
            ("a  b\nc\n", "a b c", true),
            ("a b c", "a b", false),
            ("a b c", "a ... c", true),
            ("a b c", "...b...", true),
            ("a b c", "... c ... b ...", false),
            ("a b", "... b c", false),
            ("", "", true),
            ("x", "", false),
        ] {
            assert_eq!(reads(text, expected), same, "{text:?} {expected:?}");
        }
    }
}
