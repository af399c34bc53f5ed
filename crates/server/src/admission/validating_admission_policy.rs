//! The `ValidatingAdmissionPolicy` admission plugin (`apiserver/pkg/admission/plugin/policy/validating`).

use super::{
    context::AdmissionContext,
    policy_matching::{
        PolicyConfigurationError, collect_params, matching_resource, namespace_object, policy_matching_resource,
    },
};
use ::admission::{
    conditions,
    policy::{Binding, Decision, Denial, Policy},
};
use errors::ApiError;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Evaluates the validating policies; denies a request that violates one.
pub(super) async fn validate(
    context: &AdmissionContext<'_>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let mut denied: Option<(&Policy, Option<&Binding>, Denial)> = None;
    for (policy, bindings) in &context.registrations.validating_policies {
        let equivalent = match policy_matching_resource(context, &policy.matching, policy.params.as_ref(), object, old)
        {
            Ok(Some(equivalent)) => equivalent,
            Ok(None) => continue,
            Err(_) if policy.is_optional => continue,
            Err(error) => {
                denied.get_or_insert((policy, None, Denial::new(format!("failed to configure policy: {error}"))));
                continue;
            }
        };
        let versioned_object = context.versioned_object(object, equivalent).await?;
        let versioned_old_object = context.versioned_object(old, equivalent).await?;
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in bindings {
            let decision =
                decide(context, policy, binding, equivalent, [object, old], [&versioned_object, &versioned_old_object])
                    .await?;
            for (key, value) in decision.annotations {
                let values = annotations.entry(format!("{}/{key}", policy.name)).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            for denial in decision.denials {
                let has_action = |action: &str| binding.actions.iter().any(|a| a == action);
                if has_action("Warn") && !denial.always {
                    let (policy, binding) = (&policy.name, &binding.name);
                    let warning = format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                        denial.message
                    );
                    context.call.warnings.lock().push(warning);
                }
                if has_action("Audit") && !denial.always {
                    context.call.audit.annotate(FAILURE_ANNOTATION, validation_failure(policy, binding, &denial));
                }
                if has_action("Deny") || denial.always {
                    denied.get_or_insert((policy, Some(binding), denial));
                }
            }
        }
        for (key, values) in annotations {
            context.call.audit.annotate(key, values.join(", "));
        }
    }
    denied.map_or(Ok(()), |(policy, binding, denial)| Err(denied_error(context, policy, binding, &denial)))
}

/// Audit annotation of a failed validation.
const FAILURE_ANNOTATION: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Upstream's `ValidationFailureValue`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailureValue<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

fn validation_failure(policy: &Policy, binding: &Binding, denial: &Denial) -> String {
    let value = ValidationFailureValue {
        message: &denial.message,
        policy: &policy.name,
        binding: &binding.name,
        expression_index: denial.index,
        validation_actions: &binding.actions,
    };
    serde_json::to_string(&[value]).unwrap_or_default()
}

/// Evaluates a policy for a binding.
async fn decide(
    context: &AdmissionContext<'_>,
    policy: &Policy,
    binding: &Binding,
    equivalent: usize,
    objects: [Option<&Value>; 2],
    [versioned_object, versioned_old_object]: [&Value; 2],
) -> Result<Decision, ApiError> {
    let misconfigured = |error: PolicyConfigurationError| {
        let denial = Denial { always: true, ..Denial::new(format!("failed to configure binding: {error}")) };
        Decision::from(if policy.is_optional { Vec::new() } else { vec![denial] })
    };
    match matching_resource(context, &binding.matching, objects[0], objects[1]) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(Decision::default()),
        Err(error) => return Ok(misconfigured(error)),
    }
    let params = match collect_params(context, policy.params.as_ref(), binding).await {
        Ok(params) => params,
        Err(error) => return Ok(misconfigured(error)),
    };
    let namespace = namespace_object(context)?;
    let request = context.attributes.admission_request(equivalent);
    let mut all = Decision::default();
    for params in &params {
        let inputs = conditions::inputs(versioned_object, versioned_old_object, &request, context.authorizer());
        let Decision { denials, annotations } = policy.decide(inputs, params, &namespace);
        all.denials.extend(denials);
        all.annotations.extend(annotations);
    }
    Ok(all)
}

/// Returns the error of a denied request.
fn denied_error(
    context: &AdmissionContext<'_>,
    policy: &Policy,
    binding: Option<&Binding>,
    denial: &Denial,
) -> ApiError {
    let with = binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name));
    let message = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {}", policy.name, denial.message);
    let mut status = context.forbidden(&message).to_json();
    status["reason"] = json!(denial.reason);
    status["code"] = json!(denial.code());
    status["details"]["causes"] = json!([{"message": message}]);
    ApiError::from_status(status)
}
