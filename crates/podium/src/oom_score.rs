//! Protection from the kernel's OOM killer.

use std::path::Path;

/// Default of the kubelet's `oomScoreAdj`.
const SCORE: &str = "-999";

/// Sets `oom_score_adj` of this process, which keepers inherit. Containers get their own values. Has no effect without
/// `CAP_SYS_RESOURCE`.
pub(crate) fn protect() {
    protect_in(Path::new("/proc/self"));
}

fn protect_in(process: &Path) {
    if let Err(error) = std::fs::write(process.join("oom_score_adj"), SCORE) {
        tracing::debug!(%error, "failed to set oom_score_adj");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_score_is_written_and_a_failure_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        protect_in(&dir.path().join("missing"));
        protect_in(dir.path());
        assert_eq!(std::fs::read_to_string(dir.path().join("oom_score_adj")).unwrap(), SCORE);
    }
}
