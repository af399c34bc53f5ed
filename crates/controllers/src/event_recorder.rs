//! Events of controllers: the same again counts up instead of piling up.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// How many events are known again, as upstream's `EventAggregator` knows them.
const MAX_RECORDED_EVENTS: usize = 4096;

/// Tells hash a controller does.
#[derive(Clone)]
pub(crate) struct EventRecorder {
    client: Client,
    component: &'static str,
    /// The events that were written, by hash they say.
    recorded: Arc<Mutex<HashMap<u64, (String, i32)>>>,
}

impl EventRecorder {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { client, component, recorded: Arc::default() }
    }

    /// Tells something of an object. That it could not be recorded is no reason to stop.
    pub(crate) async fn record(&self, object: &ObjectReference, warning: bool, reason: &str, message: &str) {
        if let Err(e) = self.write(object, if warning { "Warning" } else { "Normal" }, reason, message).await {
            tracing::debug!(component = self.component, reason, message, "could not be recorded: {e}");
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
                // It was forgotten meanwhile: the next one is a new one.
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

    /// The event that said the same, and how often it has been said with this time.
    fn increment_count(&self, hash: u64) -> Option<(String, i32)> {
        let mut recorded = self.recorded.lock();
        let (name, count) = recorded.get_mut(&hash)?;
        *count = count.saturating_add(1);
        Some((name.clone(), *count))
    }
}
