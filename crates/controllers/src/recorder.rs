//! Events of controllers: the same again counts up instead of piling up.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Tells what a controller does.
#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    component: &'static str,
}

impl Recorder {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { client, component }
    }

    /// Tells something of an object. That it could not be told is no reason to stop.
    pub(crate) async fn tell(&self, about: &ObjectReference, warning: bool, reason: &str, message: &str) {
        if let Err(e) = self.write(about, if warning { "Warning" } else { "Normal" }, reason, message).await {
            tracing::debug!(component = self.component, reason, message, "could not be told: {e}");
        }
    }

    async fn write(
        &self,
        about: &ObjectReference,
        type_: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut hasher = DefaultHasher::new();
        (self.component, &about.uid, type_, reason, message).hash(&mut hasher);
        let name = format!("{}.{:016x}", about.name.as_deref().unwrap_or_default(), hasher.finish());
        let now = Time(Timestamp::now());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            involved_object: about.clone(),
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource { component: Some(self.component.to_owned()), host: None }),
            reporting_component: Some(self.component.to_owned()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now.clone()),
            count: Some(1),
            ..Default::default()
        };
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let count = events.get(&name).await?.count.unwrap_or(1);
                let again = Patch::Merge(json!({"count": count + 1, "lastTimestamp": now}));
                events.patch(&name, &PatchParams::default(), &again).await.map(drop)
            }
            other => other.map(drop),
        }
    }
}
