//! Compaction of revisions that lists can read: upstream's API server compacts etcd every five minutes
//! (`--etcd-compaction-interval`), so continue tokens and exact revisions expire after five to ten minutes. Upstream's
//! test/e2e/apimachinery/chunking.go waits for their expiry. Watches are limited by the store's window of events instead.

use parking_lot::Mutex;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

/// Upstream's default of `--etcd-compaction-interval`.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// The revisions that can still be listed exactly.
#[derive(Debug)]
pub(crate) struct Compaction {
    marks: Mutex<Marks>,
}

#[derive(Debug)]
struct Marks {
    /// The oldest revision that can be listed.
    oldest: Revision,
    /// The revision that becomes the oldest at the end of the interval, and the interval's start.
    next: Revision,
    since: Instant,
}

impl Compaction {
    /// Starts with all revisions after this one readable.
    pub(crate) fn new(current: Revision) -> Self {
        Self { marks: Mutex::new(Marks { oldest: 0, next: current, since: Instant::now() }) }
    }

    /// Returns the oldest revision that can be listed now, when `current` is the newest. Must also be called when a revision
    /// is handed out, as intervals advance only in this call.
    pub(crate) fn oldest(&self, current: Revision) -> Revision {
        let (mut marks, now) = (self.marks.lock(), Instant::now());
        if now.duration_since(marks.since) >= INTERVAL {
            *marks = Marks { oldest: marks.next, next: current, since: now };
        }
        marks.oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{self, send};

    const ALL: &str = "/api/v1/namespaces";

    /// Advances time. The clock is paused only here: during a request to the store's thread it would jump to the next timer.
    async fn advance(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn expired_continue_token_resumes_inconsistently() {
        let server = test_server::server().await;
        let get = async |query: String| send(&server, "GET", &format!("{ALL}?{query}"), &[], b"").await;
        let page = get("limit=1".to_owned()).await.json();
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let (token, revision) = (word(&page["metadata"]["continue"]), word(&page["metadata"]["resourceVersion"]));
        let (again, exact) =
            (format!("limit=1&continue={token}"), format!("resourceVersion={revision}&resourceVersionMatch=Exact"));
        send(&server, "POST", ALL, &[], br#"{"metadata": {"name": "zz"}}"#).await;
        for _ in 0..2 {
            assert_eq!((get(again.clone()).await.code, get(exact.clone()).await.code), (200, 200));
            advance(INTERVAL).await;
        }
        let expired = get(again).await;
        assert_eq!((expired.code, get(exact).await.code), (410, 410));
        let rest = get(format!("continue={}", word(&expired.json()["metadata"]["continue"]))).await.json();
        assert_eq!(rest["items"].as_array().unwrap().last().unwrap()["metadata"]["name"], "zz");
    }

    #[tokio::test(start_paused = true)]
    async fn revision_can_be_listed_for_five_to_ten_minutes() {
        let compaction = Compaction::new(10);
        tokio::time::advance(INTERVAL / 2).await;
        // Handed out at 20: the first interval compacts what was before, the second the revision itself.
        assert_eq!(compaction.oldest(20), 0);
        tokio::time::advance(INTERVAL / 2).await;
        assert_eq!(compaction.oldest(30), 10);
        tokio::time::advance(INTERVAL - Duration::from_secs(1)).await;
        assert_eq!(compaction.oldest(40), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(compaction.oldest(40), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn newest_revision_never_expires() {
        let compaction = Compaction::new(10);
        for _ in 0..3 {
            tokio::time::advance(INTERVAL * 2).await;
            assert!(compaction.oldest(10) <= 10);
        }
    }
}
