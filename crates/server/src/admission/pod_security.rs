//! The `PodSecurity` admission plugin (`k8s.io/pod-security-admission`).

use super::plugin::{AdmittedWrite, Plugin, forbidden};
use crate::objects::request_scope::RequestScope;
use ::admission::pod_security::{self as standards, InvalidLabel, Level, LevelVersion, Policy};
use audit::AuditContext;
use auth::stored_object;
use errors::ApiError;
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Scope, Store};

/// Maximum number of existing Pods that are evaluated after a change of a namespace (`defaultNamespaceMaxPodsToCheck`).
const MAX_PODS_TO_CHECK: usize = 3000;

/// Warning for an existing Pod that cannot be decoded.
const UNREADABLE: &str = "the spec cannot be read";

/// Audit annotations: the enforced policy, violations of the `audit` level, and evaluation errors.
const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// Holds Pods to the Pod Security Standard of their namespace.
pub(super) struct PodSecurity;

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(&self, write: &AdmittedWrite<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
        let store = &write.control.store;
        if !write.is_of("", "Namespace") || !write.is_main() {
            return validate(store, write.resource, object, write.old, write.audit);
        }
        let mut errors = FieldErrors::default();
        let warnings = validate_namespace(store, object, write.old, &mut errors);
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        if errors.is_empty() { Ok(warnings) } else { Err(ApiError::invalid(write.resource.kind.info(), name, &errors)) }
    }
}

/// Evaluates a Pod or the Pod template of a workload; returns warnings.
///
/// # Errors
/// If a Pod violates the enforced level, or the Pod or its namespace cannot be decoded.
pub(super) fn validate(
    store: &Store,
    resource: &RequestScope,
    object: &Value,
    old: Option<&Value>,
    audit: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    let info = resource.kind.info();
    if (info.group, info.kind) == ("", "Pod") {
        return evaluate_pod(store, resource, object, old, audit);
    }
    let template = if resource.subresource.is_none() { pod_template(info.group, info.kind, object) } else { None };
    Ok(template.map(|template| evaluate_template(store, &resource.namespace, template, audit)).unwrap_or_default())
}

fn evaluate_pod(
    store: &Store,
    resource: &RequestScope,
    pod: &Value,
    old: Option<&Value>,
    audit: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    if old.is_some_and(|old| has_same_images(old, pod)) {
        return Ok(Vec::new());
    }
    let (policy, invalid_labels) = policy(store, &resource.namespace).map_err(ApiError::internal)?;
    if invalid_labels.is_empty() && policy.is_privileged() {
        return Ok(Vec::new());
    }
    let subject =
        Subject::decode(pod).map_err(|error| ApiError::bad_request(format!("failed to decode pod: {error}")))?;
    audit.annotate(ENFORCED_POLICY, policy.enforce.to_string());
    annotate(audit, &subject, policy, &invalid_labels);
    if let Some(message) = subject.violations(policy.enforce) {
        return Err(forbidden(resource.kind.info(), pod, &format_args!("violates {message}")));
    }
    Ok(subject.warning(policy.warn).into_iter().collect())
}

/// A namespace is missing or cannot be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to lookup namespace {0:?}")]
struct NamespaceLookupError(String);

/// Failed evaluation of a Pod template.
#[derive(Debug, thiserror::Error)]
enum EvaluationError {
    #[error(transparent)]
    Namespace(#[from] NamespaceLookupError),
    #[error("failed to extract pod template: {0}")]
    PodTemplate(serde_json::Error),
}

/// Returns warnings. Workloads are not rejected, but their Pods.
fn evaluate_template(store: &Store, namespace: &str, template: &Value, audit: &AuditContext) -> Vec<String> {
    let evaluate = || -> Result<Option<String>, EvaluationError> {
        let (policy, invalid_labels) = policy(store, namespace)?;
        let is_privileged = [policy.warn, policy.audit].iter().all(|checked| checked.level == Level::Privileged);
        if invalid_labels.is_empty() && is_privileged {
            return Ok(None);
        }
        let subject = Subject::decode(template).map_err(EvaluationError::PodTemplate)?;
        annotate(audit, &subject, policy, &invalid_labels);
        Ok(subject.warning(policy.warn))
    };
    evaluate()
        .unwrap_or_else(|error| {
            audit.annotate(ERROR, error.to_string());
            None
        })
        .into_iter()
        .collect()
}

/// Adds audit annotations for invalid labels of the namespace, and for violations of the `audit` level.
fn annotate(audit: &AuditContext, subject: &Subject, policy: Policy, invalid_labels: &[InvalidLabel]) {
    if !audit.is_enabled() {
        return;
    }
    if !invalid_labels.is_empty() {
        let mut errors = FieldErrors::default();
        label_errors(invalid_labels, &mut errors);
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let errors = if errors.len() == 1 { errors.concat() } else { format!("[{}]", errors.join(", ")) };
        audit.annotate(ERROR, format!("Failed to parse policy: {errors}"));
    }
    if let Some(message) = subject.warning(policy.audit) {
        audit.annotate(AUDIT_VIOLATIONS, message);
    }
}

fn label_errors(invalid_labels: &[InvalidLabel], errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("labels");
    for invalid in invalid_labels {
        errors.invalid(&path.key(&invalid.label), &json!(invalid.value), invalid.message);
    }
}

/// Validates the labels of a namespace; returns warnings for Pods that violate the new enforced level (`ValidateNamespace`).
pub(super) fn validate_namespace(
    store: &Store,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) -> Vec<String> {
    let (new, invalid_labels) = Policy::from_labels(&labels(object));
    let old_policy = old.map(|old| Policy::from_labels(&labels(old)));
    if old_policy.as_ref().is_none_or(|(_, old_invalid)| *old_invalid != invalid_labels) {
        label_errors(&invalid_labels, errors);
    }
    let Some((old_policy, _)) = old_policy else { return Vec::new() };
    let stricter = new.enforce.version != old_policy.enforce.version || new.enforce.level > old_policy.enforce.level;
    if !errors.is_empty() || new.enforce == old_policy.enforce || new.enforce.level == Level::Privileged || !stricter {
        return Vec::new();
    }
    evaluate_pods_in_namespace(store, object["metadata"]["name"].as_str().unwrap_or(""), new.enforce)
}

/// Returns warnings for existing Pods that violate a level (`EvaluatePodsInNamespace`).
fn evaluate_pods_in_namespace(store: &Store, namespace: &str, enforce: LevelVersion) -> Vec<String> {
    let pods = store.list(&Scope::resource("pods").in_namespace(namespace), None, None).objects;
    let (mut warnings, mut found) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for stored in pods.iter().take(MAX_PODS_TO_CHECK) {
        let pod: Value = stored_object::parse(stored).unwrap_or_default();
        let violations = match Subject::decode(&pod) {
            Ok(subject) => standards::format_reasons(&standards::violations(enforce, &subject.meta, &subject.spec)),
            Err(_) => UNREADABLE.to_owned(),
        };
        if !violations.is_empty() {
            found.entry(violations).or_default().push(stored.key.name.to_string());
        }
    }
    if pods.len() > MAX_PODS_TO_CHECK {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS_TO_CHECK} of {} existing pods",
            pods.len()
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let mut by_pods: Vec<String> =
        found.into_iter().map(|(violations, pods)| pod_warning(&pods, &violations)).collect();
    by_pods.sort();
    warnings.into_iter().chain(by_pods).collect()
}

/// Formats the warning for Pods with the same violations (`decoratePodWarnings`).
fn pod_warning(pods: &[String], violations: &str) -> String {
    match pods {
        [] => violations.to_owned(),
        [one] => format!("{one}: {violations}"),
        [first, _] => format!("{first} (and 1 other pod): {violations}"),
        [first, others @ ..] => format!("{first} (and {} other pods): {violations}", others.len()),
    }
}

/// Returns the policy of a namespace, and its invalid labels.
fn policy(store: &Store, namespace: &str) -> Result<(Policy, Vec<InvalidLabel>), NamespaceLookupError> {
    let object = stored_object::get(store, "namespaces", "", namespace);
    let object = object.filter(|object| object["metadata"].is_object());
    let object = object.ok_or_else(|| NamespaceLookupError(namespace.to_owned()))?;
    Ok(Policy::from_labels(&labels(&object)))
}

/// Returns the labels of a namespace. A value that is not a string becomes an invalid level: it must not count as absent.
fn labels(object: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match &object["metadata"]["labels"] {
        Value::Null => BTreeMap::new(),
        Value::Object(labels) => labels.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        other => [(standards::ENFORCE.to_owned(), other.to_string())].into(),
    }
}

/// The evaluated fields of a Pod or a Pod template.
struct Subject {
    meta: ObjectMeta,
    spec: PodSpec,
}

impl Subject {
    /// Decodes the fields.
    ///
    /// # Errors
    /// If a field has a wrong type: it must not count as absent.
    fn decode(pod: &Value) -> Result<Self, serde_json::Error> {
        // The standards check only the annotations of the metadata.
        let annotations = serde_json::from_value(pod["metadata"]["annotations"].clone())?;
        let spec = decode::from_value(&pod["spec"])?;
        Ok(Self { meta: ObjectMeta { annotations, ..ObjectMeta::default() }, spec })
    }

    fn violations(&self, level: LevelVersion) -> Option<String> {
        let found = standards::violations(level, &self.meta, &self.spec);
        (!found.is_empty()).then(|| format!("PodSecurity \"{level}\": {}", standards::format_with_details(&found)))
    }

    fn warning(&self, level: LevelVersion) -> Option<String> {
        self.violations(level).map(|message| format!("would violate {message}"))
    }
}

/// Returns the Pod template of a workload (`ExtractPodSpec`).
fn pod_template<'a>(group: &str, kind: &str, object: &'a Value) -> Option<&'a Value> {
    let path = match (group, kind) {
        ("", "PodTemplate") => "/template",
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => "/spec/template",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template",
        _ => return None,
    };
    object.pointer(path).filter(|template| !template["spec"].is_null())
}

/// Whether a Pod has the same containers with the same images: an update cannot change other fields that the standards check
/// (`isSignificantPodUpdate`). Values that are no lists are never the same.
fn has_same_images(old: &Value, new: &Value) -> bool {
    let images = |pod: &Value, list: &str| -> Option<Vec<(Value, Value)>> {
        match &pod["spec"][list] {
            Value::Null => Some(Vec::new()),
            Value::Array(all) => Some(all.iter().map(|c| (c["name"].clone(), c["image"].clone())).collect()),
            _ => None,
        }
    };
    ["containers", "initContainers", "ephemeralContainers"].iter().all(|list| {
        let old = images(old, list);
        old.is_some() && old == images(new, list)
    })
}

#[cfg(test)]
mod tests;
