//! Virtual kinds: reviews, which are created, answered and not stored.

mod access;
mod identity;
mod selectors;

use crate::{
    admission::dynamic,
    create, decode,
    kinds::FieldErrors,
    request::RequestInfo,
    response::HandlerResult,
    service::{ApiServer, Call},
    status::ApiError,
    strict::{self, Validation},
    write::{dry_run, respond_with_value, with_warnings},
};

/// Handles a review.
pub(crate) async fn answer(server: &ApiServer, resource: &RequestInfo, call: &Call) -> HandlerResult {
    if call.method != http::Method::POST || resource.name.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    let (kind, info) = (&*resource.kind, resource.kind.info());
    if info.namespaced && resource.namespace.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let dry = dry_run(&call.query, "CreateOptions")?;
    let validation = Validation::parse(&call.query, "CreateOptions")?;
    let (mut review, warnings) = strict::check(kind, decode::parse(call, kind)?, validation)?;
    create::set_request_namespace(resource, &mut review)?;
    dynamic::admit_body(server, resource, call, [info.group, info.version, info.kind], &mut review, dry).await?;
    match info.kind {
        "SelfSubjectAccessReview" => access::of_oneself(server, &call.user, &mut review),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => access::of_somebody(server, &mut review),
        "SelfSubjectRulesReview" => access::rules(server, &call.user, &mut review),
        "SelfSubjectReview" => identity::oneself(&call.user, &mut review),
        _ => identity::token(server, &mut review),
    }
    .map_err(|refused| refused.error(info))?;
    Ok(with_warnings(respond_with_value(kind, 201, review, call)?, &warnings))
}

/// Error of a review.
enum Refused {
    Wrong(FieldErrors),
    Other(ApiError),
}

impl Refused {
    fn error(self, info: &crate::kinds::KindInfo) -> ApiError {
        match self {
            // Upstream names no kind here (`authorizationapi.Kind("")`).
            Self::Wrong(errors) => ApiError::invalid_named(info.group, "", "", &errors),
            Self::Other(error) => error,
        }
    }
}
