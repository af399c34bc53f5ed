//! Runtime events: from containerd's event service, or a relist each second with other runtimes.

use super::{
    proto::{
        self,
        events::{SubscribeRequest, events_client::EventsClient},
        runtime_service_client::RuntimeServiceClient,
    },
    task_exit::{EventDecoder, TaskEvent, filters},
    unread_stdin::ExitedCommands,
};
use crate::RuntimeEvent;
use futures::{StreamExt, stream::BoxStream};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, transport::Channel};

const INITIAL_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Relist interval of runtimes without an event service.
const RELIST_INTERVAL: Duration = Duration::from_secs(1);

pub(super) fn follow(channel: Channel, commands: ExitedCommands) -> BoxStream<'static, RuntimeEvent> {
    let (tx, rx) = mpsc::channel(1024);
    tokio::spawn(async move {
        let mut backoff = INITIAL_BACKOFF;
        while !tx.is_closed() {
            let ended = subscribe(&channel, &commands, &tx).await;
            tracing::debug!(?ended, "the event stream of the runtime ended");
            match ended {
                Ok(()) => backoff = INITIAL_BACKOFF,
                Err(Code::Unimplemented) => {
                    backoff = RELIST_INTERVAL;
                    if tx.send(RuntimeEvent::Resync).await.is_err() {
                        return;
                    }
                }
                Err(_) => backoff = (backoff * 2).min(MAX_BACKOFF),
            }
            tokio::time::sleep(backoff).await;
        }
    });
    ReceiverStream::new(rx).boxed()
}

/// Subscribes to the event service and forwards its events until the stream ends.
async fn subscribe(channel: &Channel, commands: &ExitedCommands, tx: &mpsc::Sender<RuntimeEvent>) -> Result<(), Code> {
    let mut client = EventsClient::new(channel.clone());
    let answer = client.subscribe(SubscribeRequest { filters: filters() });
    // containerd sends response headers only with the first event. A response to a later request on the same connection
    // shows that the subscription is active. Earlier events are lost.
    let started = async {
        let version = proto::VersionRequest { version: "v1".to_owned() };
        if RuntimeServiceClient::new(channel.clone()).version(version).await.is_ok() {
            tracing::debug!("subscribed to containerd events");
            let _ = tx.send(RuntimeEvent::Resync).await;
        }
    };
    let mut stream = tokio::join!(answer, started).0.map_err(|s| s.code())?.into_inner();
    let mut decoder = EventDecoder::default();
    while let Some(envelope) = stream.message().await.map_err(|s| s.code())? {
        match decoder.decode(envelope) {
            TaskEvent::Exited(events) => {
                for event in events {
                    tx.send(event).await.map_err(|_| Code::Cancelled)?;
                }
            }
            TaskEvent::CommandExited(container, command) => commands.note(&container, command),
            TaskEvent::Ignored => {}
        }
    }
    Ok(())
}
