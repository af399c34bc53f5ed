//! What happens to containers, as it happens: containerd's own event service; a signal to relist each second elsewhere.

use super::{
    proto::{
        self,
        events::{SubscribeRequest, TaskExit, events_client::EventsClient},
        runtime_service_client::RuntimeServiceClient,
    },
    unread::Ended,
};
use crate::{ContainerId, RuntimeEvent, SandboxId};
use futures::{StreamExt, stream::BoxStream};
use prost::Message;
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
    let filters = vec![r#"namespace=="k8s.io",topic=="/tasks/exit""#.to_owned()];
    let mut client = EventsClient::new(channel.clone());
    let answer = client.subscribe(SubscribeRequest { filters });
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
    while let Some(envelope) = stream.message().await.map_err(|s| s.code())? {
        let Some(exit) = envelope.event.and_then(|any| TaskExit::decode(any.value.as_slice()).ok()) else { continue };
        // Another id is a command that was run in the container, not the container itself.
        if exit.id != exit.container_id {
            commands.note(&exit.container_id, exit.id);
            continue;
        }
        // containerd runs sandboxes as containers: the kubelet knows which of its ids this one is.
        let both = [
            RuntimeEvent::ContainerExited(ContainerId(exit.container_id.clone())),
            RuntimeEvent::SandboxExited(SandboxId(exit.container_id)),
        ];
        for event in both {
            tx.send(event).await.map_err(|_| Code::Cancelled)?;
        }
    }
    Ok(())
}
