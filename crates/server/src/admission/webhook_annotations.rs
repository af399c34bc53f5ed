//! Audit annotations of admission webhooks (`webhookAnnotator` of upstream's dispatchers).

use audit::{AuditContext, Level};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

/// Annotates the audit event with a call of a webhook.
pub(super) struct WebhookAnnotator<'a> {
    audit: &'a AuditContext,
    configuration: &'a str,
    webhook: &'a str,
    prefix: &'static str,
    /// `round_0_index_0`: round of the reinvocation, and index of the webhook.
    round_index: String,
}

/// Upstream's `MutationAuditAnnotation`.
#[derive(Serialize)]
struct MutationAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

/// Upstream's `PatchAuditAnnotation`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: &'a RawValue,
    patch_type: &'static str,
}

impl<'a> WebhookAnnotator<'a> {
    pub(super) fn mutating(
        audit: &'a AuditContext,
        webhook: &'a ::admission::webhook::Webhook,
        round: u8,
        index: usize,
    ) -> Self {
        Self::new(audit, webhook, "mutation.webhook.admission.k8s.io", round, index)
    }

    pub(super) fn validating(
        audit: &'a AuditContext,
        webhook: &'a ::admission::webhook::Webhook,
        index: usize,
    ) -> Self {
        Self::new(audit, webhook, "validating.webhook.admission.k8s.io", 0, index)
    }

    fn new(
        audit: &'a AuditContext,
        webhook: &'a ::admission::webhook::Webhook,
        prefix: &'static str,
        round: u8,
        index: usize,
    ) -> Self {
        let round_index = format!("round_{round}_index_{index}");
        Self { audit, configuration: &webhook.configuration, webhook: &webhook.name, prefix, round_index }
    }

    /// Adds the annotation of a failed call that is ignored (`failurePolicy: Ignore`).
    pub(super) fn failed_open(&self) {
        self.audit.annotate(format!("failed-open.{}/{}", self.prefix, self.round_index), self.webhook.to_owned());
    }

    /// Adds the annotations of the response; invalid keys are dropped.
    pub(super) fn response_annotations(&self, annotations: &[(String, String)]) {
        for (key, value) in annotations {
            if api::names::dns1123_subdomain(self.webhook).is_empty()
                && !key.contains('/')
                && api::names::qualified_name(key).is_empty()
            {
                self.audit.annotate(format!("{}/{key}", self.webhook), value.clone());
            }
        }
    }

    /// Adds whether the webhook changed the object.
    pub(super) fn mutated(&self, mutated: bool) {
        let value = MutationAnnotation { configuration: self.configuration, webhook: self.webhook, mutated };
        let value = serde_json::to_string(&value).unwrap_or_default();
        self.audit.annotate(format!("{}/{}", self.prefix, self.round_index), value);
    }

    /// Adds the patch, at the audit level `Request` and above.
    pub(super) fn patched(&self, patch: &[u8]) {
        let Ok(patch) =
            serde_json::from_slice::<Value>(patch).and_then(|patch| serde_json::value::to_raw_value(&patch))
        else {
            return;
        };
        let (configuration, webhook) = (self.configuration, self.webhook);
        let value = PatchAnnotation { configuration, webhook, patch: &patch, patch_type: "JSONPatch" };
        let value = serde_json::to_string(&value).unwrap_or_default();
        self.audit.annotate_at_level(
            Level::Request,
            format!("patch.webhook.admission.k8s.io/{}", self.round_index),
            value,
        );
    }
}
