//! Webhooks of a ValidatingWebhookConfiguration or MutatingWebhookConfiguration.

use crate::{
    attributes::Attributes,
    conditions::{self, Conditions},
    matching::{Matching, MatchingError},
};
use serde_json::Value;

/// Admission webhook (`WebhookAccessor`).
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Name of the configuration.
    pub configuration: String,
    /// Name of the webhook.
    pub name: String,
    /// `clientConfig`.
    pub client: Value,
    /// Rules and selectors, or the error of an invalid selector.
    pub matching: Result<Matching, MatchingError>,
    /// Match conditions.
    pub conditions: Conditions,
    /// Whether `failurePolicy` is `Ignore`.
    pub is_optional: bool,
    /// Timeout in seconds.
    pub timeout: u64,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub is_reinvoked: bool,
    /// Whether dry runs are supported (`sideEffects` is `None` or `NoneOnDryRun`).
    pub supports_dry_run: bool,
    /// First supported version of `admissionReviewVersions`.
    pub review_version: Option<&'static str>,
}

impl Webhook {
    /// Parses the webhooks of a configuration, in order.
    #[must_use]
    pub fn parse_all(configuration: &Value) -> Vec<Self> {
        let name = configuration["metadata"]["name"].as_str().unwrap_or("");
        let types = condition_types();
        let parse = |webhook: &Value| {
            let text = |field: &str| webhook[field].as_str().unwrap_or("").to_owned();
            let reviews = webhook["admissionReviewVersions"].as_array().into_iter().flatten();
            Self {
                configuration: name.to_owned(),
                name: text("name"),
                client: webhook["clientConfig"].clone(),
                matching: Matching::of_webhook(webhook),
                conditions: Conditions::read(&webhook["matchConditions"], &types),
                is_optional: text("failurePolicy") == "Ignore",
                timeout: webhook["timeoutSeconds"].as_u64().unwrap_or(10),
                is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
                supports_dry_run: matches!(text("sideEffects").as_str(), "None" | "NoneOnDryRun"),
                review_version: reviews
                    .filter_map(|v| ["v1", "v1beta1"].into_iter().find(|supported| v == supported))
                    .next(),
            }
        };
        configuration["webhooks"].as_array().into_iter().flatten().map(parse).collect()
    }

    /// Returns the index of the equivalent resource with which the webhook is called, if it matches. Does not evaluate the
    /// namespace selector.
    #[must_use]
    pub fn matching_resource(
        &self,
        attributes: &Attributes,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Option<usize> {
        // A webhook with an invalid selector matches all requests.
        let Ok(matching) = &self.matching else { return Some(0) };
        matching.matching_resource(attributes).filter(|_| matching.matches_object_selector(object, old))
    }
}

/// Returns the types of the variables in match conditions of webhooks.
#[must_use]
pub fn condition_types() -> Vec<(&'static str, expr::Type)> {
    conditions::types(&[("authorizer", expr::Type::AUTHORIZER)])
}

/// Whether webhooks and policies are never called for a resource, because it configures them (`IsExemptAdmissionConfigurationResource`).
#[must_use]
pub fn is_exempt(group: &str, resource: &str) -> bool {
    const EXEMPT: [&str; 6] = [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ];
    group == "admissionregistration.k8s.io" && EXEMPT.contains(&resource)
}
