//! Versions of OCI runtimes with known ways out of a container.

use crate::handlers::Handlers;
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::process::Command;

/// Deadline of `--version`.
const DEADLINE: Duration = Duration::from_secs(10);

type Version = [u32; 3];

/// An OCI runtime with known vulnerabilities in its older versions.
struct Fixes {
    /// Name, as `--version` prints it.
    name: &'static str,
    /// First versions without them, the first one of each minor version that has fixes.
    versions: &'static [Version],
    /// The same for users.
    text: &'static str,
}

/// Fixes of vulnerabilities by images and Pods.
const FIXES: [Fixes; 2] = [
    // CVE-2025-31133, CVE-2025-52565, CVE-2025-52881.
    Fixes { name: "runc", versions: &[[1, 2, 8], [1, 3, 3], [1, 4, 0]], text: "1.2.8, 1.3.3 and 1.4.0" },
    // CVE-2026-47766. `crun` was not vulnerable to the above ones, and accesses to /proc are hardened since 1.25.1.
    Fixes { name: "crun", versions: &[[1, 28, 0]], text: "1.28" },
];

/// Warns of handlers that are old versions. In a task: the start does not wait for their programs.
pub(crate) fn check(handlers: &Handlers) {
    let names: Vec<String> = handlers.names().map(str::to_owned).collect();
    let programs: Vec<PathBuf> = names.iter().filter_map(|name| Some(handlers.get(name)?.program.clone())).collect();
    tokio::spawn(async move {
        for program in programs {
            if let Some((fixes, version)) = version(&program).await
                && !is_fixed(fixes, version)
            {
                let [major, minor, patch] = version;
                tracing::warn!(
                    program = %program.display(),
                    version = format!("{major}.{minor}.{patch}"),
                    "{} before {} has known container escapes, unless its package has the fixes",
                    fixes.name,
                    fixes.text
                );
            }
        }
    });
}

/// Returns the version of a program; `None` if it is another one than those of [`FIXES`].
async fn version(program: &Path) -> Option<(&'static Fixes, Version)> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(DEADLINE, command.output()).await.ok()?.ok()?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the first line, for example `runc version 1.1.5+ds1` or `crun version 1.28`.
fn parse(text: &str) -> Option<(&'static Fixes, Version)> {
    let (name, version) = text.lines().next()?.split_once(" version ")?;
    let fixes = FIXES.iter().find(|fixes| fixes.name == name)?;
    let release = version.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut numbers = release.split('.').map(str::parse::<u32>);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((fixes, [major, minor, numbers.next().map_or(Some(0), Result::ok)?]))
}

fn is_fixed(fixes: &Fixes, version: Version) -> bool {
    let of_minor = fixes.versions.iter().find(|fixed| fixed.get(..2) == version.get(..2));
    of_minor.or(fixes.versions.first()).is_none_or(|fixed| version >= *fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(&'static str, Version)> {
        parse(text).map(|(fixes, version)| (fixes.name, version))
    }

    #[test]
    fn version_is_that_of_runc_or_crun() {
        assert_eq!(parsed("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\n"), Some(("runc", [1, 1, 5])));
        assert_eq!(parsed("runc version 1.4.0-rc.2\n"), Some(("runc", [1, 4, 0])));
        assert_eq!(parsed("crun version 1.8.1\ncommit: f8a0\n"), Some(("crun", [1, 8, 1])));
        assert_eq!(parsed("crun version 1.28\n"), Some(("crun", [1, 28, 0])));
        for text in
            ["runsc version release-1\n", "runc version unknown\n", "crun version 1\n", "crun version 1.x\n", ""]
        {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn fixed_versions_are_those_of_the_advisories() {
        let is_fixed = |text: &str| {
            let (fixes, version) = parse(text).unwrap();
            is_fixed(fixes, version)
        };
        for version in ["1.2.8", "1.3.3", "1.3.10", "1.4.0", "1.5.0", "2.0.0"] {
            assert!(is_fixed(&format!("runc version {version}")), "{version}");
        }
        for version in ["1.0.0", "1.1.15", "1.2.7", "1.3.2"] {
            assert!(!is_fixed(&format!("runc version {version}")), "{version}");
        }
        for (version, expected) in [("1.8.1", false), ("1.27.1", false), ("1.28", true), ("1.29.1", true)] {
            assert_eq!(is_fixed(&format!("crun version {version}")), expected, "{version}");
        }
    }
}
