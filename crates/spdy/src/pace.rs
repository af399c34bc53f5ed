//! How much of what was sent the other end has yet to take.
//!
//! SPDY has windows for that, and `moby/spdystream` ignores them: it reads until the 50 frames that it holds for a stream
//! are not taken, and then not at all. A container runtime that closes such a connection when a command has ended, with
//! input unread, resets it, and the kernel drops what the command wrote last. So input waits here, not there: a piece
//! is sent when the one before it was taken, and none once the runtime has said how the command ended.
//!
//! `spdystream` handles frames in five queues: a stream's data always in the same one, PINGs in one after the other. Five
//! PINGs behind some data are in each queue once, so all of them are answered only when that data was taken.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// `spdystream`'s `FRAME_WORKERS`.
const QUEUES: u32 = 5;

/// The pace of the end that connected.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// PINGs that were not answered yet.
    asked: Vec<u32>,
    over: bool,
}

impl Pace {
    /// A data frame is sent: the numbers of the PINGs that must follow it. `None` if nobody wants it any more.
    pub(crate) fn send(&self) -> Option<impl Iterator<Item = u32> + use<>> {
        let mut state = self.state.lock();
        // Those of the end that connected are odd (SPDY/3.1 draft, section 2.6.5).
        let pings = (0..QUEUES).map(|queue| 2 * queue + 1);
        state.asked = pings.clone().collect();
        (!state.over).then_some(pings)
    }

    /// A PING came back. One that was never sent counts for nothing.
    pub(crate) fn answered(&self, id: u32) {
        self.state.lock().asked.retain(|asked| *asked != id);
        self.answered.notify_one();
    }

    /// The other end is about to close: what it does not read would be in its way.
    pub(crate) fn over(&self) {
        self.state.lock().over = true;
        self.answered.notify_one();
    }

    /// Waits until more data may be sent; only one at a time may ask.
    pub(crate) async fn room(&self) {
        while self.waits() {
            self.answered.notified().await;
        }
    }

    pub(crate) fn waits(&self) -> bool {
        let state = self.state.lock();
        !state.asked.is_empty() && !state.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn data_waits_until_every_queue_has_answered() {
        let pace = Pace::default();
        let has_room = || pace.room().now_or_never().is_some();
        let pings: Vec<u32> = pace.send().unwrap().collect();
        assert_eq!(pings, [1, 3, 5, 7, 9]);
        assert!(!has_room());
        [1, 3, 5, 7, 7, 7, 11, 0, u32::MAX].into_iter().for_each(|id| pace.answered(id));
        assert!(!has_room(), "the last queue has not answered");
        pace.answered(9);
        assert!(has_room());
    }

    #[test]
    fn nothing_is_sent_when_all_is_over() {
        let pace = Pace::default();
        assert!(pace.send().is_some());
        pace.over();
        assert!(pace.room().now_or_never().is_some());
        assert!(pace.send().is_none());
    }
}
