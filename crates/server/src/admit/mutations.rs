//! Mutating admission policies where their bindings say that they hold: what their expressions say is merged into the
//! object, or patches it (`apiserver/pkg/admission/plugin/policy/mutating`).

use super::{
    policies::{concerns, concerns_policy, exposed, params},
    reinvocation::Reinvocation,
    review::Review,
};
use crate::{
    patch::json_patch::{self, PatchError},
    status::ApiError,
};
use admission::{
    attributes::{EquivalentResource, Operation},
    conditions,
    policy::{Binding, Change, MutatingPolicy},
};
use apply::Duplicates;
use serde_json::{Value, json};

/// A policy where a binding says that it holds, with the object that configures it there.
struct Invocation<'a> {
    policy: &'a MutatingPolicy,
    binding: &'a Binding,
    form: usize,
    params: Value,
}

/// Why a request goes no further.
enum Failure {
    /// Unless the policy is optional.
    Denied(String),
    /// Whatever the policy says of failures.
    Always(ApiError),
}

/// Which policies were asked, and which want to be asked again.
#[derive(Default)]
pub(crate) struct Round {
    /// Whether any changed something, or said what is so already.
    pub(crate) changed: bool,
    /// By policy, binding, and what configures it.
    reinvocation: Reinvocation<(String, String, String)>,
    /// The object as it was when the last had been asked.
    output: Option<Value>,
}

impl Round {
    /// Lets every policy change the object.
    pub(crate) async fn first(
        &mut self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        self.ask(review, object, old, false).await
    }

    /// Asks those again that want to see what came after them.
    pub(crate) async fn again(
        &mut self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if self.output.as_ref().is_some_and(|output| output != object) {
            self.reinvocation.changed();
        }
        self.ask(review, object, old, true).await
    }

    async fn ask(
        &mut self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
        again: bool,
    ) -> Result<(), ApiError> {
        if review.asked.mutations.is_empty() || object.is_null() || !review.takes_policies() {
            return Ok(());
        }
        let mut refused: Vec<(String, bool)> = Vec::new();
        let (invocations, mut failed) = invocations(review, object, old).await;
        refused.append(&mut failed);
        for invocation in &invocations {
            match self.invoke(review, invocation, object, old, again).await {
                Ok(()) => {}
                Err(Failure::Denied(_)) if invocation.policy.is_optional => {}
                Err(Failure::Denied(why)) => {
                    refused.push((denied(invocation.policy, Some(invocation.binding), &why), true));
                }
                Err(Failure::Always(error)) => return Err(error),
            }
        }
        if self.changed {
            self.reinvocation.changed();
        }
        if !invocations.is_empty() {
            self.output = Some(object.clone());
        }
        refusal(review, &refused)
    }

    async fn invoke(
        &mut self,
        review: &Review<'_>,
        invocation: &Invocation<'_>,
        object: &mut Value,
        old: Option<&Value>,
        again: bool,
    ) -> Result<(), Failure> {
        let Invocation { policy, binding, form, params } = invocation;
        let namespace = namespace(review)?;
        let request = review.about.request(*form);
        let before = review.in_form(old, *form).await?;
        let inputs = |now: &Value| conditions::inputs(now, &before, &request, review.authority());
        let mut now = review.in_form(Some(&*object), *form).await?;
        if !policy.concerns(inputs(&now), params, &namespace).map_err(|error| Failure::Denied(error.to_string()))? {
            return Ok(());
        }
        let place = |field: &str| params["metadata"][field].as_str().unwrap_or("").to_owned();
        let key = (policy.name.clone(), binding.name.clone(), format!("{}/{}", place("namespace"), place("name")));
        if again && !self.reinvocation.wants(&key) {
            return Ok(());
        }
        let mut failed = None;
        for index in 0..policy.len() {
            let made = policy
                .change(index, inputs(&now), params, &namespace)
                .map_err(|error| Failure::Denied(error.to_string()));
            match made.and_then(|change| changed(review, *form, &now, change)) {
                Ok(made) => {
                    self.changed = true;
                    let made = review.taken(made, *form).await?;
                    if made != *object {
                        *object = made;
                        now = review.in_form(Some(&*object), *form).await?;
                        self.reinvocation.changed();
                    }
                }
                Err(Failure::Denied(why)) => drop(failed.get_or_insert(why)),
                Err(always) => return Err(always),
            }
        }
        if policy.is_reinvoked {
            self.reinvocation.note(key);
        }
        failed.map_or(Ok(()), |why| Err(Failure::Denied(why)))
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Always(error)
    }
}

/// Every policy that is about this request, once for each binding and for each object that configures it there; and why
/// some cannot be asked.
async fn invocations<'a>(
    review: &'a Review<'_>,
    object: &Value,
    old: Option<&Value>,
) -> (Vec<Invocation<'a>>, Vec<(String, bool)>) {
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    let mut fail = |policy: &MutatingPolicy, binding: Option<&Binding>, what: &str, why: String| {
        if !policy.is_optional {
            failed.push((denied(policy, binding, &format!("failed to configure {what}: {why}")), false));
        }
    };
    for (policy, bindings) in &review.asked.mutations {
        let form = match concerns_policy(review, &policy.matching, policy.params.as_ref(), Some(object), old) {
            Ok(Some(form)) => form,
            Ok(None) => continue,
            Err(why) => {
                fail(policy, None, "policy", why);
                continue;
            }
        };
        for binding in bindings {
            match concerns(review, &binding.matching, Some(object), old) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(why) => {
                    fail(policy, Some(binding), "binding", why);
                    continue;
                }
            }
            match params(review, policy.params.as_ref(), binding).await {
                Ok(found) => {
                    all.extend(found.into_iter().map(|params| Invocation { policy, binding, form, params }));
                }
                Err(why) => fail(policy, Some(binding), "binding", why),
            }
        }
    }
    (all, failed)
}

fn namespace(review: &Review<'_>) -> Result<Value, ApiError> {
    let about = &review.about;
    if about.namespace.is_empty() || about.is_namespace() {
        return Ok(Value::Null);
    }
    Ok(exposed(&review.namespace()?))
}

/// What a change makes of an object in one of its forms.
fn changed(review: &Review<'_>, form: usize, object: &Value, change: Change) -> Result<Value, Failure> {
    match change {
        Change::Apply(config) => merged(review, form, object, config),
        Change::Patch(steps) => {
            let steps = serde_json::to_vec(&steps).map_err(ApiError::internal)?;
            let patched = match json_patch::apply(object.clone(), &steps) {
                Ok(patched) => patched.value,
                // What its tests do not hold for it leaves alone.
                Err(PatchError::Test(_)) => return Ok(object.clone()),
                Err(PatchError::Other(why)) => {
                    return Err(Failure::Denied(format!("JSON Patch: {}", why.cause_message())));
                }
            };
            let unknown = review.unknown_fields(&patched, form)?;
            if let Some(first) = unknown.first() {
                return Err(ApiError::internal(format!("strict decoding error: {first}")).into());
            }
            Ok(patched)
        }
    }
}

/// A configuration merged into an object; nobody owns what it says (`ApplyStructuredMergeDiff`).
fn merged(review: &Review<'_>, form: usize, object: &Value, mut config: Value) -> Result<Value, Failure> {
    let failed = |why: String| Failure::Denied(format!("error applying patch: {why}"));
    let EquivalentResource { kind: [group, version, kind], .. } = &review.about.forms[form];
    let Some(types) = review.types(form) else {
        let why = format!(
            "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
        );
        return Err(ApiError::new(503, "ServiceUnavailable", why).into());
    };
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    apply::validate(types, &config, Duplicates::Refused)
        .map_err(|why| failed(format!("failed to convert patch object to typed object: {why}")))?;
    let atomics = apply::atomic_fields(types, &config);
    if !atomics.is_empty() {
        let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
        return Err(failed(format!("invalid ApplyConfiguration: {why}")));
    }
    Ok(apply::merge(types, Some(object), config).unwrap_or_else(|| object.clone()))
}

fn denied(policy: &MutatingPolicy, binding: Option<&Binding>, why: &str) -> String {
    match binding {
        Some(binding) => format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name),
        None => format!("policy \"{}\" denied request: {why}", policy.name),
    }
}

/// The refusal that a client gets: the first denial, and all of them as its causes.
fn refusal(review: &Review<'_>, refused: &[(String, bool)]) -> Result<(), ApiError> {
    let Some((first, invalid)) = refused.first() else { return Ok(()) };
    let mut status = review.forbidden(first).to_json();
    status["message"] = json!(first);
    if *invalid {
        status["reason"] = json!("Invalid");
    }
    status["details"]["causes"] = refused.iter().map(|(why, _)| json!({"message": why})).collect();
    Err(ApiError::from_status(status))
}

impl Review<'_> {
    /// Whether mutating policies are asked: where their kind is served, about what is written.
    fn takes_policies(&self) -> bool {
        let gate = api::feature_gates::Gate::MutatingAdmissionPolicy;
        self.about.operation != Operation::Delete && self.server.gates.enabled(gate)
    }
}
