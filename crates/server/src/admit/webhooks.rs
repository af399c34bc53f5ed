//! Admission webhooks: those that change objects are asked one after the other, those that do not all at once, when nothing
//! changes any more (`apiserver/pkg/admission/plugin/webhook/{mutating,validating}`).

use super::{hooks::Hook, noted::Noted, reinvocation::Reinvocation, review::Review};
use crate::{patch, status::ApiError};
use admission::{
    conditions,
    review::{self, Answer},
};
use futures::future;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// What is done again when webhooks have changed an object: what the server itself fills in.
pub(crate) type Again<'a> = &'a (dyn Fn(&mut Value) -> Result<(), ApiError> + Send + Sync);

/// Who was asked, and who wants to be asked again.
#[derive(Default)]
pub(crate) struct Round {
    /// Whether any has changed the object.
    pub(crate) changed: bool,
    /// By their places.
    reinvocation: Reinvocation<usize>,
}

impl Round {
    /// Lets every webhook change the object.
    pub(crate) async fn first(
        &mut self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        for (place, hook) in review.asked.mutating.iter().enumerate() {
            self.ask(review, (0, place), hook, object, old).await?;
        }
        Ok(())
    }

    /// Once more, and no more often: who wants to see what came after; `output` is what the first round left.
    pub(crate) async fn again(
        &mut self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
        output: &Value,
    ) -> Result<(), ApiError> {
        if object != output {
            self.reinvocation.changed();
        }
        for (place, hook) in review.asked.mutating.iter().enumerate() {
            // One that is asked again can change what those saw that follow.
            if self.reinvocation.wants(&place) {
                self.ask(review, (1, place), hook, object, old).await?;
            }
        }
        Ok(())
    }

    async fn ask(
        &mut self,
        review: &Review<'_>,
        (round, place): (u8, usize),
        hook: &Hook,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let shown = Some(&*object).filter(|o| !o.is_null());
        let Some(form) = wants(review, hook, shown, old).await? else { return Ok(()) };
        let noted = Noted::mutating(&review.call.audit, &hook.webhook, round, place);
        let made = self::mutate(review, hook, form, shown, old, &noted).await;
        noted.mutated(matches!(made, Ok(Some(_))));
        if let Some(made) = made?
            && made != *object
        {
            *object = made;
            self.changed = true;
            self.reinvocation.changed();
        }
        if hook.webhook.is_reinvoked {
            self.reinvocation.note(place);
        }
        Ok(())
    }
}

/// What a webhook makes of an object, if it is another one.
async fn mutate(
    review: &Review<'_>,
    hook: &Hook,
    form: usize,
    object: Option<&Value>,
    old: Option<&Value>,
    noted: &Noted<'_>,
) -> Result<Option<Value>, ApiError> {
    let (now, before) = (review.in_form(object, form).await?, review.in_form(old, form).await?);
    let answer = call(review, hook, form, [&now, &before], true, noted).await?;
    let patch = answer.and_then(|answer| answer.patch).filter(|patch| patch.trim_ascii() != b"[]");
    let Some(patch) = patch else { return Ok(None) };
    if now.is_null() {
        let (name, why) =
            (&hook.webhook.name, "attempted to modify the object, which is not supported for this operation");
        return Err(ApiError::internal(format!("admission webhook {name:?} {why}")));
    }
    let patched =
        patch::apply(patch::JSON, now.clone(), &patch).map_err(|why| ApiError::internal(why.cause_message()))?;
    let changed = patched.value != now;
    let made = review.taken(patched.value, form).await?;
    noted.patched(&patch);
    Ok(Some(made).filter(|_| changed))
}

/// Asks webhooks whether an object may be written as it is.
pub(crate) async fn validate(review: &Review<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let mut wanted = Vec::new();
    for hook in &review.asked.validating {
        if let Some(form) = wants(review, hook, object, old).await? {
            wanted.push((hook, form));
        }
    }
    let calls = wanted.into_iter().enumerate().map(|(place, (hook, form))| async move {
        let (now, before) = (review.in_form(object, form).await?, review.in_form(old, form).await?);
        let noted = Noted::validating(&review.call.audit, &hook.webhook, place);
        call(review, hook, form, [&now, &before], false, &noted).await.map(drop)
    });
    future::join_all(calls).await.into_iter().collect()
}

/// In which form a webhook wants to see the request, if it does.
async fn wants(
    review: &Review<'_>,
    hook: &Hook,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, ApiError> {
    let webhook = &hook.webhook;
    let Some(form) = webhook.form(&review.about, object, old) else { return Ok(None) };
    let matching = webhook.matching.as_ref().map_err(ApiError::internal)?;
    if !review.selects_namespace(matching, object)? {
        return Ok(None);
    }
    if webhook.conditions.is_empty() {
        return Ok(Some(form));
    }
    let (now, before) = (review.in_form(object, form).await?, review.in_form(old, form).await?);
    let variables = conditions::inputs(&now, &before, &review.about.request(form), review.authority());
    match webhook.conditions.hold(&variables) {
        Ok(true) => Ok(Some(form)),
        Ok(false) => Ok(None),
        Err(_) if webhook.is_optional => Ok(None),
        Err(why) => Err(review.forbidden(&why)),
    }
}

/// Asks one webhook. `None` when it cannot be asked, and need not be.
async fn call(
    review: &Review<'_>,
    hook: &Hook,
    form: usize,
    [object, old]: [&Value; 2],
    mutating: bool,
    noted: &Noted<'_>,
) -> Result<Option<Answer>, ApiError> {
    let webhook = &hook.webhook;
    if review.about.dry && !webhook.takes_dry_runs {
        let why = format!("admission webhook {:?} does not support dry run", webhook.name);
        return Err(ApiError::bad_request(why));
    }
    let answer = match ask(review, hook, form, object, old, mutating).await {
        Ok(answer) => answer,
        Err(why) if webhook.is_optional => {
            tracing::warn!(webhook = webhook.name, why, "failed to call webhook, failing open");
            noted.failed_open();
            return Ok(None);
        }
        Err(why) => return Err(ApiError::internal(format!("failed calling webhook {:?}: {why}", webhook.name))),
    };
    noted.said(&answer.annotations);
    review.call.warnings.lock().extend(answer.warnings.iter().cloned());
    if answer.allowed {
        Ok(Some(answer))
    } else {
        Err(ApiError::from_status(review::refusal(&webhook.name, &answer.status)))
    }
}

async fn ask(
    review: &Review<'_>,
    hook: &Hook,
    form: usize,
    object: &Value,
    old: &Value,
    mutating: bool,
) -> Result<Answer, String> {
    let target = hook.target.as_ref().map_err(|why| format!("could not get REST client: {why}"))?;
    let unknown =
        "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
    let version = hook.webhook.review.ok_or(unknown)?;
    let uid = uuid::Uuid::new_v4().to_string();
    let asked = review::ask(version, &uid, review.about.request(form), object, old);
    let own = Duration::from_secs(hook.webhook.timeout);
    let timeout = review.call.deadline.map_or(own, |ends| own.min(ends.saturating_duration_since(Instant::now())));
    let answer = review.server.webhooks.call(target, timeout, &asked).await.map_err(|error| error.to_string());
    let answer = answer.and_then(|answer| review::check_types(&answer).map(|()| answer));
    let answer = answer.map_err(|why| format!("failed to call webhook: {why}"))?;
    review::read(version, &uid, mutating, &answer).map_err(|why| format!("received invalid webhook response: {why}"))
}

impl Review<'_> {
    /// A refusal in the words for the resource.
    pub(crate) fn forbidden(&self, why: &str) -> ApiError {
        let Some(form) = self.about.forms.first() else { return ApiError::internal(why) };
        // Upstream's `extractResourceName`.
        let name = [&self.about.name, &self.prefix].into_iter().find(|name| !name.is_empty());
        ApiError::forbidden_resource(&form.resource[0], &form.resource[2], name.map_or("Unknown", String::as_str), why)
    }
}
