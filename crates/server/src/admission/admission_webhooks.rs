//! The `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook` admission plugins
//! (`apiserver/pkg/admission/plugin/webhook/{mutating,validating}`). Mutating webhooks are called one after another, validating
//! ones in parallel.

use super::{
    context::AdmissionContext, registrations::RegisteredWebhook, reinvocation::Reinvocation,
    webhook_annotations::WebhookAnnotator,
};
use crate::{
    objects::patch,
    proxy::webhook::{WebhookError, WebhookTargetError},
};
use ::admission::{
    conditions,
    review::{self, AdmissionResponse, ResponseError, UnmarshalTypeError},
};
use errors::{ApiError, GroupResource};
use futures::future;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Runs the mutating admission plugins again after a change by webhooks or policies.
pub(super) type Readmit<'a> = &'a (dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync);

/// Calls the mutating webhooks of a request.
#[derive(Default)]
pub(super) struct WebhookDispatcher {
    /// Whether a webhook changed the object.
    pub(super) changed: bool,
    /// Reinvocations, by index of the webhook.
    reinvocation: Reinvocation<usize>,
}

impl WebhookDispatcher {
    /// Calls all webhooks.
    pub(super) async fn dispatch(
        &mut self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        for (index, webhook) in context.registrations.mutating_webhooks.iter().enumerate() {
            self.invoke(context, (0, index), webhook, object, old).await?;
        }
        Ok(())
    }

    /// Calls once more the webhooks with `reinvocationPolicy: IfNeeded` after which the object changed. `output` is the object
    /// after the first round.
    pub(super) async fn reinvoke(
        &mut self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
        output: &Value,
    ) -> Result<(), ApiError> {
        if object != output {
            self.reinvocation.require();
        }
        for (index, webhook) in context.registrations.mutating_webhooks.iter().enumerate() {
            // A reinvoked webhook may change the object, so that later ones must be reinvoked.
            if self.reinvocation.should_reinvoke(&index) {
                self.invoke(context, (1, index), webhook, object, old).await?;
            }
        }
        Ok(())
    }

    async fn invoke(
        &mut self,
        context: &AdmissionContext<'_>,
        (round, index): (u8, usize),
        registered: &RegisteredWebhook,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let current = Some(&*object).filter(|o| !o.is_null());
        let Some(equivalent) = matching_resource(context, registered, current, old).await? else { return Ok(()) };
        let annotator = WebhookAnnotator::mutating(&context.call.audit, &registered.webhook, round, index);
        let mutated = self::mutate(context, registered, equivalent, current, old, &annotator).await;
        annotator.mutated(matches!(mutated, Ok(Some(_))));
        if let Some(mutated) = mutated?
            && mutated != *object
        {
            *object = mutated;
            self.changed = true;
            self.reinvocation.require();
        }
        if registered.webhook.is_reinvoked {
            self.reinvocation.add_invoked(index);
        }
        Ok(())
    }
}

/// Calls a mutating webhook; returns the object if the webhook changed it.
async fn mutate(
    context: &AdmissionContext<'_>,
    registered: &RegisteredWebhook,
    equivalent: usize,
    object: Option<&Value>,
    old: Option<&Value>,
    annotator: &WebhookAnnotator<'_>,
) -> Result<Option<Value>, ApiError> {
    let versioned_object = context.versioned_object(object, equivalent).await?;
    let versioned_old_object = context.versioned_object(old, equivalent).await?;
    let response =
        call(context, registered, equivalent, [&versioned_object, &versioned_old_object], true, annotator).await?;
    let patch = response.and_then(|response| response.patch).filter(|patch| patch.trim_ascii() != b"[]");
    let Some(patch) = patch else { return Ok(None) };
    if versioned_object.is_null() {
        let (name, message) =
            (&registered.webhook.name, "attempted to modify the object, which is not supported for this operation");
        return Err(ApiError::internal(format!("admission webhook {name:?} {message}")));
    }
    let patched = patch::apply(patch::JSON, versioned_object.clone(), &patch)
        .map_err(|error| ApiError::internal(error.cause_message()))?;
    let changed = patched.value != versioned_object;
    let mutated = context.request_object(patched.value, equivalent).await?;
    annotator.patched(&patch);
    Ok(Some(mutated).filter(|_| changed))
}

/// Calls the validating webhooks.
pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let mut relevant = Vec::new();
    for registered in &context.registrations.validating_webhooks {
        if let Some(equivalent) = matching_resource(context, registered, object, old).await? {
            relevant.push((registered, equivalent));
        }
    }
    let calls = relevant.into_iter().enumerate().map(|(index, (registered, equivalent))| async move {
        let versioned_object = context.versioned_object(object, equivalent).await?;
        let versioned_old_object = context.versioned_object(old, equivalent).await?;
        let annotator = WebhookAnnotator::validating(&context.call.audit, &registered.webhook, index);
        call(context, registered, equivalent, [&versioned_object, &versioned_old_object], false, &annotator)
            .await
            .map(drop)
    });
    future::join_all(calls).await.into_iter().collect()
}

/// Returns the index of the equivalent resource with which a webhook is called, if it matches (`ShouldCallHook`).
async fn matching_resource(
    context: &AdmissionContext<'_>,
    registered: &RegisteredWebhook,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, ApiError> {
    let webhook = &registered.webhook;
    let Some(equivalent) = webhook.matching_resource(&context.attributes, object, old) else { return Ok(None) };
    let matching = webhook.matching.as_ref().map_err(ApiError::internal)?;
    if !context.matches_namespace_selector(matching, object)? {
        return Ok(None);
    }
    if webhook.conditions.is_empty() {
        return Ok(Some(equivalent));
    }
    let versioned_object = context.versioned_object(object, equivalent).await?;
    let versioned_old_object = context.versioned_object(old, equivalent).await?;
    let request = context.attributes.admission_request(equivalent);
    let variables = conditions::inputs(&versioned_object, &versioned_old_object, &request, context.authorizer());
    match webhook.conditions.matches(&variables) {
        Ok(true) => Ok(Some(equivalent)),
        Ok(false) => Ok(None),
        Err(_) if webhook.is_optional => Ok(None),
        Err(error) => Err(context.forbidden(&error.to_string())),
    }
}

/// Calls a webhook. Returns `None` if the call failed and `failurePolicy` is `Ignore`.
async fn call(
    context: &AdmissionContext<'_>,
    registered: &RegisteredWebhook,
    equivalent: usize,
    [object, old]: [&Value; 2],
    mutating: bool,
    annotator: &WebhookAnnotator<'_>,
) -> Result<Option<AdmissionResponse>, ApiError> {
    let webhook = &registered.webhook;
    if context.attributes.dry && !webhook.supports_dry_run {
        let message = format!("admission webhook {:?} does not support dry run", webhook.name);
        return Err(ApiError::bad_request(message));
    }
    let response = match send(context, registered, equivalent, object, old, mutating).await {
        Ok(response) => response,
        Err(error) if webhook.is_optional => {
            tracing::warn!(webhook = webhook.name, %error, "failed to call webhook, failing open");
            annotator.failed_open();
            return Ok(None);
        }
        Err(error) => return Err(ApiError::internal(format!("failed calling webhook {:?}: {error}", webhook.name))),
    };
    annotator.response_annotations(&response.annotations);
    context.call.warnings.lock().extend(response.warnings.iter().cloned());
    if response.allowed {
        Ok(Some(response))
    } else {
        Err(ApiError::from_status(review::denied_status(&webhook.name, &response.status)))
    }
}

/// Failed call of a webhook (`ErrCallingWebhook`).
#[derive(Debug, thiserror::Error)]
enum CallWebhookError {
    #[error("could not get REST client: {0}")]
    Target(Arc<WebhookTargetError>),
    #[error("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)")]
    ReviewVersions,
    #[error("failed to call webhook: {0}")]
    Call(WebhookError),
    #[error("failed to call webhook: {0}")]
    Decode(UnmarshalTypeError),
    #[error("received invalid webhook response: {0}")]
    Response(#[from] ResponseError),
}

/// Sends the AdmissionReview, and parses the response.
async fn send(
    context: &AdmissionContext<'_>,
    registered: &RegisteredWebhook,
    equivalent: usize,
    object: &Value,
    old: &Value,
    mutating: bool,
) -> Result<AdmissionResponse, CallWebhookError> {
    let target = registered.target.as_ref().map_err(|error| CallWebhookError::Target(Arc::clone(error)))?;
    let version = registered.webhook.review_version.ok_or(CallWebhookError::ReviewVersions)?;
    let uid = uuid::Uuid::new_v4().to_string();
    let request = context.attributes.admission_request(equivalent);
    let admission_review = review::admission_review(version, &uid, request, object, old);
    let configured = Duration::from_secs(registered.webhook.timeout);
    let timeout = context
        .call
        .deadline
        .map_or(configured, |deadline| configured.min(deadline.saturating_duration_since(Instant::now())));
    let response = context.control.webhooks.call(target, timeout, &admission_review).await;
    let response = response.map_err(CallWebhookError::Call)?;
    review::check_types(&response).map_err(CallWebhookError::Decode)?;
    Ok(review::parse_response(version, &uid, mutating, &response)?)
}

impl AdmissionContext<'_> {
    /// Returns the error of a denied request.
    pub(super) fn forbidden(&self, message: &str) -> ApiError {
        let Some(requested) = self.attributes.equivalent_resources.first() else { return ApiError::internal(message) };
        // Upstream's `extractResourceName`.
        let name = [&self.attributes.name, &self.generate_name].into_iter().find(|name| !name.is_empty());
        ApiError::forbidden(
            GroupResource::new(&requested.resource[0], &requested.resource[2]),
            name.map_or("Unknown", String::as_str),
            message,
        )
    }
}
