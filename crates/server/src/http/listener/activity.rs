//! Activity of a connection: its requests in progress, and its idle time.

use super::Timeouts;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// Activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    /// Whether the peer is authenticated.
    authenticated: AtomicBool,
    /// Set for HTTP/1: bytes between requests begin the head of the next one.
    reads_heads: AtomicBool,
    /// Whether the connection ends after the requests in progress.
    ends: AtomicBool,
    ending: Notify,
    /// Cancelled when the connection must make room for another.
    pub(super) evicted: CancellationToken,
}

/// Why a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// It is idle, or the head of a request takes too long to arrive.
    Idle,
    /// The client does not read the response to its request.
    Stuck,
}

#[derive(Debug)]
struct State {
    /// Requests in progress, until their response bodies have ended.
    active: usize,
    idle_since: Instant,
    /// When the head of a request began to arrive; at first, when the connection was accepted.
    head_since: Option<Instant>,
    /// Requests in progress without a deadline, such as long-running ones.
    unlimited: usize,
    /// Deadline of all others.
    deadline: Option<Instant>,
}

impl State {
    /// Returns the deadline of the requests, unless one has no limit.
    fn deadline(&self) -> Option<Instant> {
        if self.active > 0 && self.unlimited == 0 { self.deadline } else { None }
    }
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let now = Instant::now();
        Arc::new(Self {
            state: Mutex::new(State {
                active: 0,
                idle_since: now,
                head_since: Some(now),
                unlimited: 0,
                deadline: None,
            }),
            authenticated: AtomicBool::new(false),
            reads_heads: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            ending: Notify::new(),
            evicted: CancellationToken::new(),
        })
    }

    pub(super) fn set_authenticated(&self) {
        self.authenticated.store(true, Relaxed);
    }

    /// Starts to apply the header timeout to each request, not to the first alone.
    pub(super) fn read_heads(&self) {
        self.reads_heads.store(true, Relaxed);
    }

    /// Records that bytes have arrived.
    pub(super) fn record_read(&self) {
        if self.reads_heads.load(Relaxed) {
            let mut state = self.state.lock();
            if state.active == 0 && state.head_since.is_none() {
                state.head_since = Some(Instant::now());
            }
        }
    }

    /// Ends the connection once the requests in progress have ended.
    pub(super) fn end(&self) {
        if !self.ends.swap(true, Relaxed) {
            self.ending.notify_one();
        }
    }

    /// Begins a request, with an optional time limit.
    pub(super) fn begin(self: &Arc<Self>, limit: Option<Duration>) -> InProgress {
        let mut state = self.state.lock();
        state.active = state.active.saturating_add(1);
        state.head_since = None;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        match deadline {
            Some(_) => state.deadline = state.deadline.max(deadline),
            None => state.unlimited = state.unlimited.saturating_add(1),
        }
        InProgress { activity: Arc::clone(self), is_unlimited: deadline.is_none() }
    }

    /// Returns the rank for eviction: unauthenticated peers first, then longest idle. `None` while the connection is in
    /// use.
    pub(super) fn eviction_rank(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        (state.active == 0).then(|| (self.authenticated.load(Relaxed), state.idle_since))
    }

    /// Whether requests are in progress.
    pub(super) fn is_active(&self) -> bool {
        self.state.lock().active > 0
    }

    /// Keeps the connection in use forever, after an upgrade to another protocol.
    pub(super) fn mark_upgraded(&self) {
        let mut state = self.state.lock();
        state.active = state.active.saturating_add(1);
        state.unlimited = state.unlimited.saturating_add(1);
    }

    /// Whether the client does not read the responses to its requests.
    pub(super) fn is_stuck(&self) -> bool {
        self.state.lock().deadline().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Waits until the connection must end.
    pub(super) async fn expired(&self, timeouts: &Timeouts) -> Expired {
        loop {
            match self.remaining(timeouts, Instant::now()) {
                Err(error) => return error,
                Ok(wait) => tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = self.ending.notified() => {}
                },
            }
        }
    }

    /// Returns the time until the next check. The state is polled, because a notification for each request would cost
    /// more.
    fn remaining(&self, timeouts: &Timeouts, now: Instant) -> Result<Duration, Expired> {
        if self.ends.load(Relaxed) {
            return Err(Expired::Idle);
        }
        let state = self.state.lock();
        if state.active > 0 {
            let check_interval = timeouts.idle / 4;
            let Some(deadline) = state.deadline() else { return Ok(check_interval) };
            let left = deadline.saturating_duration_since(now);
            return if left.is_zero() { Err(Expired::Stuck) } else { Ok(left.min(check_interval)) };
        }
        let (since, limit) = match state.head_since {
            Some(since) => (since, timeouts.header),
            None => (state.idle_since, timeouts.idle),
        };
        let left = limit.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() {
            return Err(Expired::Idle);
        }
        // Requests may have ended meanwhile, and the next head may begin to arrive at any time.
        let check_interval = if self.reads_heads.load(Relaxed) { timeouts.header / 4 } else { timeouts.idle };
        Ok(left.min(check_interval).min(timeouts.idle))
    }
}

/// A request in progress, until this is dropped.
pub(super) struct InProgress {
    activity: Arc<Activity>,
    is_unlimited: bool,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.active = state.active.saturating_sub(1);
        state.unlimited = state.unlimited.saturating_sub(usize::from(self.is_unlimited));
        if state.active == 0 {
            state.deadline = None;
            state.idle_since = Instant::now();
        }
    }
}

/// Body of a response. Its request is in progress until the body ends.
pub(super) struct TrackedBody<B> {
    body: B,
    _request: InProgress,
}

impl<B> TrackedBody<B> {
    pub(super) fn new(body: B, request: InProgress) -> Self {
        Self { body, _request: request }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(ctx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUTS: Timeouts = Timeouts {
        handshake: Duration::from_secs(1),
        header: Duration::from_secs(32),
        idle: Duration::from_secs(90),
        ping_interval: Duration::from_secs(30),
        ping_timeout: Duration::from_secs(30),
        response: Duration::from_secs(120),
    };

    /// Returns the seconds until the connection expires, if it does.
    async fn lifetime(activity: &Activity) -> Option<(u64, Expired)> {
        let begin = Instant::now();
        let result = tokio::time::timeout(Duration::from_secs(10_000), activity.expired(&TIMEOUTS)).await;
        result.ok().map(|message| (begin.elapsed().as_secs(), message))
    }

    #[tokio::test(start_paused = true)]
    async fn connection_without_request_ends_after_header_timeout() {
        assert_eq!(lifetime(&Activity::new()).await, Some((32, Expired::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_ends_after_idle_timeout() {
        let activity = Activity::new();
        drop(activity.begin(None));
        assert_eq!(lifetime(&activity).await, Some((90, Expired::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn partial_head_ends_connection_after_header_timeout() {
        let activity = Activity::new();
        activity.read_heads();
        drop(activity.begin(None));
        tokio::time::advance(Duration::from_secs(20)).await;
        activity.record_read();
        tokio::time::advance(Duration::from_secs(2)).await;
        // A byte now and then does not prolong it.
        activity.record_read();
        assert_eq!(lifetime(&activity).await, Some((30, Expired::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn long_running_request_keeps_its_connection() {
        let activity = Activity::new();
        let watch = activity.begin(None);
        assert_eq!((lifetime(&activity).await, activity.eviction_rank()), (None, None));
        drop(watch);
        assert_eq!(lifetime(&activity).await, Some((90, Expired::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn request_past_its_deadline_ends_its_connection() {
        let activity = Activity::new();
        let _stuck = activity.begin(Some(Duration::from_secs(120)));
        assert!(!activity.is_stuck());
        assert_eq!(lifetime(&activity).await, Some((120, Expired::Stuck)));
        assert!(activity.is_stuck());
        // A watch beside it keeps the connection.
        let watch = activity.begin(None);
        assert_eq!((lifetime(&activity).await, activity.is_stuck()), (None, false));
        drop(watch);
        assert!(activity.is_stuck());
    }

    #[tokio::test(start_paused = true)]
    async fn eviction_ranks_unknown_peers_first() {
        let (known, unknown) = (Activity::new(), Activity::new());
        known.set_authenticated();
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(unknown.begin(None));
        assert!(unknown.eviction_rank() < known.eviction_rank());
    }
}
