//! [`ApiError`], the error of a request.

use crate::{GroupKind, GroupResource};
use api::field::FieldErrors;
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
    /// Creates an error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None, status: None }
    }

    /// Returns the error of a `Status` that a webhook or policy wrote.
    #[must_use]
    pub fn from_status(status: Value) -> Self {
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(400);
        let message = status["message"].as_str().unwrap_or("").to_owned();
        Self { status: Some(Box::new(status)), ..Self::new(code, "", message) }
    }

    /// The request is malformed (`NewBadRequest`).
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// No resource has this path.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self {
            details: Some(json!({})),
            ..Self::new(404, "NotFound", "the server could not find the requested resource")
        }
    }

    /// The resource does not have this method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    /// Internal server error.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The body has a media type that is not accepted.
    #[must_use]
    pub fn unsupported_media_type(cause: &str, accepted: &str) -> Self {
        let message = format!("{cause} - accepted media types include: {accepted}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Error of upstream's router (`go-restful`), which has empty details.
    #[must_use]
    pub fn rejected_by_router(code: u16, reason: &'static str, message: String) -> Self {
        let error = Self::new(code, reason, message);
        Self { details: Some(json!({})), ..error }
    }

    fn with_details(mut self, resource: GroupResource<'_>, name: &str) -> Self {
        self.details = Some(details(name, resource.group, resource.resource));
        self
    }

    /// Sets the only cause of the details; `field` is empty for none.
    #[must_use]
    pub fn with_cause(self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        self.with_causes(vec![cause])
    }

    /// Sets the causes of the details, each a `StatusCause`.
    #[must_use]
    pub fn with_causes(mut self, causes: Vec<Value>) -> Self {
        self.details.get_or_insert_with(|| json!({}))["causes"] = Value::Array(causes);
        self
    }

    /// Returns the message of the first cause, or the error's message.
    #[must_use]
    pub fn cause_message(&self) -> &str {
        let cause = self.details.as_ref().and_then(|details| details["causes"][0]["message"].as_str());
        cause.unwrap_or(&self.message)
    }

    /// Sets `retryAfterSeconds`.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = json!(seconds);
        self
    }

    /// Sets the inconsistent continue token of an expired list.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.continue_token = Some(token);
        self
    }

    /// The object does not exist (`NewNotFound`).
    pub fn not_found<'a>(resource: impl Into<GroupResource<'a>>, name: &str) -> Self {
        let resource = resource.into();
        Self::new(404, "NotFound", format!("{resource} {name:?} not found")).with_details(resource, name)
    }

    /// The namespace does not exist.
    #[must_use]
    pub fn namespace_not_found(name: &str) -> Self {
        Self::not_found(GroupResource::core("namespaces"), name)
    }

    /// Conflict of a generated name, after all attempts (upstream's `NewGenerateNameConflict`).
    pub fn generate_name_conflict<'a>(resource: impl Into<GroupResource<'a>>, name: &str) -> Self {
        let resource = resource.into();
        let message = format!(
            "{resource} {name:?} already exists, the server was not able to generate a unique name for the object"
        );
        Self::new(409, "AlreadyExists", message).with_details(resource, name).with_retry_after(1)
    }

    /// An object of this name exists (`NewAlreadyExists`).
    pub fn already_exists<'a>(resource: impl Into<GroupResource<'a>>, name: &str) -> Self {
        let resource = resource.into();
        Self::new(409, "AlreadyExists", format!("{resource} {name:?} already exists")).with_details(resource, name)
    }

    /// The write conflicts with the object's state (`NewConflict`).
    pub fn conflict<'a>(resource: impl Into<GroupResource<'a>>, name: &str, cause: &str) -> Self {
        let resource = resource.into();
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {cause}");
        Self::new(409, "Conflict", message).with_details(resource, name)
    }

    /// Conflict with a concurrent write (upstream's `OptimisticLockErrorMsg`).
    pub fn optimistic_lock_conflict<'a>(resource: impl Into<GroupResource<'a>>, name: &str) -> Self {
        let cause = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, cause)
    }

    /// The caller may not do this (`NewForbidden`). The resource may not exist.
    pub fn forbidden<'a>(resource: impl Into<GroupResource<'a>>, name: &str, cause: &str) -> Self {
        let resource = resource.into();
        let quoted = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        Self::new(403, "Forbidden", format!("{resource}{quoted} is forbidden: {cause}")).with_details(resource, name)
    }

    /// The object is invalid (`NewInvalid`).
    pub fn invalid<'a>(kind: impl Into<GroupKind<'a>>, name: &str, errors: &FieldErrors) -> Self {
        let kind = kind.into();
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
        let mut details = details(name, kind.group, kind.kind);
        details["causes"] = json!(causes);
        Self { details: Some(details), ..Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {list}")) }
    }

    /// Invalid query parameters; `options` is for example `ListOptions`.
    #[must_use]
    pub fn invalid_options(options: &str, errors: &FieldErrors) -> Self {
        Self::invalid(GroupKind::new("meta.k8s.io", options), "", errors)
    }

    /// The store has not reached a `resourceVersion` yet (upstream's `NewTooLargeResourceVersionError`).
    #[must_use]
    pub fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version", "")
            .with_retry_after(1)
    }

    /// The resource version or continue token is too old.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
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
