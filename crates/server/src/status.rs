//! Errors in Kubernetes' own form: a `Status` with reason, message, causes and the right HTTP code.

use crate::kinds::{FieldErrors, KindInfo};
use serde_json::{Value, json};

/// Why a request failed, as its client is told.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP code.
    pub code: u16,
    /// `Status.reason`.
    pub reason: &'static str,
    /// `Status.message`.
    pub message: String,
    details: Option<Value>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl ApiError {
    /// An error without details.
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
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

    /// The server's own fault.
    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    fn about(mut self, kind: &KindInfo, name: &str) -> Self {
        self.details = Some(json!({"name": name, "group": kind.group, "kind": kind.plural}));
        self
    }

    pub(crate) fn not_found(kind: &KindInfo, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.group_resource())).about(kind, name)
    }

    pub(crate) fn already_exists(kind: &KindInfo, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.group_resource())).about(kind, name)
    }

    pub(crate) fn conflict(kind: &KindInfo, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.group_resource());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    pub(crate) fn modified(kind: &KindInfo, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn forbidden(kind: &KindInfo, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} {name:?} is forbidden: {why}", kind.group_resource())).about(kind, name)
    }

    pub(crate) fn invalid(kind: &KindInfo, name: &str, errors: &FieldErrors) -> Self {
        let all: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let list = if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) };
        let causes: Vec<Value> =
            errors.0.iter().map(|e| json!({"reason": e.reason, "message": e.message, "field": e.field})).collect();
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{} {name:?} is invalid: {list}", kind.kind),
            details: Some(json!({"name": name, "group": kind.group, "kind": kind.kind, "causes": causes})),
        }
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn from_write(error: &store::WriteError, kind: &KindInfo, name: &str) -> Self {
        use store::WriteError as E;
        match error {
            E::Conflict { .. } => Self::modified(kind, name),
            E::AlreadyExists { .. } => Self::already_exists(kind, name),
            E::NotFound => Self::not_found(kind, name),
            E::TooLarge { .. } => Self::new(413, "RequestEntityTooLarge", error.to_string()),
            E::Full => Self::new(507, "InsufficientStorage", format!("the store cannot take the write: {error}")),
            other => Self::internal(other),
        }
    }

    /// The `Status` object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }
}
