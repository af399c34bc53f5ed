//! The task that writes a connection's frames.

use crate::{frame::Out, headers::Encoder, pace::Pace};
use std::{iter, sync::Arc};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt, BufWriter, WriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

/// Frames that are to be written. What is urgent goes first: it belongs to no data before it.
pub(crate) struct Frames {
    pub(crate) urgent: mpsc::UnboundedReceiver<Out>,
    pub(crate) data: mpsc::Receiver<Out>,
    /// Where the other end takes its time.
    pub(crate) pace: Option<Arc<Pace>>,
}

impl Frames {
    /// `None` when nobody can send any more.
    async fn next(&mut self) -> Option<Out> {
        tokio::select! {
            biased;
            // Without anybody who could wait for an answer, what is left goes at once.
            frame = self.urgent.recv() => match frame {
                Some(frame) => Some(frame),
                None => self.data.recv().await,
            },
            Some(frame) = async {
                if let Some(pace) = &self.pace {
                    pace.room().await;
                }
                self.data.recv().await
            } => Some(frame),
        }
    }

    /// Whether the next frame is still to come, or has to wait.
    fn rest(&self) -> bool {
        let waits = self.pace.as_ref().is_some_and(|pace| pace.waits());
        self.urgent.is_empty() && (waits || self.data.is_empty())
    }

    /// This frame and what must follow it at once; nothing if nobody wants it any more.
    fn marked(&self, frame: Out) -> Vec<Out> {
        let Some(pace) = self.pace.as_ref().filter(|_| matches!(frame, Out::Data { .. } | Out::Fin { .. })) else {
            return vec![frame];
        };
        let pings = pace.send().map(|pings| pings.map(|id| Out::Ping { id }));
        pings.map_or_else(Vec::new, |pings| iter::once(frame).chain(pings).collect())
    }
}

/// Writes frames until nobody can send any more, or all is done.
pub(crate) async fn write_all<W: AsyncWrite>(write: WriteHalf<W>, mut frames: Frames, done: CancellationToken) {
    let _done = done.clone().drop_guard();
    let mut write = BufWriter::new(write);
    let (mut encoder, mut lost) = (Encoder::new(), false);
    loop {
        let Some(next) = done.run_until_cancelled(frames.next()).await else { return };
        let Some(frame) = next else { break };
        for frame in frames.marked(frame) {
            // Who closed the connection may have sent something before: it is still read, and what is sent now goes nowhere.
            lost = lost || write.write_all(&frame.encode(&mut encoder)).await.is_err();
        }
        if frames.rest() {
            lost = lost || write.flush().await.is_err();
        }
    }
    let _ = write.shutdown().await;
}
