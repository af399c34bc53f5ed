//! Versions of `runc` with known ways out of a container.

use crate::handlers::Handlers;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::Command;

/// First versions without them, each of its minor version (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881).
const FIXED: [[u32; 3]; 3] = [[1, 2, 8], [1, 3, 3], [1, 4, 0]];
/// Deadline of `runc --version`.
const DEADLINE: Duration = Duration::from_secs(10);

/// Warns of handlers that are an old `runc`. In a task: the start does not wait for their programs.
pub(crate) fn check(handlers: &Handlers) {
    let names: Vec<String> = handlers.names().map(str::to_owned).collect();
    let programs: Vec<PathBuf> = names.iter().filter_map(|name| Some(handlers.get(name)?.program.clone())).collect();
    tokio::spawn(async move {
        for program in programs {
            if let Some(version) = version(&program).await
                && !is_fixed(version)
            {
                let [major, minor, patch] = version;
                tracing::warn!(
                    program = %program.display(),
                    version = format!("{major}.{minor}.{patch}"),
                    "runc before 1.2.8, 1.3.3 and 1.4.0 has known container escapes, unless its package has the fixes"
                );
            }
        }
    });
}

/// Returns the version of a program; `None` if it is not `runc`.
async fn version(program: &Path) -> Option<[u32; 3]> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await.ok()?.ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the first line, for example `runc version 1.1.5+ds1`.
fn parse(text: &str) -> Option<[u32; 3]> {
    let version = text.lines().next()?.strip_prefix("runc version ")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?])
}

fn is_fixed(version: [u32; 3]) -> bool {
    let of_minor = FIXED.iter().find(|fixed| fixed.get(..2) == version.get(..2));
    version >= *of_minor.unwrap_or(&FIXED[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_runc_only() {
        assert_eq!(parse("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n"), Some([1, 1, 5]));
        assert_eq!(parse("runc version 1.4.0-rc.2\n"), Some([1, 4, 0]));
        for text in ["crun version 1.8.1\n", "runc version unknown\n", "runc version 1.2\n", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn fixed_versions_are_those_of_the_advisories() {
        for version in [[1, 2, 8], [1, 3, 3], [1, 3, 10], [1, 4, 0], [1, 5, 0], [2, 0, 0]] {
            assert!(is_fixed(version), "{version:?}");
        }
        for version in [[1, 0, 0], [1, 1, 15], [1, 2, 7], [1, 3, 2]] {
            assert!(!is_fixed(version), "{version:?}");
        }
    }
}
