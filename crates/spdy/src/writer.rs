//! Writer task of a connection.

use crate::{flow_control::FlowControl, frame::OutgoingFrame, headers::Encoder};
use std::{iter, sync::Arc};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt, BufWriter, WriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// Queues of outgoing frames. Control frames are written first: their order relative to data does not matter.
pub(crate) struct Frames {
    pub(crate) control_frames: mpsc::UnboundedReceiver<OutgoingFrame>,
    pub(crate) data: mpsc::Receiver<OutgoingFrame>,
    /// Flow control; `None` on the server.
    pub(crate) flow_control: Option<Arc<FlowControl>>,
}

impl Frames {
    /// Returns the next frame, or `None` when all senders are dropped.
    async fn next(&mut self) -> Option<OutgoingFrame> {
        tokio::select! {
            biased;
            // Without senders nothing waits for a reply, so the remaining data skips flow control.
            frame = self.control_frames.recv() => match frame {
                Some(frame) => Some(frame),
                None => self.data.recv().await,
            },
            Some(frame) = async {
                if let Some(flow_control) = &self.flow_control {
                    flow_control.ready().await;
                }
                self.data.recv().await
            } => Some(frame),
        }
    }

    /// Whether no frame can be sent now, so that the buffer must be flushed.
    fn is_idle(&self) -> bool {
        let is_blocked = self.flow_control.as_ref().is_some_and(|flow_control| flow_control.is_blocked());
        self.control_frames.is_empty() && (is_blocked || self.data.is_empty())
    }

    /// Returns the frame and the PINGs that must follow it, or nothing if the peer is closing.
    fn with_pings(&self, frame: OutgoingFrame) -> Vec<OutgoingFrame> {
        let Some(flow_control) = self
            .flow_control
            .as_ref()
            .filter(|_| matches!(frame, OutgoingFrame::Data { .. } | OutgoingFrame::Fin { .. }))
        else {
            return vec![frame];
        };
        let pings = flow_control.send().map(|pings| pings.map(|id| OutgoingFrame::Ping { id }));
        pings.map_or_else(Vec::new, |pings| iter::once(frame).chain(pings).collect())
    }
}

/// Writes frames until all senders are dropped or the session is done.
pub(crate) async fn write_all<W: AsyncWrite>(write: WriteHalf<W>, mut frames: Frames, done: CancellationToken) {
    let _done = done.clone().drop_guard();
    let mut write = BufWriter::new(write);
    let (mut encoder, mut has_failed) = (Encoder::new(), false);
    loop {
        let Some(next) = done.run_until_cancelled(frames.next()).await else { return };
        let Some(frame) = next else { break };
        for frame in frames.with_pings(frame) {
            // After a write error the reader must still receive data that the peer sent before it closed the connection.
            has_failed = has_failed || write.write_all(&frame.encode(&mut encoder)).await.is_err();
        }
        if frames.is_idle() {
            has_failed = has_failed || write.flush().await.is_err();
        }
    }
    let _ = write.shutdown().await;
}
