//! Runs command lines of kubectl and other clients, and compares their output.

use crate::{Kubectl, Outcome};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A working directory with manifests, and kubectl.
#[derive(Debug)]
pub struct Shell {
    kubectl: Kubectl,
    /// Other clients, by their name in command lines.
    programs: Vec<(&'static str, PathBuf)>,
    dir: tempfile::TempDir,
}

/// A command line, its exit code and its output: see [`Shell::check`].
pub type Line<'a> = (&'a str, i32, &'a str);

impl Shell {
    /// Creates a shell with an empty directory.
    ///
    /// # Panics
    /// When the directory cannot be created.
    #[must_use]
    pub fn new(kubectl: Kubectl) -> Self {
        Self { kubectl, programs: Vec::new(), dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// Adds a program that command lines may run. It gets the cluster by `KUBECONFIG`, whose context has no namespace.
    #[must_use]
    pub fn with(mut self, name: &'static str, program: PathBuf) -> Self {
        self.programs.push((name, program));
        self
    }

    /// Returns the kubectl of this shell.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Returns the directory in which commands run.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into the directory.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.dir.path().join(name), text).expect("a file");
    }

    /// Runs a command line: variables (`EDITOR=...`), then `kubectl` or another client and its arguments, quoted as in a shell.
    ///
    /// # Panics
    /// When the line is invalid, or the client cannot be started.
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
        // Files that a client keeps in HOME are removed with the shell.
        command.args(args).env("KUBECONFIG", self.kubectl.kubeconfig()).env("HOME", self.dir.path());
        command
    }

    /// Runs command lines in order and checks the exit code and output of each.
    ///
    /// The expected text is the whole standard output followed by the whole standard error. In it `...` matches any
    /// text, and white space matches any white space.
    ///
    /// # Panics
    /// When a command exits with another code or prints another text. The message lists all of them.
    #[track_caller]
    pub fn check(&self, lines: &[Line<'_>]) {
        let failures: Vec<String> = lines.iter().filter_map(|line| self.failure(*line)).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    #[track_caller]
    fn failure(&self, (line, code, expected): Line<'_>) -> Option<String> {
        let outcome = self.run(line);
        let seen = format!("{}\n{}", outcome.stdout, outcome.stderr);
        if outcome.code == code && matches_pattern(&seen, expected) {
            return None;
        }
        Some(format!("$ {line}\n[{}] {}\nexpected:\n[{code}] {expected}\n", outcome.code, seen.trim()))
    }
}

/// Returns whether a text matches; `...` matches any text, and white space matches any white space.
fn matches_pattern(text: &str, expected: &str) -> bool {
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
    use super::matches_pattern;

    #[test]
    fn three_dots_match_any_text() {
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
            assert_eq!(matches_pattern(text, expected), same, "{text:?} {expected:?}");
        }
    }
}
