//! Kinds of `resource.k8s.io/v1` (dynamic resource allocation).

mod disabled_fields;
mod field_validation;
mod validate_claim;
mod validate_device;
mod validate_slice;

use super::{
    AGE, Cell, KindInfo, NAME, defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    generic_kind::GenericKind,
    kind_info::METADATA_RESET_FOR_STATUS,
    text,
};
use disabled_fields::drop_fields;
use serde_json::{Value, json};

const GROUP: &str = "resource.k8s.io";

pub(super) static DEVICE_CLASS: GenericKind = GenericKind {
    prepare: |object, old, _| drop_fields(object, old, disabled_fields::DEVICE_CLASS_FEATURES),
    validate: validate_claim::validate_device_class,
    ..GenericKind::new(&KindInfo {
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "DeviceClass", "deviceclasses", "deviceclass")
    })
};
pub(super) static RESOURCE_CLAIM: GenericKind = GenericKind {
    columns: &[NAME, text("State", Cell::Computed(|c, _| json!(state_cell(c)))), AGE],
    default: |object| set_request_defaults(object, "/spec/devices/requests"),
    prepare: |object, old, _| drop_fields(object, old, disabled_fields::RESOURCE_CLAIM_FEATURES),
    validate_new: |object, errors| {
        validate_claim::validate_claim_spec(&FieldCursor::object(object).at("spec"), errors);
    },
    validate_change: |object, old, errors| {
        FieldCursor::object(object).at("spec").validate_immutable(&FieldCursor::object(old).at("spec"), errors);
    },
    ..GenericKind::new(&KindInfo {
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        ..KindInfo::namespaced(GROUP, "ResourceClaim", "resourceclaims", "resourceclaim")
    })
};
pub(super) static RESOURCE_CLAIM_TEMPLATE: GenericKind = GenericKind {
    default: |object| set_request_defaults(object, "/spec/spec/devices/requests"),
    prepare: |object, old, _| disabled_fields::drop_template_fields(object, old),
    validate_new: |object, errors| {
        validate_claim::validate_claim_spec(&FieldCursor::object(object).at("spec").at("spec"), errors);
    },
    validate_change: |object, old, errors| {
        FieldCursor::object(object).at("spec").validate_immutable(&FieldCursor::object(old).at("spec"), errors);
    },
    ..GenericKind::new(&KindInfo::namespaced(
        GROUP,
        "ResourceClaimTemplate",
        "resourceclaimtemplates",
        "resourceclaimtemplate",
    ))
};
pub(super) static RESOURCE_SLICE: GenericKind = GenericKind {
    columns: &[
        NAME,
        text("Node", Cell::Computed(|s, _| json!(node_cell(&s["spec"])))),
        text("Driver", Cell::Pointer("/spec/driver")),
        text("Pool", Cell::Pointer("/spec/pool/name")),
        AGE,
    ],
    fields: &["spec.nodeName", "spec.driver"],
    prepare: |object, old, _| drop_fields(object, old, disabled_fields::RESOURCE_SLICE_FEATURES),
    validate: validate_slice::validate,
    validate_change: |object, old, errors| {
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        let (spec, old) = (object.at("spec"), old.at("spec"));
        for name in ["driver", "nodeName"] {
            spec.at(name).validate_immutable(&old.at(name), errors);
        }
        spec.at("pool").at("name").validate_immutable(&old.at("pool").at("name"), errors);
    },
    ..GenericKind::new(&KindInfo {
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "ResourceSlice", "resourceslices", "resourceslice")
    })
};

/// Returns the state cell, for example `allocated,reserved` (`printResourceClaim`).
fn state_cell(claim: &Value) -> String {
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

fn node_cell(spec: &Value) -> &str {
    match text_of(spec, "nodeName") {
        "" if spec["allNodes"] == json!(true) => "<all>",
        "" => "",
        name => name,
    }
}

/// Sets the defaults of device requests (`SetDefaults_ExactDeviceRequest`).
fn set_request_defaults(object: &mut Value, pointer: &str) {
    for request in object.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten() {
        set_exact_request_defaults(request, "/exactly");
        for i in 0..items(request, "firstAvailable").count() {
            set_exact_request_defaults(request, &format!("/firstAvailable/{i}"));
        }
    }
}

fn set_exact_request_defaults(request: &mut Value, at: &str) {
    defaulting::set_defaults_at(request, at, &[("allocationMode", json!("ExactCount"))]);
    for i in 0..request.pointer(at).map_or(0, |r| items(r, "tolerations").count()) {
        defaulting::set_defaults_at(request, &format!("{at}/tolerations/{i}"), &[("operator", json!("Equal"))]);
    }
    if request.pointer(at).is_some_and(|r| r["allocationMode"] == "ExactCount") {
        defaulting::set_defaults_at(request, at, &[("count", json!(1))]);
    }
}
