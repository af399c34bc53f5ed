//! Ingress and IngressClass.

mod class;
mod rules;

use super::GROUP;
use crate::kinds::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{immutable, ip, items, text as text_of},
    fill, or_none,
    plain::Plain,
    service::host_name,
    text,
};
use serde_json::{Value, json};

pub(in crate::kinds) static INGRESS: Plain = Plain {
    columns: &[
        NAME,
        text("Class", Cell::OrNone("/spec/ingressClassName")),
        text("Hosts", Cell::Of(|i, _| json!(hosts(i)))),
        text("Address", Cell::Of(|i, _| json!(addresses(i)))),
        text("Ports", Cell::Of(|i, _| json!(if items(&i["spec"], "tls").next().is_some() { "80, 443" } else { "80" }))),
        AGE,
    ],
    validate: rules::validate,
    validate_new: rules::validate_new,
    validate_status: |object, _, errors| status(object, errors),
    warnings: |object, old| warnings(object, old.is_none()),
    ..Plain::of(&KindInfo {
        short_names: &["ing"],
        status: true,
        generation: true,
        ..KindInfo::of(GROUP, "Ingress", "ingresses", "ingress")
    })
};
/// `ValidateIngressLoadBalancerStatus`.
fn status(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child("loadBalancer").child("ingress");
    for (i, balancer) in items(&object["status"]["loadBalancer"], "ingress").enumerate() {
        let path = path.index(i);
        if !text_of(balancer, "ip").is_empty() {
            ip(&balancer["ip"], &path.child("ip"), errors);
        }
        host_name(balancer, &path, errors);
    }
}

/// The annotation that became a field.
const CLASS: &str = "kubernetes.io/ingress.class";

fn warnings(object: &Value, is_new: bool) -> Vec<String> {
    let is_annotated = is_new && !object["metadata"]["annotations"][CLASS].is_null();
    let told = || format!("annotation {CLASS:?} is deprecated, please use 'spec.ingressClassName' instead");
    is_annotated.then(told).into_iter().collect()
}

pub(in crate::kinds) static INGRESS_CLASS: Plain = Plain {
    columns: &[
        NAME,
        text("Controller", Cell::At("/spec/controller")),
        text("Parameters", Cell::Of(|c, _| or_none(&parameters(&c["spec"]["parameters"])))),
        AGE,
    ],
    default: |object| fill::at(object, "/spec/parameters", &[("scope", json!("Cluster"))]),
    validate: class::validate,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec").child("controller");
        immutable(&object["spec"]["controller"], &old["spec"]["controller"], &path, errors);
    },
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of_cluster(GROUP, "IngressClass", "ingressclasses", "ingressclass")
    })
};
/// `kind.group/name`
fn parameters(reference: &Value) -> String {
    let group = reference["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
    match text_of(reference, "name") {
        "" => String::new(),
        name => format!("{}{group}/{name}", text_of(reference, "kind")),
    }
}

fn hosts(ingress: &Value) -> String {
    const MOST: usize = 3;
    let all: Vec<&str> =
        items(&ingress["spec"], "rules").map(|r| text_of(r, "host")).filter(|h| !h.is_empty()).collect();
    match all.len() {
        0 => "*".to_owned(),
        count if count > MOST => format!("{} + {} more...", all[..MOST].join(","), count - MOST),
        _ => all.join(","),
    }
}

fn addresses(ingress: &Value) -> String {
    let one = |i: &Value| match text_of(i, "ip") {
        "" => text_of(i, "hostname").to_owned(),
        ip => ip.to_owned(),
    };
    items(&ingress["status"]["loadBalancer"], "ingress").map(one).collect::<Vec<_>>().join(",")
}
