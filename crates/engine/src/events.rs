//! Events of the engine.

use futures::{StreamExt, stream, stream::BoxStream};
use runtime::RuntimeEvent;
use tokio::sync::broadcast;
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};

/// Events that a slow receiver may lag behind; then it relists.
const CAPACITY: usize = 1024;

/// Sender of events.
pub(crate) struct Events(broadcast::Sender<RuntimeEvent>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }

    pub(crate) fn send(&self, event: RuntimeEvent) {
        // Without receivers nobody waits: a receiver lists first.
        let _ = self.0.send(event);
    }

    /// Streams events. Starts with [`RuntimeEvent::Resync`]: earlier events are lost.
    pub(crate) fn stream(&self) -> BoxStream<'static, RuntimeEvent> {
        let received = BroadcastStream::new(self.0.subscribe()).map(|event| match event {
            Ok(event) => event,
            Err(BroadcastStreamRecvError::Lagged(_)) => RuntimeEvent::Resync,
        });
        stream::iter([RuntimeEvent::Resync]).chain(received).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SandboxId;

    fn exited(n: usize) -> RuntimeEvent {
        RuntimeEvent::SandboxExited(SandboxId(n.to_string()))
    }

    #[tokio::test]
    async fn slow_receiver_must_list_again() {
        let events = Events::new();
        let mut stream = events.stream();
        assert_eq!(stream.next().await, Some(RuntimeEvent::Resync));
        events.send(exited(0));
        assert_eq!(stream.next().await, Some(exited(0)));
        for n in 0..CAPACITY + 10 {
            events.send(exited(n));
        }
        assert_eq!(stream.next().await, Some(RuntimeEvent::Resync));
        assert_eq!(stream.next().await, Some(exited(10)));
    }
}
