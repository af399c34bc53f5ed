//! `resource.k8s.io/v1`: devices and claims to them. Nothing allocates them yet.

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME,
    checks::{dns_label, immutable, items, subdomain, text as text_of},
    fill,
    info::METADATA,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "resource.k8s.io";

pub(super) static DEVICE_CLASS: Plain = Plain {
    validate: |object, errors| selectors(&object["spec"], &FieldPath::new("spec"), errors),
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of_cluster(GROUP, "DeviceClass", "deviceclasses", "deviceclass")
    })
};
pub(super) static RESOURCE_CLAIM: Plain = Plain {
    columns: &[NAME, text("State", Cell::Of(|c, _| json!(state(c)))), AGE],
    default: |object| default_requests(object, "/spec/devices/requests"),
    validate: |object, errors| claim(&object["spec"], &FieldPath::new("spec"), errors),
    validate_change: |object, old, errors| {
        immutable(&object["spec"], &old["spec"], &FieldPath::new("spec"), errors);
    },
    ..Plain::of(&KindInfo {
        status: true,
        kept_by_status: METADATA,
        ..KindInfo::of(GROUP, "ResourceClaim", "resourceclaims", "resourceclaim")
    })
};
pub(super) static RESOURCE_CLAIM_TEMPLATE: Plain = Plain {
    default: |object| default_requests(object, "/spec/spec/devices/requests"),
    validate: |object, errors| claim(&object["spec"]["spec"], &FieldPath::new("spec").child("spec"), errors),
    validate_change: |object, old, errors| {
        immutable(&object["spec"], &old["spec"], &FieldPath::new("spec"), errors);
    },
    ..Plain::of(&KindInfo::of(GROUP, "ResourceClaimTemplate", "resourceclaimtemplates", "resourceclaimtemplate"))
};
pub(super) static RESOURCE_SLICE: Plain = Plain {
    columns: &[
        NAME,
        text("Node", Cell::Of(|s, _| json!(node(&s["spec"])))),
        text("Driver", Cell::At("/spec/driver")),
        text("Pool", Cell::At("/spec/pool/name")),
        AGE,
    ],
    fields: &["spec.nodeName", "spec.driver"],
    validate: slice,
    validate_change: |object, old, errors| {
        let path = FieldPath::new("spec");
        for field in ["driver", "nodeName"] {
            immutable(&object["spec"][field], &old["spec"][field], &path.child(field), errors);
        }
        let at = path.child("pool").child("name");
        immutable(&object["spec"]["pool"]["name"], &old["spec"]["pool"]["name"], &at, errors);
    },
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of_cluster(GROUP, "ResourceSlice", "resourceslices", "resourceslice")
    })
};

/// `allocated,reserved`, as `printResourceClaim` has it.
fn state(claim: &Value) -> String {
    let mut states = Vec::new();
    if !claim["metadata"]["deletionTimestamp"].is_null() {
        states.push("deleted");
    }
    if claim["status"]["allocation"].is_null() {
        if claim["metadata"]["deletionTimestamp"].is_null() {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if items(&claim["status"], "reservedFor").next().is_some() {
            states.push("reserved");
        }
    }
    states.join(",")
}

fn node(spec: &Value) -> &str {
    match text_of(spec, "nodeName") {
        "" if spec["allNodes"] == json!(true) => "<all>",
        "" => "",
        name => name,
    }
}

/// `SetDefaults_ExactDeviceRequest`.
fn default_requests(object: &mut Value, pointer: &str) {
    for request in object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten() {
        default_count(request, "/exactly");
        for i in 0..items(request, "firstAvailable").count() {
            default_count(request, &format!("/firstAvailable/{i}"));
        }
    }
}

fn default_count(request: &mut Value, at: &str) {
    fill::at(request, at, &[("allocationMode", json!("ExactCount"))]);
    if request.pointer(at).is_some_and(|r| r["allocationMode"] == "ExactCount") {
        fill::at(request, at, &[("count", json!(1))]);
    }
}

fn selectors(holder: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (i, selector) in items(holder, "selectors").enumerate() {
        let path = path.child("selectors").index(i);
        if selector["cel"].is_null() {
            errors.required(&path.child("cel"), "");
        } else if text_of(&selector["cel"], "expression").is_empty() {
            errors.required(&path.child("cel").child("expression"), "");
        }
    }
}

/// `validateResourceClaimSpec`.
fn claim(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("devices").child("requests");
    for (i, request) in items(&spec["devices"], "requests").enumerate() {
        let path = path.index(i);
        match text_of(request, "name") {
            "" => errors.required(&path.child("name"), ""),
            _ => dns_label(&request["name"], &path.child("name"), errors),
        }
        let (exactly, several) = (&request["exactly"], items(request, "firstAvailable").count());
        match (exactly.is_null(), several) {
            (true, 0) => errors.required(&path, "exactly one of `exactly` or `firstAvailable` is required"),
            (false, n) if n > 0 => {
                errors.invalid(
                    &path,
                    &json!("{`exactly`, `firstAvailable`}"),
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
                );
            }
            (false, _) => device(exactly, &path.child("exactly"), errors),
            (true, _) => {
                for (j, one) in items(request, "firstAvailable").enumerate() {
                    device(one, &path.child("firstAvailable").index(j), errors);
                }
            }
        }
    }
}

fn device(request: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match text_of(request, "deviceClassName") {
        "" => errors.required(&path.child("deviceClassName"), ""),
        _ => subdomain(&request["deviceClassName"], &path.child("deviceClassName"), errors),
    }
    let (mode, count) = (text_of(request, "allocationMode"), &request["count"]);
    match mode {
        "All" if !count.is_null() => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.invalid(&path.child("count"), count, why);
        }
        "ExactCount" if count.as_i64().is_none_or(|n| n <= 0) => {
            errors.invalid(&path.child("count"), count, "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        _ => errors.not_supported(&path.child("allocationMode"), &request["allocationMode"], &["All", "ExactCount"]),
    }
    selectors(request, path, errors);
}

/// `validateResourceSliceSpec`.
fn slice(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    match text_of(spec, "driver") {
        "" => errors.required(&path.child("driver"), ""),
        _ => subdomain(&spec["driver"], &path.child("driver"), errors),
    }
    if text_of(&spec["pool"], "name").is_empty() {
        errors.required(&path.child("pool").child("name"), "");
    }
    let places = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
    let is_set = |field: &&str| !matches!(&spec[*field], Value::Null | Value::Bool(false)) && spec[*field] != "";
    let named: Vec<String> = places.iter().filter(|f| is_set(f)).map(|f| format!("`{f}`")).collect();
    match named.len() {
        0 => errors.required(
            &path,
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        1 => {}
        _ => {
            let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set";
            errors.invalid(&path, &json!(format!("{{{}}}", named.join(", "))), why);
        }
    }
}
