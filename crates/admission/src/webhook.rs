//! Webhooks as configurations write them.

use crate::{
    about::About,
    conditions::{self, Conditions},
    matching::Matching,
};
use serde_json::Value;

/// A webhook.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Its configuration's name.
    pub configuration: String,
    /// Its own name.
    pub name: String,
    /// Where it is: `clientConfig`.
    pub client: Value,
    /// What it is asked about; or why that cannot be said.
    pub matching: Result<Matching, String>,
    /// What must hold for it to be asked.
    pub conditions: Conditions,
    /// Whether requests go on when it cannot be asked.
    pub is_optional: bool,
    /// How long an answer may take, in seconds.
    pub timeout: u64,
    /// Whether it wants to see what others make of an object after it.
    pub is_reinvoked: bool,
    /// Whether nothing comes of asking it about what is not stored.
    pub takes_dry_runs: bool,
    /// Version of its reviews, the first of those that are known.
    pub review: Option<&'static str>,
}

impl Webhook {
    /// The webhooks of a configuration, in their order.
    #[must_use]
    pub fn all(configuration: &Value) -> Vec<Self> {
        let name = configuration["metadata"]["name"].as_str().unwrap_or("");
        let types = condition_types();
        let read = |webhook: &Value| {
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
                takes_dry_runs: matches!(text("sideEffects").as_str(), "None" | "NoneOnDryRun"),
                review: reviews.filter_map(|v| ["v1", "v1beta1"].into_iter().find(|known| v == known)).next(),
            }
        };
        configuration["webhooks"].as_array().into_iter().flatten().map(read).collect()
    }

    /// In which of its forms it wants to see a request about these objects, if it does; the namespace decides too.
    #[must_use]
    pub fn form(&self, about: &About, object: Option<&Value>, old: Option<&Value>) -> Option<usize> {
        // One whose selectors make no sense cannot say what it is not for.
        let Ok(matching) = &self.matching else { return Some(0) };
        matching.form(about).filter(|_| matching.selects(object, old))
    }
}

/// What the conditions of a webhook can name.
#[must_use]
pub fn condition_types() -> Vec<(&'static str, expr::Type)> {
    conditions::types(&[("authorizer", expr::Type::AUTHORIZER)])
}

/// Resources that decide who is asked: nobody is asked about those (`IsExemptAdmissionConfigurationResource`).
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
