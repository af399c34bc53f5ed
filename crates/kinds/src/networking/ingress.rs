//! Ingress and IngressClass.

mod ingress_class;
mod validate;

use super::GROUP;
use crate::{
    AGE, Cell, FieldErrors, KindInfo, NAME, defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of, validate_ip},
    generic_kind::GenericKind,
    or_none,
    service::validate_hostname,
    text,
};
use serde_json::{Value, json};

pub(crate) static INGRESS: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Class", Cell::OrNone("/spec/ingressClassName")),
        text("Hosts", Cell::Computed(|i, _| json!(hosts_cell(i)))),
        text("Address", Cell::Computed(|i, _| json!(addresses_cell(i)))),
        text(
            "Ports",
            Cell::Computed(|i, _| json!(if items(&i["spec"], "tls").next().is_some() { "80, 443" } else { "80" })),
        ),
        AGE,
    ],
    validate: validate::validate,
    validate_new: validate::validate_new,
    validate_status: |object, _, errors| validate_status(object, errors),
    warnings: |object, old| warnings(object, old.is_none()),
    ..GenericKind::new(&KindInfo {
        short_names: &["ing"],
        status: true,
        generation: true,
        ..KindInfo::namespaced(GROUP, "Ingress", "ingresses", "ingress")
    })
};
/// Validates the load balancer status (`ValidateIngressLoadBalancerStatus`).
fn validate_status(object: &Value, errors: &mut FieldErrors) {
    for ingress in FieldCursor::object(object).at("status").at("loadBalancer").at("ingress").items() {
        let ip = ingress.at("ip");
        if !ip.text().is_empty() {
            validate_ip(&ip, errors);
        }
        validate_hostname(&ingress.at("hostname"), errors);
    }
}

/// Deprecated annotation of the class.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

fn warnings(object: &Value, is_new: bool) -> Vec<String> {
    let is_annotated = is_new && !object["metadata"]["annotations"][CLASS_ANNOTATION].is_null();
    let warning =
        || format!("annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead");
    is_annotated.then(warning).into_iter().collect()
}

pub(crate) static INGRESS_CLASS: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Controller", Cell::Pointer("/spec/controller")),
        text("Parameters", Cell::Computed(|c, _| or_none(&parameters_cell(&c["spec"]["parameters"])))),
        AGE,
    ],
    default: |object| defaulting::set_defaults_at(object, "/spec/parameters", &[("scope", json!("Cluster"))]),
    validate: ingress_class::validate,
    validate_change: |object, old, errors| {
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        object.at("spec").at("controller").validate_immutable(&old.at("spec").at("controller"), errors);
    },
    ..GenericKind::new(&KindInfo {
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "IngressClass", "ingressclasses", "ingressclass")
    })
};
/// Returns the parameters reference as `kind.group/name`.
fn parameters_cell(reference: &Value) -> String {
    let group = reference["apiGroup"].as_str().map(|group| format!(".{group}")).unwrap_or_default();
    match text_of(reference, "name") {
        "" => String::new(),
        name => format!("{}{group}/{name}", text_of(reference, "kind")),
    }
}

fn hosts_cell(ingress: &Value) -> String {
    const MAX_SHOWN: usize = 3;
    let all: Vec<&str> =
        items(&ingress["spec"], "rules").map(|r| text_of(r, "host")).filter(|h| !h.is_empty()).collect();
    match all.len() {
        0 => "*".to_owned(),
        count if count > MAX_SHOWN => format!("{} + {} more...", all[..MAX_SHOWN].join(","), count - MAX_SHOWN),
        _ => all.join(","),
    }
}

fn addresses_cell(ingress: &Value) -> String {
    let one = |i: &Value| match text_of(i, "ip") {
        "" => text_of(i, "hostname").to_owned(),
        ip => ip.to_owned(),
    };
    items(&ingress["status"]["loadBalancer"], "ingress").map(one).collect::<Vec<_>>().join(",")
}
