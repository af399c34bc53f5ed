//! Env files in volumes (KEP-3721), in the subset of shell syntax that upstream's kubelet accepts: `NAME='value'`, trailing
//! comments, and multi-line values; no escapes or expansion within a value.

use crate::{blocking::BlockingTaskError, os_error, untrusted_file};
use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};
use std::{io, path::Path};

/// Maximum size of an env file in bytes.
const MAX_SIZE: usize = 2 << 20;

/// Missing or malformed env file.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnvFileError {
    #[error("{file}: {}", os_error::message(.source))]
    Read { file: String, source: io::Error },
    #[error("invalid environment variable format at line {line}: {problem}")]
    Format { line: usize, problem: &'static str },
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    UnclosedQuote { line: usize },
    #[error(transparent)]
    Task(#[from] BlockingTaskError),
}

/// Returns the value of a variable in an env file of a volume; empty if the file does not define it.
pub(super) fn value(volume: &Path, file: &str, key: &str) -> Result<String, EnvFileError> {
    let text = read(volume, file).map_err(|source| EnvFileError::Read { file: file.to_owned(), source })?;
    parse(&text, key)
}

/// Reads a file of the volume. Containers write to the volume: symbolic links are resolved within it.
fn read(volume: &Path, file: &str) -> io::Result<String> {
    let root = open(volume, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = untrusted_file::require_regular(openat2(&root, file, how)?.into())?;
    let bytes = untrusted_file::read_beginning(&file, MAX_SIZE + 1)?;
    if bytes.len() > MAX_SIZE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(text: &str, key: &str) -> Result<String, EnvFileError> {
    let blank = [' ', '\t'];
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let (number, line) = (at + 1, line.trim_start_matches(blank));
        let invalid = |problem| EnvFileError::Format { line: number, problem };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| invalid("missing '='"))?;
        if name.trim_end_matches(blank).is_empty() {
            return Err(invalid("empty variable name"));
        }
        if name.ends_with(blank) {
            return Err(invalid("whitespace before '=' is not allowed"));
        }
        // As in a shell, a value does not start after a blank.
        if value.starts_with(blank) {
            if name == key {
                return Ok(String::new());
            }
            continue;
        }
        let mut rest = value.strip_prefix('\'').ok_or_else(|| invalid("value must be enclosed in single quotes"))?;
        let mut parsed = String::new();
        let after = loop {
            if let Some((last, after)) = rest.split_once('\'') {
                parsed.push_str(last);
                break after.trim_start_matches(blank);
            }
            parsed.push_str(rest);
            parsed.push('\n');
            rest = lines.next().map(|(_, line)| line).ok_or(EnvFileError::UnclosedQuote { line: number })?;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return Err(invalid("unexpected content after closing quote"));
        }
        if name == key {
            return Ok(parsed);
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let found = parse(text, "K").map_err(|e| e.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{text:?}");
    }

    #[test]
    fn env_file_value_is_single_quoted_and_literal() {
        check("K='v'", Ok("v"));
        check("# K='x'\n\n \t K='a \"b\" $c \\n' # why\n", Ok("a \"b\" $c \\n"));
        check("A='1'\nK='two\nlines'\nB='3'", Ok("two\nlines"));
        check("A='K='\r\nK='v'\r\n", Ok("v"));
        check("K=''", Ok(""));
        check("K= 'v'\n", Ok(""));
        check("A= 'v'\nK='w'", Ok("w"));
        check("A='1'\n", Ok(""));
        // Later lines are not parsed.
        check("K='v'\nnonsense", Ok("v"));
    }

    #[test]
    fn malformed_env_file_is_rejected_with_the_line_number() {
        let invalid =
            |line: u32, message: &str| format!("invalid environment variable format at line {line}: {message}");
        check("A='1'\nK", Err(&invalid(2, "missing '='")));
        check("='1'", Err(&invalid(1, "empty variable name")));
        check("K ='1'", Err(&invalid(1, "whitespace before '=' is not allowed")));
        check("K=1", Err(&invalid(1, "value must be enclosed in single quotes")));
        check("K=\"1\"", Err(&invalid(1, "value must be enclosed in single quotes")));
        check("K='1'2", Err(&invalid(1, "unexpected content after closing quote")));
        check("K='1\n2\n", Err("invalid environment variable format starting at line 1: unclosed single quote"));
    }

    #[test]
    fn env_file_symlinks_resolve_within_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(dir.path().join("env"), "K='outside'").unwrap();
        std::fs::write(volume.join("env"), "K='inside'").unwrap();
        for target in ["/env", "../env", "env"] {
            let link = volume.join("link");
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(value(&volume, "link", "K").unwrap(), "inside", "{target}");
        }
        value(&volume, "none", "K").unwrap_err();
        value(&volume, ".", "K").unwrap_err();
    }
}
