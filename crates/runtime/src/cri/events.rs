//! What happens to containers, as it happens: containerd's own event service; a signal to relist each second elsewhere.

use super::{
    proto::{
        self,
        events::{SubscribeRequest, events_client::EventsClient},
        runtime_service_client::RuntimeServiceClient,
    },
    task_exit::{News, Told, filters},
    unread::Ended,
};
use crate::RuntimeEvent;
use futures::{StreamExt, stream::BoxStream};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, transport::Channel};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where no event exists, the runtime is asked this often.
const RELIST: Duration = Duration::from_secs(1);

pub(super) fn follow(channel: Channel, commands: Ended) -> BoxStream<'static, RuntimeEvent> {
    let (tx, rx) = mpsc::channel(1024);
    tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        while !tx.is_closed() {
            let ended = subscribe(&channel, &commands, &tx).await;
            tracing::debug!(?ended, "the runtime's events broke off");
            match ended {
                Ok(()) => pause = FIRST_PAUSE,
                Err(Code::Unimplemented) => {
                    pause = RELIST;
                    if tx.send(RuntimeEvent::Resync).await.is_err() {
                        return;
                    }
                }
                Err(_) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
            tokio::time::sleep(pause).await;
        }
    });
    ReceiverStream::new(rx).boxed()
}

/// Follows the event service until it ends.
async fn subscribe(channel: &Channel, commands: &Ended, tx: &mpsc::Sender<RuntimeEvent>) -> Result<(), Code> {
    let mut client = EventsClient::new(channel.clone());
    let answer = client.subscribe(SubscribeRequest { filters: filters() });
    // containerd answers a subscription with its first event, be that an hour later. That it takes requests behind it
    // on the same connection says that it took this one: what happened before this moment was missed.
    let started = async {
        let version = proto::VersionRequest { version: "v1".to_owned() };
        if RuntimeServiceClient::new(channel.clone()).version(version).await.is_ok() {
            tracing::debug!("following containerd's events");
            let _ = tx.send(RuntimeEvent::Resync).await;
        }
    };
    let mut stream = tokio::join!(answer, started).0.map_err(|s| s.code())?.into_inner();
    let mut told = Told::default();
    while let Some(envelope) = stream.message().await.map_err(|s| s.code())? {
        match told.hear(envelope) {
            News::Ended(events) => {
                for event in events {
                    tx.send(event).await.map_err(|_| Code::Cancelled)?;
                }
            }
            News::CommandEnded(container, command) => commands.note(&container, command),
            News::Nothing => {}
        }
    }
    Ok(())
}
