//! Variables from a file in a volume (KEP-3721), in the part of a shell's language that upstream's kubelet reads:
//! `NAME='value'`, a comment after it, and values of several lines; nothing in a value means anything else.

use crate::untrusted_file;
use nix::{
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    sys::stat::Mode,
};
use std::{io, path::Path};

/// No environment is larger.
const LARGEST: usize = 2 << 20;

/// The value of a variable in a file of a volume; empty when the file does not have it.
///
/// # Errors
/// When the file is not there, or is none of this form.
pub(super) fn value(volume: &Path, file: &str, key: &str) -> Result<String, String> {
    let text = read(volume, file).map_err(|e| format!("{file}: {}", crate::os_error::words(&e)))?;
    parse(&text, key)
}

/// Containers write to the volume: a link in it leads nowhere but to another place in it.
fn read(volume: &Path, file: &str) -> io::Result<String> {
    let root = open(volume, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = untrusted_file::require_regular(openat2(&root, file, how)?.into())?;
    let bytes = untrusted_file::read_beginning(&file, LARGEST + 1)?;
    if bytes.len() > LARGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn parse(text: &str, key: &str) -> Result<String, String> {
    let blank = [' ', '\t'];
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let (number, line) = (at + 1, line.trim_start_matches(blank));
        let wrong = |why: &str| format!("invalid environment variable format at line {number}: {why}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| wrong("missing '='"))?;
        if name.trim_end_matches(blank).is_empty() {
            return Err(wrong("empty variable name"));
        }
        if name.ends_with(blank) {
            return Err(wrong("whitespace before '=' is not allowed"));
        }
        // As in a shell: what comes after a blank is not the value.
        if value.starts_with(blank) {
            if name == key {
                return Ok(String::new());
            }
            continue;
        }
        let mut rest = value.strip_prefix('\'').ok_or_else(|| wrong("value must be enclosed in single quotes"))?;
        let mut whole = String::new();
        let after = loop {
            if let Some((last, after)) = rest.split_once('\'') {
                whole.push_str(last);
                break after.trim_start_matches(blank);
            }
            whole.push_str(rest);
            whole.push('\n');
            rest = lines.next().map(|(_, line)| line).ok_or_else(|| {
                format!("invalid environment variable format starting at line {number}: unclosed single quote")
            })?;
        };
        if !after.is_empty() && !after.starts_with('#') {
            return Err(wrong("unexpected content after closing quote"));
        }
        if name == key {
            return Ok(whole);
        }
    }
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        assert_eq!(parse(text, "K").as_deref().map_err(String::as_str), expected, "{text:?}");
    }

    #[test]
    fn a_value_stands_in_single_quotes_and_means_itself() {
        check("K='v'", Ok("v"));
        check("# K='x'\n\n \t K='a \"b\" $c \\n' # why\n", Ok("a \"b\" $c \\n"));
        check("A='1'\nK='two\nlines'\nB='3'", Ok("two\nlines"));
        check("A='K='\r\nK='v'\r\n", Ok("v"));
        check("K=''", Ok(""));
        check("K= 'v'\n", Ok(""));
        check("A= 'v'\nK='w'", Ok("w"));
        check("A='1'\n", Ok(""));
        // What comes after it is not looked at.
        check("K='v'\nnonsense", Ok("v"));
    }

    #[test]
    fn what_is_no_such_file_is_refused_with_its_line() {
        let wrong = |line: u32, why: &str| format!("invalid environment variable format at line {line}: {why}");
        check("A='1'\nK", Err(&wrong(2, "missing '='")));
        check("='1'", Err(&wrong(1, "empty variable name")));
        check("K ='1'", Err(&wrong(1, "whitespace before '=' is not allowed")));
        check("K=1", Err(&wrong(1, "value must be enclosed in single quotes")));
        check("K=\"1\"", Err(&wrong(1, "value must be enclosed in single quotes")));
        check("K='1'2", Err(&wrong(1, "unexpected content after closing quote")));
        check("K='1\n2\n", Err("invalid environment variable format starting at line 1: unclosed single quote"));
    }

    #[test]
    fn links_lead_nowhere_but_into_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(dir.path().join("env"), "K='outside'").unwrap();
        std::fs::write(volume.join("env"), "K='inside'").unwrap();
        for target in ["/env", "../env", "env"] {
            let link = volume.join("link");
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).unwrap();
            assert_eq!(value(&volume, "link", "K").as_deref(), Ok("inside"), "{target}");
        }
        value(&volume, "none", "K").unwrap_err();
        value(&volume, ".", "K").unwrap_err();
    }
}
