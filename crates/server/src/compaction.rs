//! How long a list goes on as it was: upstream's API server compacts what it stores every five minutes, so that a continue
//! token and an exact revision hold for five to ten, however much there is room for (`--etcd-compaction-interval`;
//! test/e2e/apimachinery/chunking.go waits for its end). Watches go on for as long as the window of events lasts.

use parking_lot::Mutex;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

/// Upstream's default.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Which revisions can still be listed exactly.
#[derive(Debug)]
pub(crate) struct Compaction {
    marks: Mutex<Marks>,
}

#[derive(Debug)]
struct Marks {
    /// The oldest revision that can be listed.
    oldest: Revision,
    /// The revision that is the oldest once the interval is over, and when that began.
    next: Revision,
    since: Instant,
}

impl Compaction {
    /// Nothing that comes after this revision is too old yet.
    pub(crate) fn new(current: Revision) -> Self {
        Self { marks: Mutex::new(Marks { oldest: 0, next: current, since: Instant::now() }) }
    }

    /// The oldest revision that can be listed at this moment, at which `current` is the newest. To be asked also by whoever
    /// hands out a revision: it is looked at the clock only then.
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

    /// Lets time go by. Only here the clock stands: while a request waits for the store's thread it would jump to the next timer.
    async fn pass(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    #[tokio::test]
    async fn a_token_that_is_too_old_goes_on_with_what_there_is() {
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
            pass(INTERVAL).await;
        }
        let expired = get(again).await;
        assert_eq!((expired.code, get(exact).await.code), (410, 410));
        let rest = get(format!("continue={}", word(&expired.json()["metadata"]["continue"]))).await.json();
        assert_eq!(rest["items"].as_array().unwrap().last().unwrap()["metadata"]["name"], "zz");
    }

    #[tokio::test(start_paused = true)]
    async fn a_revision_can_be_listed_for_five_to_ten_minutes() {
        let compaction = Compaction::new(10);
        tokio::time::advance(INTERVAL / 2).await;
        // Handed out at 20: with the first interval what was before goes, with the second what it shows.
        assert_eq!(compaction.oldest(20), 0);
        tokio::time::advance(INTERVAL / 2).await;
        assert_eq!(compaction.oldest(30), 10);
        tokio::time::advance(INTERVAL - Duration::from_secs(1)).await;
        assert_eq!(compaction.oldest(40), 10);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(compaction.oldest(40), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_the_newest_is_never_too_old() {
        let compaction = Compaction::new(10);
        for _ in 0..3 {
            tokio::time::advance(INTERVAL * 2).await;
            assert!(compaction.oldest(10) <= 10);
        }
    }
}
