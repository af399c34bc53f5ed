//! The `PodSecurity` admission: what a namespace's labels ask of its Pods, and of templates for them.

use crate::{
    audit::Trail,
    kinds::{FieldErrors, FieldPath},
    request::Resource,
    service::ApiServer,
};
use admission::pod_security::{self as standards, Level, LevelVersion, Policy};
use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{Key, Scope};

/// So many Pods are looked at when a namespace asks for more, as upstream.
const MOST: usize = 3000;

/// What the audit log is told: what the namespace enforces, and what violates that which it only notes.
const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const AUDITED: &str = "pod-security.kubernetes.io/audit-violations";

/// Whether a Pod may be; what to warn of, of Pods and of what makes Pods.
pub(super) fn check(
    server: &ApiServer,
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    trail: &Trail,
) -> Result<Vec<String>, String> {
    let info = resource.kind.info();
    let is_pod = info.group.is_empty() && info.kind == "Pod";
    let Some(template) = (if is_pod { Some(object) } else { template(info.group, info.kind, object) }) else {
        return Ok(Vec::new());
    };
    if is_pod && old.is_some_and(|old| images(old) == images(object)) {
        return Ok(Vec::new());
    }
    let policy = policy(server, &resource.namespace);
    let told_of = [policy.warn.level, policy.audit.level];
    let asks = if is_pod { !policy.is_privileged() } else { told_of.iter().any(|level| *level != Level::Privileged) };
    if !asks || (!is_pod && resource.subresource.is_some()) {
        return Ok(Vec::new());
    }
    let Some((meta, spec)) = parts(template) else { return Ok(Vec::new()) };
    let told = |asked: LevelVersion| {
        let found = standards::violations(asked, &meta, &spec);
        (!found.is_empty()).then(|| format!("violate PodSecurity \"{asked}\": {}", standards::in_detail(&found)))
    };
    if is_pod {
        trail.annotate(ENFORCED, policy.enforce.to_string());
    }
    if trail.is_on()
        && let Some(why) = told(policy.audit)
    {
        trail.annotate(AUDITED, format!("would {why}"));
    }
    if is_pod && let Some(why) = told(policy.enforce) {
        return Err(why.replacen("violate", "violates", 1));
    }
    Ok(told(policy.warn).map(|why| format!("would {why}")).into_iter().collect())
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
        let path = FieldPath::new("metadata").child("labels");
        for wrong in &wrong {
            errors.invalid(&path.key(&wrong.label), &json!(wrong.value), wrong.message);
        }
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
        let Some((meta, spec)) = parts(&pod) else { continue };
        let violations = standards::violations(asked, &meta, &spec);
        if !violations.is_empty() {
            found.entry(standards::in_short(&violations)).or_default().push(stored.key.name.to_string());
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

fn policy(server: &ApiServer, namespace: &str) -> Policy {
    let stored = server.store.get(&Key::new("namespaces", "", namespace));
    let object: Value = stored.and_then(|stored| serde_json::from_slice(&stored.data).ok()).unwrap_or_default();
    Policy::of(&labels(&object)).0
}

fn labels(object: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default()
}

fn parts(pod: &Value) -> Option<(ObjectMeta, PodSpec)> {
    let meta = serde_json::from_value(pod["metadata"].clone()).unwrap_or_default();
    Some((meta, serde_json::from_value(pod["spec"].clone()).ok()?))
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
    object.pointer(path).filter(|template| template["spec"].is_object())
}

/// All that a Pod may change that the standards look at: its containers, by their images.
fn images(pod: &Value) -> Vec<(&Value, &Value)> {
    let lists = ["containers", "initContainers", "ephemeralContainers"].map(|list| pod["spec"][list].as_array());
    lists.into_iter().flatten().flatten().map(|c| (&c["name"], &c["image"])).collect()
}
