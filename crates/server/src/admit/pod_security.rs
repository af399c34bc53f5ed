//! The `PodSecurity` admission: what a namespace's labels ask of its Pods, and of templates for them.

use super::refused;
use crate::{
    audit::AuditContext,
    kinds::{FieldErrors, FieldPath},
    request::RequestInfo,
    service::ApiServer,
    status::ApiError,
};
use admission::pod_security::{self as standards, InvalidLabel, Level, LevelVersion, Policy};
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Key, Scope};

/// So many Pods are looked at when a namespace asks for more, as upstream.
const MOST: usize = 3000;

/// What is told of a Pod that was there before and cannot be read.
const UNREADABLE: &str = "the spec cannot be read";

/// What the audit log is told: what the namespace enforces, what violates that which it only notes, and what could not be
/// read.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDITED: &str = "pod-security.kubernetes.io/audit-violations";
const ERROR: &str = "pod-security.kubernetes.io/error";

/// Whether a Pod may be; what to warn of, of Pods and of what makes Pods.
///
/// # Errors
/// When a Pod violates what its namespace enforces, or when the Pod or its namespace cannot be read.
pub(super) fn check(
    server: &ApiServer,
    resource: &RequestInfo,
    object: &Value,
    old: Option<&Value>,
    trail: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    let info = resource.kind.info();
    if (info.group, info.kind) == ("", "Pod") {
        return check_pod(server, resource, object, old, trail);
    }
    let template = if resource.subresource.is_none() { template(info.group, info.kind, object) } else { None };
    Ok(template.map(|template| check_template(server, &resource.namespace, template, trail)).unwrap_or_default())
}

fn check_pod(
    server: &ApiServer,
    resource: &RequestInfo,
    pod: &Value,
    old: Option<&Value>,
    trail: &AuditContext,
) -> Result<Vec<String>, ApiError> {
    if old.is_some_and(|old| has_same_images(old, pod)) {
        return Ok(Vec::new());
    }
    let (policy, wrong) = policy(server, &resource.namespace).map_err(ApiError::internal)?;
    if wrong.is_empty() && policy.is_privileged() {
        return Ok(Vec::new());
    }
    let subject = Subject::read(pod).map_err(|why| ApiError::bad_request(format!("failed to decode pod: {why}")))?;
    trail.annotate(ENFORCED, policy.enforce.to_string());
    note(trail, &subject, policy, &wrong);
    if let Some(why) = subject.violates(policy.enforce) {
        return Err(refused(resource.kind.info(), pod, &format!("violates {why}")));
    }
    Ok(subject.would_violate(policy.warn).into_iter().collect())
}

/// Templates are not refused: their Pods are.
fn check_template(server: &ApiServer, namespace: &str, template: &Value, trail: &AuditContext) -> Vec<String> {
    let evaluate = || {
        let (policy, wrong) = policy(server, namespace)?;
        let is_silent = [policy.warn, policy.audit].iter().all(|asked| asked.level == Level::Privileged);
        if wrong.is_empty() && is_silent {
            return Ok(None);
        }
        let subject = Subject::read(template).map_err(|why| format!("failed to extract pod template: {why}"))?;
        note(trail, &subject, policy, &wrong);
        Ok(subject.would_violate(policy.warn))
    };
    let evaluated: Result<_, String> = evaluate();
    evaluated
        .unwrap_or_else(|why| {
            trail.annotate(ERROR, why);
            None
        })
        .into_iter()
        .collect()
}

/// Tells the audit log what is wrong with the labels of a namespace, and what violates that which is only noted.
fn note(trail: &AuditContext, subject: &Subject, policy: Policy, wrong: &[InvalidLabel]) {
    if !trail.is_enabled() {
        return;
    }
    if !wrong.is_empty() {
        let mut errors = FieldErrors::default();
        note_wrong(wrong, &mut errors);
        let errors: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        let errors = if errors.len() == 1 { errors.concat() } else { format!("[{}]", errors.join(", ")) };
        trail.annotate(ERROR, format!("Failed to parse policy: {errors}"));
    }
    if let Some(why) = subject.would_violate(policy.audit) {
        trail.annotate(AUDITED, why);
    }
}

fn note_wrong(wrong: &[InvalidLabel], errors: &mut FieldErrors) {
    let path = FieldPath::new("metadata").child("labels");
    for wrong in wrong {
        errors.invalid(&path.key(&wrong.label), &json!(wrong.value), wrong.message);
    }
}

/// Whether the labels of a namespace make sense; which of its Pods violate what they ask for now.
pub(super) fn namespace(
    server: &ApiServer,
    object: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
) -> Vec<String> {
    let (new, wrong) = Policy::of(&labels(object));
    let before = old.map(|old| Policy::of(&labels(old)));
    if before.as_ref().is_none_or(|(_, was)| *was != wrong) {
        note_wrong(&wrong, errors);
    }
    let Some((before, _)) = before else { return Vec::new() };
    let stricter = new.enforce.version != before.enforce.version || new.enforce.level > before.enforce.level;
    if !errors.is_empty() || new.enforce == before.enforce || new.enforce.level == Level::Privileged || !stricter {
        return Vec::new();
    }
    violators(server, object["metadata"]["name"].as_str().unwrap_or(""), new.enforce)
}

/// Warnings of Pods that were there before.
fn violators(server: &ApiServer, namespace: &str, asked: LevelVersion) -> Vec<String> {
    let pods = server.store.list(&Scope::resource("pods").in_namespace(namespace), None, None).objects;
    let (mut warnings, mut found) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for stored in pods.iter().take(MOST) {
        let pod: Value = serde_json::from_slice(&stored.data).unwrap_or_default();
        let violations = match Subject::read(&pod) {
            Ok(subject) => standards::in_short(&standards::violations(asked, &subject.meta, &subject.spec)),
            Err(_) => UNREADABLE.to_owned(),
        };
        if !violations.is_empty() {
            found.entry(violations).or_default().push(stored.key.name.to_string());
        }
    }
    if pods.len() > MOST {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MOST} of {} existing pods",
            pods.len()
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{asked}\""
        ));
    }
    let mut told: Vec<String> = found.into_iter().map(|(what, pods)| whose(&pods, &what)).collect();
    told.sort();
    warnings.into_iter().chain(told).collect()
}

fn whose(pods: &[String], what: &str) -> String {
    match pods {
        [] => what.to_owned(),
        [one] => format!("{one}: {what}"),
        [first, _] => format!("{first} (and 1 other pod): {what}"),
        [first, others @ ..] => format!("{first} (and {} other pods): {what}", others.len()),
    }
}

/// What a namespace asks of its Pods, and what is wrong with its labels.
fn policy(server: &ApiServer, namespace: &str) -> Result<(Policy, Vec<InvalidLabel>), String> {
    let stored = server.store.get(&Key::new("namespaces", "", namespace));
    let object = stored.and_then(|stored| serde_json::from_slice::<Value>(&stored.data).ok());
    let object = object.filter(|object| object["metadata"].is_object());
    let object = object.ok_or_else(|| format!("failed to lookup namespace {namespace:?}"))?;
    Ok(Policy::of(&labels(&object)))
}

/// The labels of a namespace. What is no text becomes one that is no level: what cannot be read must not count as absent.
fn labels(object: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match &object["metadata"]["labels"] {
        Value::Null => BTreeMap::new(),
        Value::Object(labels) => labels.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        other => [(standards::ENFORCE.to_owned(), other.to_string())].into(),
    }
}

/// What of a Pod or of a template for Pods is evaluated.
struct Subject {
    meta: ObjectMeta,
    spec: PodSpec,
}

impl Subject {
    /// # Errors
    /// When something of it is of a wrong type: it must not count as absent.
    fn read(pod: &Value) -> Result<Self, String> {
        let error = |e: serde_json::Error| e.to_string();
        // Of the metadata, the standards look at the annotations.
        let annotations = serde_json::from_value(pod["metadata"]["annotations"].clone()).map_err(error)?;
        let spec = serde_json::from_value(pod["spec"].clone()).map_err(error)?;
        Ok(Self { meta: ObjectMeta { annotations, ..ObjectMeta::default() }, spec })
    }

    fn violates(&self, asked: LevelVersion) -> Option<String> {
        let found = standards::violations(asked, &self.meta, &self.spec);
        (!found.is_empty()).then(|| format!("PodSecurity \"{asked}\": {}", standards::in_detail(&found)))
    }

    fn would_violate(&self, asked: LevelVersion) -> Option<String> {
        self.violates(asked).map(|why| format!("would violate {why}"))
    }
}

/// The template of what makes Pods.
fn template<'a>(group: &str, kind: &str, object: &'a Value) -> Option<&'a Value> {
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

/// Whether two states of a Pod have the same containers with the same images, which is all that a Pod may change and that
/// the standards look at. What is no list is not the same.
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
