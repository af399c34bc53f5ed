//! What the audit log is told of webhooks (`webhookAnnotator` of upstream's dispatchers).

use crate::audit::{AuditContext, Level};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// What is noted of one call of a webhook.
pub(super) struct Noted<'a> {
    trail: &'a AuditContext,
    configuration: &'a str,
    webhook: &'a str,
    prefix: &'static str,
    /// In which round, and as which of them it is asked.
    place: String,
}

#[derive(Serialize)]
struct Mutation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Patched<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a RawValue,
    patch_type: &'static str,
}

impl<'a> Noted<'a> {
    pub(super) fn mutating(
        trail: &'a AuditContext,
        webhook: &'a admission::webhook::Webhook,
        round: u8,
        index: usize,
    ) -> Self {
        Self::new(trail, webhook, "mutation.webhook.admission.k8s.io", round, index)
    }

    pub(super) fn validating(trail: &'a AuditContext, webhook: &'a admission::webhook::Webhook, index: usize) -> Self {
        Self::new(trail, webhook, "validating.webhook.admission.k8s.io", 0, index)
    }

    fn new(
        trail: &'a AuditContext,
        webhook: &'a admission::webhook::Webhook,
        prefix: &'static str,
        round: u8,
        index: usize,
    ) -> Self {
        let place = format!("round_{round}_index_{index}");
        Self { trail, configuration: &webhook.configuration, webhook: &webhook.name, prefix, place }
    }

    /// It could not be asked, and the request went on.
    pub(super) fn failed_open(&self) {
        self.trail.annotate(format!("failed-open.{}/{}", self.prefix, self.place), self.webhook.to_owned());
    }

    /// What it says itself; what is no key of an annotation is left out.
    pub(super) fn said(&self, annotations: &[(String, String)]) {
        for (key, value) in annotations {
            if api::names::dns1123_subdomain(self.webhook).is_empty()
                && !key.contains('/')
                && api::names::qualified_name(key).is_empty()
            {
                self.trail.annotate(format!("{}/{key}", self.webhook), value.clone());
            }
        }
    }

    /// Whether it changed the object.
    pub(super) fn mutated(&self, mutated: bool) {
        let value = Mutation { configuration: self.configuration, webhook: self.webhook, mutated };
        let value = serde_json::to_string(&value).unwrap_or_default();
        self.trail.annotate(format!("{}/{}", self.prefix, self.place), value);
    }

    /// How it changed the object, for logs that have objects, too.
    pub(super) fn patched(&self, patch: &[u8]) {
        let Ok(patch) =
            serde_json::from_slice::<Value>(patch).and_then(|patch| serde_json::value::to_raw_value(&patch))
        else {
            return;
        };
        let (configuration, webhook) = (self.configuration, self.webhook);
        let value = Patched { configuration, webhook, patch: &patch, patch_type: "JSONPatch" };
        let value = serde_json::to_string(&value).unwrap_or_default();
        self.trail.annotate_at_level(Level::Request, format!("patch.webhook.admission.k8s.io/{}", self.place), value);
    }
}
