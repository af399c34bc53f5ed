//! Validating admission policies where their bindings say that they hold
//! (`apiserver/pkg/admission/plugin/policy/{generic,validating}`).

use super::review::Review;
use crate::{conversion, kinds::Kind, kinds::selector, registry::ServedKinds, status::ApiError};
use admission::{
    conditions,
    matching::Matching,
    policy::{Binding, Decision, Denial, Policy, is_ignored},
};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Key, Scope};

/// Refuses what a policy does not allow.
pub(crate) async fn validate(review: &Review<'_>, object: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let mut refused: Option<(&Policy, Option<&Binding>, Denial)> = None;
    for (policy, bindings) in &review.asked.policies {
        let form = match concerns_policy(review, &policy.matching, policy.params.as_ref(), object, old) {
            Ok(Some(form)) => form,
            Ok(None) => continue,
            Err(_) if policy.is_optional => continue,
            Err(why) => {
                refused.get_or_insert((policy, None, Denial::new(format!("failed to configure policy: {why}"))));
                continue;
            }
        };
        let (now, before) = (review.in_form(object, form).await?, review.in_form(old, form).await?);
        let mut noted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in bindings {
            let said = decide(review, policy, binding, form, [object, old], [&now, &before]).await?;
            for (key, value) in said.annotations {
                let values = noted.entry(format!("{}/{key}", policy.name)).or_default();
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            for denial in said.denials {
                let does = |action: &str| binding.actions.iter().any(|a| a == action);
                if does("Warn") && !denial.always {
                    let (policy, binding) = (&policy.name, &binding.name);
                    let told = format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                        denial.message
                    );
                    review.call.warnings.lock().push(told);
                }
                if does("Audit") && !denial.always {
                    review.call.audit.annotate(FAILURE, failure(policy, binding, &denial));
                }
                if does("Deny") || denial.always {
                    refused.get_or_insert((policy, Some(binding), denial));
                }
            }
        }
        for (key, values) in noted {
            review.call.audit.annotate(key, values.join(", "));
        }
    }
    refused.map_or(Ok(()), |(policy, binding, denial)| Err(refusal(review, policy, binding, &denial)))
}

/// What the audit log says of what a policy does not allow.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Upstream's `ValidationFailureValue`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

fn failure(policy: &Policy, binding: &Binding, denial: &Denial) -> String {
    let failure = Failure {
        message: &denial.message,
        policy: &policy.name,
        binding: &binding.name,
        expression_index: denial.index,
        validation_actions: &binding.actions,
    };
    serde_json::to_string(&[failure]).unwrap_or_default()
}

/// In which form a request is what this is about, if it is.
pub(super) fn concerns(
    review: &Review<'_>,
    matching: &Result<Matching, String>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, String> {
    let matching = matching.as_ref().map_err(Clone::clone)?;
    let Some(form) = matching.form(&review.about).filter(|_| matching.selects(object, old)) else { return Ok(None) };
    let selected = review.selects_namespace(matching, object).map_err(|e| e.to_string())?;
    Ok(selected.then_some(form))
}

/// The same for a policy, which can say nothing when what configures it is of a kind that is not served.
pub(super) fn concerns_policy(
    review: &Review<'_>,
    matching: &Result<Matching, String>,
    params: Option<&(String, String)>,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<usize>, String> {
    let [group, _, resource] = &review.about.forms[0].resource;
    let form = if is_ignored(group, resource) { None } else { concerns(review, matching, object, old)? };
    if form.is_some()
        && let Some(params) = params
    {
        param_kind(&review.server.registry.served(), params)?;
    }
    Ok(form)
}

/// The kind of what configures a policy (`ensureParamsForPolicyLocked`).
fn param_kind<'a>(served: &'a ServedKinds, (version, kind): &'a (String, String)) -> Result<&'a dyn Kind, String> {
    let known = served.find_object_kind(version, kind);
    known.ok_or_else(|| format!("failed to find resource referenced by paramKind: '{version}, Kind={kind}'"))
}

/// What a policy says against a request where a binding says that it holds.
async fn decide(
    review: &Review<'_>,
    policy: &Policy,
    binding: &Binding,
    form: usize,
    objects: [Option<&Value>; 2],
    [now, before]: [&Value; 2],
) -> Result<Decision, ApiError> {
    let wrong = |why: String| {
        let denial = Denial { always: true, ..Denial::new(format!("failed to configure binding: {why}")) };
        Decision::from(if policy.is_optional { Vec::new() } else { vec![denial] })
    };
    match concerns(review, &binding.matching, objects[0], objects[1]) {
        Ok(Some(_)) => {}
        Ok(None) => return Ok(Decision::default()),
        Err(why) => return Ok(wrong(why)),
    }
    let params = match params(review, policy.params.as_ref(), binding).await {
        Ok(params) => params,
        Err(why) => return Ok(wrong(why)),
    };
    let about = &review.about;
    let namespace =
        if about.namespace.is_empty() || about.is_namespace() { Value::Null } else { exposed(&review.namespace()?) };
    let request = about.request(form);
    let mut all = Decision::default();
    for params in &params {
        let inputs = conditions::inputs(now, before, &request, review.authority());
        let Decision { denials, annotations } = policy.decide(inputs, params, &namespace);
        all.denials.extend(denials);
        all.annotations.extend(annotations);
    }
    Ok(all)
}

/// What expressions may see of a namespace (`CreateNamespaceObject`).
pub(super) fn exposed(namespace: &Value) -> Value {
    let mut shown = namespace.clone();
    for field in ["managedFields", "ownerReferences", "selfLink"] {
        shown["metadata"].as_object_mut().map(|m| m.remove(field));
    }
    shown
}

/// The objects that configure a policy for a binding; null for one that needs none (`CollectParams`).
pub(super) async fn params(
    review: &Review<'_>,
    of: Option<&(String, String)>,
    binding: &Binding,
) -> Result<Vec<Value>, String> {
    let (Some(of), reference) = (of, &binding.params) else { return Ok(vec![Value::Null]) };
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let served = review.server.registry.served();
    let known = param_kind(&served, of)?;
    let given = reference["namespace"].as_str().unwrap_or("");
    let namespace = match (known.info().namespaced, given) {
        (true, "") if review.about.namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "") => review.about.namespace.as_str(),
        (true, given) => given,
        (false, "") => "",
        (false, _) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
    };
    let found = find(review, known, namespace, reference).await.map_err(|e| e.to_string())?;
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

async fn find(
    review: &Review<'_>,
    kind: &dyn Kind,
    namespace: &str,
    reference: &Value,
) -> Result<Vec<Value>, ApiError> {
    let (server, storage) = (review.server, kind.info().storage);
    if let Some(name) = reference["name"].as_str().filter(|name| !name.is_empty()) {
        let stored = server.store.get(&Key::new(storage, namespace, name));
        let stored: Vec<store::Object> = stored.into_iter().collect();
        return conversion::decode_all(&server.webhooks, kind, &stored).await;
    }
    let scope = Scope::resource(storage).in_namespace(namespace);
    let all = server.store.list(&scope, None, None).objects;
    let mut all = conversion::decode_all(&server.webhooks, kind, &all).await?;
    all.retain(|o| selector::matches(&reference["selector"], &o["metadata"]["labels"]).unwrap_or(false));
    Ok(all)
}

/// The refusal that a client gets.
fn refusal(review: &Review<'_>, policy: &Policy, binding: Option<&Binding>, denial: &Denial) -> ApiError {
    let with = binding.map_or_else(String::new, |binding| format!(" with binding '{}'", binding.name));
    let why = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {}", policy.name, denial.message);
    let mut status = review.forbidden(&why).to_json();
    status["reason"] = json!(denial.reason);
    status["code"] = json!(denial.code());
    status["details"]["causes"] = json!([{"message": why}]);
    ApiError::from_status(status)
}
