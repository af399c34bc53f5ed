//! API errors: a `Status` with reason, message, causes and HTTP code (upstream's `apimachinery/pkg/api/errors`).

use crate::kinds::{FieldErrors, KindInfo};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Error of a request, as it is sent to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP code.
    pub code: u16,
    /// `Status.reason`.
    pub reason: &'static str,
    /// `Status.message`.
    pub message: String,
    details: Option<Value>,
    /// `Status.metadata.continue` of an expired list.
    continue_token: Option<String>,
    /// The whole `Status`, if a webhook or policy wrote it.
    status: Option<Box<Value>>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl ApiError {
    /// An error without details.
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None, status: None }
    }

    /// Returns the error of a `Status` that a webhook or policy wrote.
    pub(crate) fn from_status(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(400);
        let message = status["message"].as_str().unwrap_or("").to_owned();
        Self { status: Some(Box::new(status)), ..Self::new(code, "", message) }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn no_such_path() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    /// Internal server error.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    pub(crate) fn unsupported_media_type(text: &str, accepted: &str) -> Self {
        let message = format!("{text} - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Error of upstream's router (`go-restful`), which has empty details.
    pub(crate) fn rejected_by_router(code: u16, reason: &'static str, message: String) -> Self {
        let error = Self::new(code, reason, message);
        Self { details: Some(json!({})), ..error }
    }

    fn with_details(mut self, kind: &KindInfo, name: &str) -> Self {
        self.details = Some(details(name, kind.group, kind.plural));
        self
    }

    /// Adds a cause to the details.
    #[must_use]
    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let details = self.details.get_or_insert_with(|| json!({}));
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        details["causes"] = json!([cause]);
        self
    }

    /// Returns the message of the first cause, or the error's message.
    pub(crate) fn cause_message(&self) -> &str {
        let cause = self.details.as_ref().and_then(|details| details["causes"][0]["message"].as_str());
        cause.unwrap_or(&self.message)
    }

    /// Sets `retryAfterSeconds`.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = json!(seconds);
        self
    }

    /// Sets the inconsistent continue token of an expired list.
    #[must_use]
    pub(crate) fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    pub(crate) fn not_found(kind: &KindInfo, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.group_resource())).with_details(kind, name)
    }

    /// As [`Self::not_found`], for a resource without a [`KindInfo`].
    pub(crate) fn not_found_in(group: &str, plural: &str, name: &str) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{plural}{dot}{group} {name:?} not found");
        Self { details: Some(details(name, group, plural)), ..Self::new(404, "NotFound", message) }
    }

    pub(crate) fn namespace_not_found(name: &str) -> Self {
        Self {
            details: Some(details(name, "", "namespaces")),
            ..Self::new(404, "NotFound", format!("namespaces {name:?} not found"))
        }
    }

    /// Conflict of a generated name, after all attempts (upstream's `NewGenerateNameConflict`).
    pub(crate) fn generate_name_conflict(kind: &KindInfo, name: &str) -> Self {
        let message = format!(
            "{} {name:?} already exists, the server was not able to generate a unique name for the object",
            kind.group_resource()
        );
        Self::new(409, "AlreadyExists", message).with_details(kind, name).with_retry_after(1)
    }

    pub(crate) fn already_exists(kind: &KindInfo, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.group_resource()))
            .with_details(kind, name)
    }

    pub(crate) fn conflict(kind: &KindInfo, name: &str, text: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {text}", kind.group_resource());
        Self::new(409, "Conflict", message).with_details(kind, name)
    }

    /// Conflict of a server-side apply: other managers own the fields.
    pub(crate) fn apply_conflict(conflicts: &apply::Conflicts) -> Self {
        let cause = |(c, path): (&apply::Conflict, String)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", c.manager), "field": path});
        let causes: Vec<Value> = conflicts.shown().map(cause).collect();
        Self { details: Some(json!({"causes": causes})), ..Self::new(409, "Conflict", conflicts.to_string()) }
    }

    /// Conflict on a subresource, which upstream names as `pods/binding`.
    pub(crate) fn conflict_on(resource: &str, name: &str, message: &str) -> Self {
        Self::conflict_in("", resource, name, message)
    }

    /// As [`Self::conflict`], for a resource without a [`KindInfo`].
    pub(crate) fn conflict_in(group: &str, resource: &str, name: &str, text: &str) -> Self {
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("Operation cannot be fulfilled on {resource}{dot}{group} {name:?}: {text}");
        Self { details: Some(details(name, group, resource)), ..Self::new(409, "Conflict", message) }
    }

    /// Conflict with a concurrent write (upstream's `OptimisticLockErrorMsg`).
    pub(crate) fn optimistic_lock_conflict(kind: &KindInfo, name: &str) -> Self {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, message)
    }

    pub(crate) fn forbidden(kind: &KindInfo, name: &str, message: &str) -> Self {
        Self::forbidden_resource(kind.group, kind.plural, name, message)
    }

    /// As [`Self::forbidden`], for a resource without a [`KindInfo`], which may not exist.
    pub(crate) fn forbidden_resource(group: &str, plural: &str, name: &str, text: &str) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let dot = if group.is_empty() { "" } else { "." };
        let message = format!("{plural}{dot}{group}{named} is forbidden: {text}");
        Self { details: Some(details(name, group, plural)), ..Self::new(403, "Forbidden", message) }
    }

    pub(crate) fn invalid(kind: &KindInfo, name: &str, errors: &FieldErrors) -> Self {
        // Upstream's errors of both Event versions name the core group.
        let group = if kind.group == "events.k8s.io" { "" } else { kind.group };
        Self::invalid_named(group, kind.kind, name, errors)
    }

    /// Invalid query parameters; `options` is for example `ListOptions`.
    pub(crate) fn invalid_options(options: &str, errors: &FieldErrors) -> Self {
        Self::invalid_named("meta.k8s.io", options, "", errors)
    }

    pub(crate) fn invalid_named(group: &str, kind: &str, name: &str, errors: &FieldErrors) -> Self {
        let mut seen = HashSet::new();
        let all: Vec<String> = errors
            .0
            .iter()
            .filter(|error| seen.insert((&error.field, &error.message)))
            .map(ToString::to_string)
            .collect();
        let list = if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) };
        let causes: Vec<Value> =
            errors.0.iter().map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field})).collect();
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut details = details(name, group, kind);
        details["causes"] = json!(causes);
        Self { details: Some(details), ..Self::new(422, "Invalid", format!("{qualified} {name:?} is invalid: {list}")) }
    }

    /// The store has not reached a `resourceVersion` yet (upstream's `NewTooLargeResourceVersionError`).
    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .with_retry_after(1)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn from_write(error: &store::WriteError, kind: &KindInfo, name: &str) -> Self {
        use store::WriteError as E;
        match error {
            E::Conflict { .. } => Self::optimistic_lock_conflict(kind, name),
            E::AlreadyExists { .. } => Self::already_exists(kind, name),
            E::NotFound => Self::not_found(kind, name),
            // Upstream returns these two errors of etcd unchanged.
            E::TooLarge { .. } => Self::new(500, "", "etcdserver: request is too large"),
            E::NoSpace { .. } => Self::new(500, "", "etcdserver: mvcc: database space exceeded"),
            E::Full => Self::new(507, "InsufficientStorage", format!("the store cannot take the write: {error}")),
            E::Closed => Self::new(503, "ServiceUnavailable", "the server is shutting down"),
            other => Self::internal(other),
        }
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        if let Some(status) = &self.status {
            return (**status).clone();
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.continue_token {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

/// Returns `Status.details`; empty fields are omitted, as upstream.
fn details(name: &str, group: &str, kind: &str) -> Value {
    let parts = [("name", name), ("group", group), ("kind", kind)];
    parts.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), json!(v))).collect()
}
