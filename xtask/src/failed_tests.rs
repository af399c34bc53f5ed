//! Repeats the failures of a run of tests at its end, where a reader of a long log looks first.

use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
};

/// Most lines of failures that are repeated.
const MAX_LINES: usize = 400;

/// The lines of a test run that tell of failures: from `failures:` up to the result of a test program, as libtest and
/// libtest-mimic print them.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    /// Whether the last line belongs to failures.
    inside: bool,
}

impl Failures {
    fn read(&mut self, line: &str) {
        self.inside |= line == "failures:";
        if self.inside && self.lines.len() < MAX_LINES {
            self.lines.push(line.to_owned());
        }
        self.inside &= !line.starts_with("test result:");
    }
}

/// Runs a command that runs tests, and shows its output. When it fails, its failed tests are repeated at the end.
///
/// # Errors
/// When the command cannot be started, or fails.
pub(crate) fn run(heading: &str, command: &mut Command) -> Result<()> {
    println!("==> {heading}");
    let program = command.get_program().to_owned();
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("failed to start {program:?}"))?;
    let failures = child.stdout.take().map(|output| show(output, std::io::stdout())).transpose()?.unwrap_or_default();
    let status = child.wait()?;
    if status.success() {
        return Ok(());
    }
    println!("==> failed tests");
    for line in &failures.lines {
        println!("{line}");
    }
    bail!("{heading}: {program:?} ended with {status}")
}

/// Copies output until its end, and returns the failures in it.
fn show(output: impl Read, mut to: impl Write) -> std::io::Result<Failures> {
    let (mut failures, mut output, mut line) = (Failures::default(), BufReader::new(output), Vec::new());
    while output.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        to.flush()?;
        failures.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(failures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_each_test_program_are_collected() {
        let output = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nseen 1\n\n\
            failures:\n    b\n\ntest result: FAILED. 1 passed\n\nrunning 1 test\ntest c ... FAILED\n\nfailures:\n\n---- c ----\n\
            seen 2\n\ntest result: FAILED. 0 passed\n";
        let mut shown = Vec::new();
        let failures = show(output.as_bytes(), &mut shown).unwrap();
        assert_eq!(String::from_utf8(shown).unwrap(), output);
        let expected = "failures:\n\n---- b stdout ----\nseen 1\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed\n\
            failures:\n\n---- c ----\nseen 2\n\ntest result: FAILED. 0 passed";
        assert_eq!(failures.lines.join("\n"), expected);
    }

    #[test]
    fn output_of_passed_tests_has_no_failures() {
        let output = "running 1 test\ntest failures ... ok\n\ntest result: ok. 1 passed\n";
        assert!(show(output.as_bytes(), std::io::sink()).unwrap().lines.is_empty());
    }
}
