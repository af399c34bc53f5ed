//! The `MutatingAdmissionPolicy` admission plugin (`apiserver/pkg/admission/plugin/policy/mutating`).

use super::{
    context::AdmissionContext,
    policy_matching::{
        PolicyConfigurationError, collect_params, matching_resource, namespace_object, policy_matching_resource,
    },
    reinvocation::Reinvocation,
};
use crate::objects::patch::json_patch::{self, PatchError};
use ::admission::{
    attributes::{EquivalentResource, Operation},
    conditions,
    policy::{Binding, MutatingPolicy, Patch},
};
use apply::Duplicates;
use errors::ApiError;
use serde_json::{Value, json};

/// A policy to invoke for a binding, with one of its parameter objects.
struct Invocation<'a> {
    policy: &'a MutatingPolicy,
    binding: &'a Binding,
    equivalent: usize,
    params: Value,
}

/// Failed invocation of a policy.
enum Failure {
    /// Denies the request, unless `failurePolicy` is `Ignore`.
    Denied(String),
    /// Fails the request, whatever the `failurePolicy`.
    Error(ApiError),
}

/// Invokes the mutating policies of a request.
#[derive(Default)]
pub(super) struct MutatingPolicyDispatcher {
    /// Whether a policy returned a patch, also one without effect.
    pub(super) changed: bool,
    /// Reinvocations, by policy, binding and parameters.
    reinvocation: Reinvocation<(String, String, String)>,
    /// The object after the last invocation.
    output: Option<Value>,
}

impl MutatingPolicyDispatcher {
    /// Invokes all policies.
    pub(super) async fn dispatch(
        &mut self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        self.invoke_all(context, object, old, false).await
    }

    /// Invokes once more the policies with `reinvocationPolicy: IfNeeded` after which the object changed.
    pub(super) async fn reinvoke(
        &mut self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if self.output.as_ref().is_some_and(|output| output != object) {
            self.reinvocation.require();
        }
        self.invoke_all(context, object, old, true).await
    }

    async fn invoke_all(
        &mut self,
        context: &AdmissionContext<'_>,
        object: &mut Value,
        old: Option<&Value>,
        is_reinvocation: bool,
    ) -> Result<(), ApiError> {
        if context.registrations.mutating_policies.is_empty() || object.is_null() || !context.is_mutable_by_policies() {
            return Ok(());
        }
        let (invocations, mut denials) = invocations(context, object, old).await;
        for invocation in &invocations {
            match self.invoke(context, invocation, object, old, is_reinvocation).await {
                Ok(()) => {}
                Err(Failure::Denied(_)) if invocation.policy.is_optional => {}
                Err(Failure::Denied(reason)) => {
                    let message = denied_message(invocation.policy, Some(invocation.binding), &reason);
                    denials.push(Denial { message, is_invalid: true });
                }
                Err(Failure::Error(error)) => return Err(error),
            }
        }
        if self.changed {
            self.reinvocation.require();
        }
        if !invocations.is_empty() {
            self.output = Some(object.clone());
        }
        denied_error(context, &denials)
    }

    async fn invoke(
        &mut self,
        context: &AdmissionContext<'_>,
        invocation: &Invocation<'_>,
        object: &mut Value,
        old: Option<&Value>,
        is_reinvocation: bool,
    ) -> Result<(), Failure> {
        let Invocation { policy, binding, equivalent, params } = invocation;
        let namespace = namespace_object(context)?;
        let request = context.attributes.admission_request(*equivalent);
        let versioned_old_object = context.versioned_object(old, *equivalent).await?;
        let inputs = |versioned_object: &Value| {
            conditions::inputs(versioned_object, &versioned_old_object, &request, context.authorizer())
        };
        let mut versioned_object = context.versioned_object(Some(&*object), *equivalent).await?;
        if !policy
            .matches(inputs(&versioned_object), params, &namespace)
            .map_err(|error| Failure::Denied(error.to_string()))?
        {
            return Ok(());
        }
        let metadata = |field: &str| params["metadata"][field].as_str().unwrap_or("").to_owned();
        let key =
            (policy.name.clone(), binding.name.clone(), format!("{}/{}", metadata("namespace"), metadata("name")));
        if is_reinvocation && !self.reinvocation.should_reinvoke(&key) {
            return Ok(());
        }
        let mut failed = None;
        for index in 0..policy.len() {
            let patch = policy
                .patch(index, inputs(&versioned_object), params, &namespace)
                .map_err(|error| Failure::Denied(error.to_string()));
            match patch.and_then(|patch| apply_patch(context, *equivalent, &versioned_object, patch)) {
                Ok(patched) => {
                    self.changed = true;
                    let mutated = context.request_object(patched, *equivalent).await?;
                    if mutated != *object {
                        *object = mutated;
                        versioned_object = context.versioned_object(Some(&*object), *equivalent).await?;
                        self.reinvocation.require();
                    }
                }
                Err(Failure::Denied(reason)) => drop(failed.get_or_insert(reason)),
                Err(error) => return Err(error),
            }
        }
        if policy.is_reinvoked {
            self.reinvocation.add_invoked(key);
        }
        failed.map_or(Ok(()), |message| Err(Failure::Denied(message)))
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Error(error)
    }
}

/// Denial of a request.
struct Denial {
    message: String,
    /// Whether the reason is `Invalid`.
    is_invalid: bool,
}

/// Returns the invocations of the matching policies, one for each binding and parameter object, and the denials of
/// misconfigured ones.
async fn invocations<'a>(
    context: &'a AdmissionContext<'_>,
    object: &Value,
    old: Option<&Value>,
) -> (Vec<Invocation<'a>>, Vec<Denial>) {
    let (mut all, mut denials) = (Vec::new(), Vec::new());
    let mut fail =
        |policy: &MutatingPolicy, binding: Option<&Binding>, object_name: &str, error: PolicyConfigurationError| {
            if !policy.is_optional {
                let message = denied_message(policy, binding, &format!("failed to configure {object_name}: {error}"));
                denials.push(Denial { message, is_invalid: false });
            }
        };
    for (policy, bindings) in &context.registrations.mutating_policies {
        let matched = policy_matching_resource(context, &policy.matching, policy.params.as_ref(), Some(object), old);
        let equivalent = match matched {
            Ok(Some(equivalent)) => equivalent,
            Ok(None) => continue,
            Err(error) => {
                fail(policy, None, "policy", error);
                continue;
            }
        };
        for binding in bindings {
            match matching_resource(context, &binding.matching, Some(object), old) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(error) => {
                    fail(policy, Some(binding), "binding", error);
                    continue;
                }
            }
            match collect_params(context, policy.params.as_ref(), binding).await {
                Ok(found) => {
                    all.extend(found.into_iter().map(|params| Invocation { policy, binding, equivalent, params }));
                }
                Err(error) => fail(policy, Some(binding), "binding", error),
            }
        }
    }
    (all, denials)
}

/// Applies a patch to an object of an equivalent resource.
fn apply_patch(
    context: &AdmissionContext<'_>,
    equivalent: usize,
    object: &Value,
    patch: Patch,
) -> Result<Value, Failure> {
    match patch {
        Patch::ApplyConfiguration(config) => merge(context, equivalent, object, config),
        Patch::JsonPatch(operations) => {
            let operations = serde_json::to_vec(&operations).map_err(ApiError::internal)?;
            let patched = match json_patch::apply(object.clone(), &operations) {
                Ok(patched) => patched.value,
                // A patch whose `test` operation fails changes nothing.
                Err(PatchError::Test(_)) => return Ok(object.clone()),
                Err(PatchError::Other(error)) => {
                    return Err(Failure::Denied(format!("JSON Patch: {}", error.cause_message())));
                }
            };
            let unknown = context.unknown_fields(&patched, equivalent)?;
            if let Some(first) = unknown.first() {
                return Err(ApiError::internal(format!("strict decoding error: {first}")).into());
            }
            Ok(patched)
        }
    }
}

/// Merges an ApplyConfiguration into an object, without field managers (`ApplyStructuredMergeDiff`).
fn merge(
    context: &AdmissionContext<'_>,
    equivalent: usize,
    object: &Value,
    mut config: Value,
) -> Result<Value, Failure> {
    let failed = |message: String| Failure::Denied(format!("error applying patch: {message}"));
    let EquivalentResource { kind: [group, version, kind], .. } = &context.attributes.equivalent_resources[equivalent];
    let Some(type_ref) = context.type_ref(equivalent) else {
        let message = format!(
            "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
        );
        return Err(ApiError::new(503, "ServiceUnavailable", message).into());
    };
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    apply::validate(type_ref, &config, Duplicates::Refused)
        .map_err(|error| failed(format!("failed to convert patch object to typed object: {error}")))?;
    let atomics = apply::atomic_fields(type_ref, &config);
    if !atomics.is_empty() {
        let message = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
        return Err(failed(format!("invalid ApplyConfiguration: {message}")));
    }
    Ok(apply::merge(type_ref, Some(object), config).unwrap_or_else(|| object.clone()))
}

fn denied_message(policy: &MutatingPolicy, binding: Option<&Binding>, message: &str) -> String {
    match binding {
        Some(binding) => format!("policy '{}' with binding '{}' denied request: {message}", policy.name, binding.name),
        None => format!("policy \"{}\" denied request: {message}", policy.name),
    }
}

/// Returns the error of a denied request: the first denial, with all of them as causes.
fn denied_error(context: &AdmissionContext<'_>, denials: &[Denial]) -> Result<(), ApiError> {
    let Some(first) = denials.first() else { return Ok(()) };
    let mut status = context.forbidden(&first.message).to_json();
    status["message"] = json!(first.message);
    if first.is_invalid {
        status["reason"] = json!("Invalid");
    }
    status["details"]["causes"] = denials.iter().map(|denial| json!({"message": denial.message})).collect();
    Err(ApiError::from_status(status))
}

impl AdmissionContext<'_> {
    /// Whether mutating policies apply: their feature gate is enabled, and the operation is not a deletion.
    fn is_mutable_by_policies(&self) -> bool {
        let gate = api::feature_gates::Gate::MutatingAdmissionPolicy;
        self.attributes.operation != Operation::Delete && self.control.gates.enabled(gate)
    }
}
