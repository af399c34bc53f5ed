//! Dynamic admission: mutating and validating policies and webhooks, in upstream's order.

use super::{
    admission_webhooks::{self, Readmit},
    context::{AdmissionContext, operation_options},
    mutating_admission_policy, validating_admission_policy,
};
use crate::{
    admission::admission_control::AdmissionControl,
    objects::{call::Call, request_scope::RequestScope},
};
use ::admission::attributes::Operation;
use errors::ApiError;
use serde_json::Value;

/// No mutating admission plugins.
const NO_PLUGINS: Readmit<'static> = &|_| Ok(());

/// Calls the mutating policies and webhooks; returns whether they changed the object.
pub(crate) async fn mutate(
    context: &AdmissionContext<'_>,
    object: &mut Value,
    old: Option<&Value>,
    readmit: Readmit<'_>,
) -> Result<bool, ApiError> {
    Box::pin(mutate_and_reinvoke(context, object, old, readmit)).await
}

/// Calls policies, then webhooks. After a change, runs the mutating admission plugins again, and reinvokes policies and
/// webhooks.
async fn mutate_and_reinvoke(
    context: &AdmissionContext<'_>,
    object: &mut Value,
    old: Option<&Value>,
    readmit: Readmit<'_>,
) -> Result<bool, ApiError> {
    let mut policies = mutating_admission_policy::MutatingPolicyDispatcher::default();
    let mut webhooks = admission_webhooks::WebhookDispatcher::default();
    policies.dispatch(context, object, old).await?;
    webhooks.dispatch(context, object, old).await?;
    if !policies.changed && !webhooks.changed {
        return Ok(false);
    }
    let output = object.clone();
    readmit(object)?;
    policies.reinvoke(context, object, old).await?;
    webhooks.reinvoke(context, object, old, &output).await?;
    Ok(true)
}

/// Calls the validating policies and webhooks.
pub(crate) async fn validate(
    context: &AdmissionContext<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if !context.registrations.validating_policies.is_empty() {
        Box::pin(validating_admission_policy::validate(context, object, old)).await?;
    }
    Box::pin(admission_webhooks::validate(context, object, old)).await
}

/// Admits the deletion of an object.
pub(crate) async fn admit_deletion(context: &AdmissionContext<'_>, old: &Value) -> Result<(), ApiError> {
    mutate(context, &mut Value::Null, Some(old), NO_PLUGINS).await?;
    validate(context, None, Some(old)).await
}

/// Admits the body of a request to a subresource that creates another kind of object, for example a Binding or an Eviction.
pub(crate) async fn admit_body(
    control: &AdmissionControl,
    resource: &RequestScope,
    call: &Call,
    kind: [&str; 3],
    body: &mut Value,
    dry: bool,
) -> Result<(), ApiError> {
    let Some(context) = mutate_body(control, resource, call, kind, body, dry).await? else { return Ok(()) };
    validate(&context, Some(body), None).await
}

/// The mutating half of [`admit_body`]; the caller calls [`validate`].
pub(crate) async fn mutate_body<'a>(
    control: &'a AdmissionControl,
    resource: &RequestScope,
    call: &'a Call,
    kind: [&str; 3],
    body: &mut Value,
    dry: bool,
) -> Result<Option<AdmissionContext<'a>>, ApiError> {
    let options = || operation_options(call, "CreateOptions", dry);
    let Some(context) = AdmissionContext::new(control, resource, call, Operation::Create, options) else {
        return Ok(None);
    };
    let context = context.with_kind(kind);
    let [group, version, kind] = kind;
    body["apiVersion"] = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }.into();
    body["kind"] = kind.into();
    mutate(&context, body, None, NO_PLUGINS).await?;
    Ok(Some(context))
}

/// Admits a connect request, for example `pods/exec`. `options` are for example `PodExecOptions`.
pub(crate) async fn admit_connect(
    control: &AdmissionControl,
    resource: &RequestScope,
    call: &Call,
    kind: &str,
    options: impl FnOnce() -> Value,
) -> Result<(), ApiError> {
    let context = AdmissionContext::new(control, resource, call, Operation::Connect, || Value::Null);
    let Some(context) = context else { return Ok(()) };
    let (context, mut options) = (context.with_kind(["", "v1", kind]), options());
    options["apiVersion"] = "v1".into();
    options["kind"] = kind.into();
    mutate(&context, &mut options, None, NO_PLUGINS).await?;
    validate(&context, Some(&options), None).await
}
