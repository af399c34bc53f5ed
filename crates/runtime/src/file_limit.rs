//! Raises the limit of open files (`RLIMIT_NOFILE`) of Podium, and resets the limit and the umask for child processes.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{io, path::Path, sync::OnceLock};
use tokio::process::Command;

/// Upper bound of the soft limit.
const MAX_SOFT_LIMIT: u64 = 1 << 20;
/// Shell script that sets the limit to its first argument unless that is empty, and executes the remaining arguments. The
/// umask is 022, because containerd writes files for containers that do not run as root, such as `resolv.conf`.
const START: &str = r#"umask 022; [ -z "$0" ] || ulimit -S -n "$0"; exec "$@""#;

/// Soft limit before it was raised.
static ORIGINAL: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit of this process to the hard limit, and returns the new limit.
///
/// # Errors
/// If the system call fails.
pub fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let limit = hard.min(MAX_SOFT_LIMIT).max(soft);
    if limit > soft {
        setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
        ORIGINAL.get_or_init(|| soft);
    }
    Ok(limit)
}

/// Returns the soft and hard limit for containers: those of this process before the soft one was raised.
///
/// # Errors
/// If the system call fails.
pub fn container_file_limits() -> io::Result<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok((ORIGINAL.get().copied().unwrap_or(soft), hard))
}

/// Returns a command that runs a program with Podium's original limit and umask 022. Containers inherit the limit, and some
/// programs iterate over all possible descriptors.
pub(crate) fn command(program: &Path) -> Command {
    let soft = ORIGINAL.get().map(ToString::to_string).unwrap_or_default();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", START, &soft]).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn umask_of_podium_is_not_inherited_by_containerd() {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let output = command(Path::new("/bin/sh")).args(["-c", "umask"]).output().await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "0022\n");
    }

    #[tokio::test]
    async fn raised_limit_is_not_inherited_by_containerd() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // The limit as if no parent process had raised it.
        let low = soft.min(500);
        setrlimit(Resource::RLIMIT_NOFILE, low, hard).unwrap();
        let raised = raise_file_limit().unwrap();
        assert!(raised > low && getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 == raised);
        let output = command(Path::new("/bin/sh")).args(["-c", "ulimit -S -n; ulimit -H -n"]).output().await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{low}\n{hard}\n"));
    }
}
