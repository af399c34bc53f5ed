//! Protection from the kernel's OOM killer.

use std::path::Path;

/// The kubelet's default (`oomScoreAdj`): of all processes, the node's own ones are killed last.
const SCORE: &str = "-999";

/// Makes this process, and the containerd that it starts, the last ones to be killed. Containers get scores of their own.
/// Without `CAP_SYS_RESOURCE` nothing changes.
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
    fn score_is_written_and_a_failure_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        protect_in(&dir.path().join("missing"));
        protect_in(dir.path());
        assert_eq!(std::fs::read_to_string(dir.path().join("oom_score_adj")).unwrap(), SCORE);
    }
}
