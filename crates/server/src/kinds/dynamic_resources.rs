//! `resource.k8s.io/v1`: devices and claims to them. Nothing allocates them yet.

mod claim;
mod device;
mod disabled;
mod parts;
mod slice;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME,
    checks::{immutable, items, text as text_of},
    fill,
    info::METADATA,
    plain::Plain,
    text,
};
use disabled::drop_fields;
use serde_json::{Value, json};

const GROUP: &str = "resource.k8s.io";

pub(super) static DEVICE_CLASS: Plain = Plain {
    prepare: |object, old, _| drop_fields(object, old, disabled::OF_CLASSES),
    validate: claim::class,
    ..Plain::of(&KindInfo {
        generation: true,
        ..KindInfo::of_cluster(GROUP, "DeviceClass", "deviceclasses", "deviceclass")
    })
};
pub(super) static RESOURCE_CLAIM: Plain = Plain {
    columns: &[NAME, text("State", Cell::Of(|c, _| json!(state(c)))), AGE],
    default: |object| default_requests(object, "/spec/devices/requests"),
    prepare: |object, old, _| drop_fields(object, old, disabled::OF_CLAIMS),
    validate_new: |object, errors| claim::spec(&object["spec"], &FieldPath::new("spec"), errors),
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
    prepare: |object, old, _| disabled::drop_fields_of_template(object, old),
    validate_new: |object, errors| {
        claim::spec(&object["spec"]["spec"], &FieldPath::new("spec").child("spec"), errors);
    },
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
    prepare: |object, old, _| drop_fields(object, old, disabled::OF_SLICES),
    validate: slice::validate,
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
    for i in 0..request.pointer(at).map_or(0, |r| items(r, "tolerations").count()) {
        fill::at(request, &format!("{at}/tolerations/{i}"), &[("operator", json!("Equal"))]);
    }
    if request.pointer(at).is_some_and(|r| r["allocationMode"] == "ExactCount") {
        fill::at(request, at, &[("count", json!(1))]);
    }
}
