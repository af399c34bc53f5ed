//! Questions: kinds that are asked with a POST, answered, and stored nowhere.

mod access;
mod identity;
mod selectors;

use crate::{
    admit::outside,
    decode,
    kinds::FieldErrors,
    reply::Reply,
    request::Resource,
    service::{ApiServer, Call},
    status::ApiError,
    strict::{self, Validation},
    write::{dry_run, show_value, with_warnings},
};
use serde_json::{Value, json};

/// Answers a question.
pub(crate) async fn answer(server: &ApiServer, resource: &Resource, call: &Call) -> Reply {
    if call.method != http::Method::POST || resource.name.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    let (kind, info) = (&*resource.kind, resource.kind.info());
    if info.namespaced && resource.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let dry = dry_run(&call.query, "CreateOptions")?;
    let validation = Validation::parse(&call.query, "CreateOptions")?;
    let (mut review, warnings) = strict::check(kind, decode::parse(call, info)?, validation)?;
    in_its_namespace(resource, &mut review)?;
    outside::body(server, resource, call, [info.group, info.version, info.kind], &mut review, dry).await?;
    match info.kind {
        "SelfSubjectAccessReview" => access::of_oneself(server, &call.user, &mut review),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access::of_somebody(server, &mut review),
        "SelfSubjectRulesReview" => access::rules(server, &call.user, &mut review),
        "SelfSubjectReview" => identity::oneself(&call.user, &mut review),
        _ => identity::token(server, &mut review),
    }
    .map_err(|refused| refused.error(info))?;
    Ok(with_warnings(show_value(kind, 201, review, call)?, &warnings))
}

/// Why there is no answer.
enum Refused {
    Wrong(FieldErrors),
    Other(ApiError),
}

impl Refused {
    fn error(self, info: &crate::kinds::KindInfo) -> ApiError {
        match self {
            Self::Wrong(errors) => ApiError::invalid(info, "", &errors),
            Self::Other(error) => error,
        }
    }
}

/// What a question says of its namespace is what its path says.
fn in_its_namespace(resource: &Resource, review: &mut Value) -> Result<(), ApiError> {
    let given = review["metadata"]["namespace"].as_str().unwrap_or("");
    if given.is_empty() || given == resource.namespace {
        if !resource.namespace.is_empty() {
            review["metadata"]["namespace"] = json!(resource.namespace);
        }
        return Ok(());
    }
    Err(ApiError::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}
