//! Who is asked about a request beside the server itself: policies and webhooks, in upstream's order.

use super::{
    mutations, policies,
    review::{self, Review},
    webhooks::{self, Again},
};
use crate::{
    request::RequestInfo,
    service::{ApiServer, Call},
    status::ApiError,
};
use admission::attributes::Operation;
use serde_json::Value;

/// Nothing is done again.
const NOTHING: Again<'static> = &|_| Ok(());

/// Lets others change a new or changed object; says whether they did.
pub(crate) async fn mutate(
    review: &Review<'_>,
    object: &mut Value,
    old: Option<&Value>,
    again: Again<'_>,
) -> Result<bool, ApiError> {
    Box::pin(changed(review, object, old, again)).await
}

/// Policies come first, then webhooks. What any of them changed is filled in again, and shown to those who want to see it.
async fn changed(
    review: &Review<'_>,
    object: &mut Value,
    old: Option<&Value>,
    again: Again<'_>,
) -> Result<bool, ApiError> {
    let (mut policies, mut hooks) = (mutations::Round::default(), webhooks::Round::default());
    policies.first(review, object, old).await?;
    hooks.first(review, object, old).await?;
    if !policies.changed && !hooks.changed {
        return Ok(false);
    }
    let output = object.clone();
    again(object)?;
    policies.again(review, object, old).await?;
    hooks.again(review, object, old, &output).await?;
    Ok(true)
}

/// Asks others whether an object may be written as it is.
pub(crate) async fn validate(review: &Review<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    if !review.asked.policies.is_empty() {
        Box::pin(policies::validate(review, object, old)).await?;
    }
    Box::pin(webhooks::validate(review, object, old)).await
}

/// Asks about an object that is to go.
pub(crate) async fn end(review: &Review<'_>, old: &Value) -> Result<(), ApiError> {
    mutate(review, &mut Value::Null, Some(old), NOTHING).await?;
    validate(review, None, Some(old)).await
}

/// Asks about a request for something of an object, whose body is of a kind of its own: a Binding, an Eviction.
pub(crate) async fn body(
    server: &ApiServer,
    resource: &RequestInfo,
    call: &Call,
    kind: [&str; 3],
    body: &mut Value,
    dry: bool,
) -> Result<(), ApiError> {
    let Some(review) = mutate_body(server, resource, call, kind, body, dry).await? else { return Ok(()) };
    validate(&review, Some(body), None).await
}

/// The first half of [`body`], for whoever fills something in before [`validate`] is asked.
pub(crate) async fn mutate_body<'a>(
    server: &'a ApiServer,
    resource: &RequestInfo,
    call: &'a Call,
    kind: [&str; 3],
    body: &mut Value,
    dry: bool,
) -> Result<Option<Review<'a>>, ApiError> {
    let options = || review::options(call, "CreateOptions", dry);
    let Some(review) = Review::of(server, resource, call, Operation::Create, options) else { return Ok(None) };
    let review = review.of_kind(kind);
    let [group, version, kind] = kind;
    body["apiVersion"] = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }.into();
    body["kind"] = kind.into();
    mutate(&review, body, None, NOTHING).await?;
    Ok(Some(review))
}

/// Asks about a connection to what an object stands for; `options` is what is asked for with it.
pub(crate) async fn connect(
    server: &ApiServer,
    resource: &RequestInfo,
    call: &Call,
    kind: &str,
    options: impl FnOnce() -> Value,
) -> Result<(), ApiError> {
    let Some(review) = Review::of(server, resource, call, Operation::Connect, || Value::Null) else { return Ok(()) };
    let (review, mut options) = (review.of_kind(["", "v1", kind]), options());
    options["apiVersion"] = "v1".into();
    options["kind"] = kind.into();
    mutate(&review, &mut options, None, NOTHING).await?;
    validate(&review, Some(&options), None).await
}
