//! Flow control of the client: sends a data frame only after the peer has processed the previous one.
//!
//! `moby/spdystream` ignores SPDY's window flow control: it stops reading the connection once 50 frames of a stream are
//! queued. If the container runtime closes the connection with unread input after a command has exited, the kernel
//! resets the connection and drops the last output of the command. So input is buffered here: a frame is sent after the
//! previous one was processed, and none after the runtime has sent the exit status.
//!
//! `spdystream` handles frames with five workers: the data of a stream is always handled by the same worker, PINGs go round
//! robin. Five PINGs after a data frame reach each worker once, so all are answered only after the data was processed.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// `spdystream`'s `FRAME_WORKERS`.
const FRAME_WORKERS: u32 = 5;

/// Flow control state of the client.
#[derive(Debug, Default)]
pub(crate) struct FlowControl {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// IDs of unanswered PINGs.
    pending_pings: Vec<u32>,
    is_closed: bool,
}

impl FlowControl {
    /// Registers a data frame and returns the IDs of the PINGs that must follow it, or `None` if the peer is closing.
    pub(crate) fn send(&self) -> Option<impl Iterator<Item = u32> + use<>> {
        let mut state = self.state.lock();
        // PING IDs of the client are odd (SPDY/3.1 draft, section 2.6.5).
        let pings = (0..FRAME_WORKERS).map(|worker| 2 * worker + 1);
        state.pending_pings = pings.clone().collect();
        (!state.is_closed).then_some(pings)
    }

    /// Handles a PING reply. Unknown IDs are ignored.
    pub(crate) fn handle_ping_reply(&self, id: u32) {
        self.state.lock().pending_pings.retain(|pending| *pending != id);
        self.changed.notify_one();
    }

    /// Stops sending data: the peer is about to close, and unread input would reset the connection.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Waits until a data frame may be sent. Supports one waiter at a time.
    pub(crate) async fn ready(&self) {
        while self.is_blocked() {
            self.changed.notified().await;
        }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        let state = self.state.lock();
        !state.pending_pings.is_empty() && !state.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn data_waits_until_every_worker_has_answered() {
        let flow_control = FlowControl::default();
        let is_ready = || flow_control.ready().now_or_never().is_some();
        let pings: Vec<u32> = flow_control.send().unwrap().collect();
        assert_eq!(pings, [1, 3, 5, 7, 9]);
        assert!(!is_ready());
        [1, 3, 5, 7, 7, 7, 11, 0, u32::MAX].into_iter().for_each(|id| flow_control.handle_ping_reply(id));
        assert!(!is_ready(), "the last worker has not answered");
        flow_control.handle_ping_reply(9);
        assert!(is_ready());
    }

    #[test]
    fn closed_flow_control_sends_no_data() {
        let flow_control = FlowControl::default();
        assert!(flow_control.send().is_some());
        flow_control.close();
        assert!(flow_control.ready().now_or_never().is_some());
        assert!(flow_control.send().is_none());
    }
}
