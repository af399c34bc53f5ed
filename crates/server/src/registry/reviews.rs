//! Virtual kinds: reviews, which are created, answered and not stored.

mod access;
mod identity;
mod selectors;

use crate::{
    admission::dynamic,
    http::authentication::Authentication,
    objects::{
        call::Call,
        decode, object_identity,
        request_scope::RequestScope,
        strict::{self, Validation},
        write::{dry_run, respond_with_value, with_warnings},
    },
    rest::generic_registry::GenericRegistry,
};
use errors::{ApiError, GroupKind};
use kinds::FieldErrors;
use response::HandlerResult;

/// Handles a review.
pub(crate) async fn handle_review(
    registry: &GenericRegistry,
    authentication: &Authentication,
    resource: &RequestScope,
    call: &Call,
) -> HandlerResult {
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
    object_identity::set_request_namespace(resource, &mut review)?;
    dynamic::admit_body(&registry.admission, resource, call, [info.group, info.version, info.kind], &mut review, dry)
        .await?;
    match info.kind {
        "SelfSubjectAccessReview" => access::self_subject_access_review(&registry.authorizer, &call.user, &mut review),
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            access::subject_access_review(&registry.authorizer, &mut review)
        }
        "SelfSubjectRulesReview" => access::self_subject_rules_review(&registry.authorizer, &call.user, &mut review),
        "SelfSubjectReview" => identity::self_subject_review(&call.user, &mut review),
        _ => identity::token_review(authentication, &mut review),
    }
    .map_err(|error| error.into_api_error(info))?;
    Ok(with_warnings(respond_with_value(kind, 201, review, call)?, &warnings))
}

/// Error of a review.
enum ReviewError {
    Invalid(FieldErrors),
    Other(ApiError),
}

impl ReviewError {
    fn into_api_error(self, info: &kinds::KindInfo) -> ApiError {
        match self {
            // Upstream names no kind here (`authorizationapi.Kind("")`).
            Self::Invalid(errors) => ApiError::invalid(GroupKind::new(info.group, ""), "", &errors),
            Self::Other(error) => error,
        }
    }
}
