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
const REMEMBERED: usize = 4096;

/// Tells what a controller does.
#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    component: &'static str,
    /// The events that were written, by what they say.
    told: Arc<Mutex<HashMap<u64, (String, i32)>>>,
}

impl Recorder {
    pub(crate) fn new(client: Client, component: &'static str) -> Self {
        Self { client, component, told: Arc::default() }
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
        (&about.uid, type_, reason, message).hash(&mut hasher);
        let (what, now) = (hasher.finish(), Timestamp::now());
        if let Some((name, count)) = self.again(what) {
            let again = Patch::Merge(json!({"count": count, "lastTimestamp": Time(now)}));
            match events.patch(&name, &PatchParams::default(), &again).await {
                // It was forgotten meanwhile: the next one is a new one.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let now = Time(now);
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
        events.create(&PostParams::default(), &event).await?;
        let mut told = self.told.lock();
        if told.len() >= REMEMBERED {
            told.clear();
        }
        told.insert(what, (name, 1));
        Ok(())
    }

    /// The event that said the same, and how often it has been said with this time.
    fn again(&self, what: u64) -> Option<(String, i32)> {
        let mut told = self.told.lock();
        let (name, count) = told.get_mut(&what)?;
        *count = count.saturating_add(1);
        Some((name.clone(), *count))
    }
}
