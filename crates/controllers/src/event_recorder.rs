//! Event recorder: a repeated Event increments the count of the first one.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// Number of Events that are recognized when repeated, as in upstream's `EventAggregator`.
const MAX_RECORDED_EVENTS: usize = 4096;

/// Records the Events of a controller.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    client: Client,
    component: &'static str,
    /// Name and count of each recorded Event, by the hash of its content.
    recorded: Arc<Mutex<HashMap<u64, (String, i32)>>>,
}

impl EventRecorder {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { client, component, recorded: Arc::default() }
    }

    /// Records an Event about an object. Failures are logged and otherwise ignored.
    pub(crate) async fn record(&self, object: &ObjectReference, warning: bool, reason: &str, message: &str) {
        if let Err(e) = self.write(object, if warning { "Warning" } else { "Normal" }, reason, message).await {
            tracing::debug!(component = self.component, reason, message, error = %e, "failed to record event");
        }
    }

    async fn write(
        &self,
        object: &ObjectReference,
        type_: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), kube::Error> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut hasher = DefaultHasher::new();
        (&object.uid, type_, reason, message).hash(&mut hasher);
        let (hash, now) = (hasher.finish(), Timestamp::now());
        if let Some((name, count)) = self.increment_count(hash) {
            let patch = Patch::Merge(json!({"count": count, "lastTimestamp": Time(now)}));
            match events.patch(&name, &PatchParams::default(), &patch).await {
                // The Event has expired: create a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        let name = format!("{}.{:x}", object.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let now = Time(now);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                ..Default::default()
            },
            involved_object: object.clone(),
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
        events.create(&PostParams::default(), &event).await?;
        let mut recorded = self.recorded.lock();
        if recorded.len() >= MAX_RECORDED_EVENTS {
            recorded.clear();
        }
        recorded.insert(hash, (name, 1));
        Ok(())
    }

    /// Returns the name and the incremented count of an Event with the same content.
    fn increment_count(&self, hash: u64) -> Option<(String, i32)> {
        let mut recorded = self.recorded.lock();
        let (name, count) = recorded.get_mut(&hash)?;
        *count = count.saturating_add(1);
        Some((name.clone(), *count))
    }
}
