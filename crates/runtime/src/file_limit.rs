//! Raises the limit of open files (`RLIMIT_NOFILE`) of Podium, and keeps that of containers.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{io, sync::OnceLock};

/// Upper bound of the soft limit.
const MAX_SOFT_LIMIT: u64 = 1 << 20;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_limit_is_not_that_of_containers() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // The limit as if no parent process had raised it.
        let low = soft.min(500);
        setrlimit(Resource::RLIMIT_NOFILE, low, hard).unwrap();
        let raised = raise_file_limit().unwrap();
        assert!(raised > low && getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 == raised);
        assert_eq!(container_file_limits().unwrap(), (low, hard));
    }
}
