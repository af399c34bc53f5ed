//! Kinds of `storage.k8s.io/v1`.

mod csi_driver;
mod storage_class;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME, boolean,
    core::validate_inline,
    defaulting,
    field_validation::{
        items, text as text_of, validate_csi_driver_name, validate_dns_subdomain, validate_immutable,
        validate_nonnegative_quantity,
    },
    generic_kind::GenericKind,
    integer,
    kind_info::METADATA_RESET_FOR_STATUS,
    node_labels, selector, text,
};
use serde_json::{Value, json};

const GROUP: &str = "storage.k8s.io";

pub(super) static STORAGE_CLASS: GenericKind = GenericKind {
    columns: &[
        super::Column {
            cell: Cell::Computed(|c, _| {
                json!(name_with_default_cell(c, "storageclass.kubernetes.io/is-default-class"))
            }),
            ..NAME
        },
        text("Provisioner", Cell::Pointer("/provisioner")),
        text("ReclaimPolicy", Cell::Pointer("/reclaimPolicy")),
        text("VolumeBindingMode", Cell::Pointer("/volumeBindingMode")),
        text("AllowVolumeExpansion", Cell::Computed(|c, _| json!(c["allowVolumeExpansion"] == true))),
        AGE,
    ],
    default: |object| {
        defaulting::set_defaults_at(
            object,
            "",
            &[("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))],
        );
    },
    validate: storage_class::validate_storage_class,
    warnings: |object, _| storage_class::warnings(object),
    validate_change: |object, old, errors| {
        if object["parameters"] != old["parameters"] {
            errors.forbidden(&FieldPath::new("parameters"), "updates to parameters are forbidden.");
        }
        for field in ["provisioner", "reclaimPolicy"] {
            if object[field] != old[field] {
                errors.forbidden(&FieldPath::new(field), &format!("updates to {field} are forbidden."));
            }
        }
        let path = FieldPath::new("volumeBindingMode");
        validate_immutable(&object["volumeBindingMode"], &old["volumeBindingMode"], &path, errors);
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["sc"],
        ..KindInfo::cluster_scoped(GROUP, "StorageClass", "storageclasses", "storageclass")
    })
};
pub(super) static VOLUME_ATTRIBUTES_CLASS: GenericKind = GenericKind {
    columns: &[
        super::Column {
            cell: Cell::Computed(|c, _| {
                json!(name_with_default_cell(c, "storageclass.kubernetes.io/is-default-class"))
            }),
            ..NAME
        },
        text("DriverName", Cell::Pointer("/driverName")),
        AGE,
    ],
    validate: storage_class::validate_volume_attributes_class,
    validate_change: |object, old, errors| {
        for field in ["driverName", "parameters"] {
            if object[field] != old[field] {
                errors.forbidden(&FieldPath::new(field), &format!("updates to {field} are forbidden."));
            }
        }
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["vac"],
        ..KindInfo::cluster_scoped(GROUP, "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
    })
};
pub(super) static CSI_DRIVER: GenericKind = GenericKind {
    columns: &[
        NAME,
        boolean("AttachRequired", Cell::Pointer("/spec/attachRequired")),
        boolean("PodInfoOnMount", Cell::Pointer("/spec/podInfoOnMount")),
        boolean("StorageCapacity", Cell::Pointer("/spec/storageCapacity")),
        text("TokenRequests", Cell::Computed(|d, _| json!(audiences_cell(d)))),
        boolean("RequiresRepublish", Cell::Pointer("/spec/requiresRepublish")),
        text("Modes", Cell::Computed(|d, _| json!(lifecycle_modes_cell(d)))),
        AGE,
    ],
    default: |object| {
        let values = [
            ("attachRequired", json!(true)),
            ("podInfoOnMount", json!(false)),
            ("storageCapacity", json!(false)),
            ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
            ("requiresRepublish", json!(false)),
            ("seLinuxMount", json!(false)),
            ("volumeLifecycleModes", json!(["Persistent"])),
        ];
        defaulting::set_defaults_at(object, "/spec", &values);
    },
    validate: csi_driver::validate_csi_driver,
    validate_change: csi_driver::validate_csi_driver_update,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        generation: true,
        ..KindInfo::cluster_scoped(GROUP, "CSIDriver", "csidrivers", "csidriver")
    })
};
pub(super) static CSI_NODE: GenericKind = GenericKind {
    columns: &[NAME, integer("Drivers", Cell::Count("/spec/drivers")), AGE],
    validate: csi_driver::validate_csi_node,
    validate_change: csi_driver::validate_csi_node_update,
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        ..KindInfo::cluster_scoped(GROUP, "CSINode", "csinodes", "csinode")
    })
};
pub(super) static CSI_STORAGE_CAPACITY: GenericKind = GenericKind {
    columns: &[
        NAME,
        // Upstream has no printer for this kind (`rest.NewDefaultTableConvertor`).
        super::Column { kind: "date", ..text("Created At", Cell::Pointer("/metadata/creationTimestamp")) },
    ],
    validate: |object, errors| {
        selector::validate(&object["nodeTopology"], &FieldPath::new("nodeTopology"), errors);
        validate_dns_subdomain(
            &json!(text_of(object, "storageClassName")),
            &FieldPath::new("storageClassName"),
            errors,
        );
        validate_nonnegative_quantity(&object["capacity"], &FieldPath::new("capacity"), errors);
    },
    warnings: |object, _| {
        let mut all = Vec::new();
        node_labels::warn_label_selector(&object["nodeTopology"], &FieldPath::new("nodeTopology"), &mut all);
        all
    },
    validate_change: |object, old, errors| {
        for field in ["nodeTopology", "storageClassName"] {
            validate_immutable(&object[field], &old[field], &FieldPath::new(field), errors);
        }
    },
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        ..KindInfo::namespaced(GROUP, "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
    })
};
pub(super) static VOLUME_ATTACHMENT: GenericKind = GenericKind {
    columns: &[
        NAME,
        super::Column { format: "name", ..text("Attacher", Cell::Pointer("/spec/attacher")) },
        text("PV", Cell::Pointer("/spec/source/persistentVolumeName")),
        text("Node", Cell::Pointer("/spec/nodeName")),
        boolean("Attached", Cell::Pointer("/status/attached")),
        AGE,
    ],
    validate: |object, errors| {
        let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
        validate_csi_driver_name(&spec["attacher"], &path.child("attacher"), errors);
        let (at, source) = (path.child("source"), &spec["source"]);
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (&source["persistentVolumeName"], &source["inlineVolumeSpec"]) {
            (Value::Null, Value::Null) => errors.required(&at, one),
            (Value::Null, inline) => validate_inline(inline, &at.child("inlineVolumeSpec"), errors),
            (name, Value::Null) if name == "" => {
                errors.required(&at.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
            }
            (name, Value::Null) => validate_dns_subdomain(name, &at.child("persistentVolumeName"), errors),
            _ => errors.forbidden(&at, one),
        }
        validate_dns_subdomain(&json!(text_of(spec, "nodeName")), &path.child("nodeName"), errors);
    },
    validate_change: |object, old, errors| {
        if object["spec"] != old["spec"] {
            errors.invalid(&FieldPath::new("spec"), &object["spec"], "field is immutable");
        }
    },
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        ..KindInfo::cluster_scoped(GROUP, "VolumeAttachment", "volumeattachments", "volumeattachment")
    })
};

/// Returns the name of a class, marked if it is the default.
fn name_with_default_cell(class: &Value, annotation: &str) -> String {
    let default = class["metadata"]["annotations"][annotation] == "true";
    format!("{}{}", text_of(&class["metadata"], "name"), if default { " (default)" } else { "" })
}

fn audiences_cell(driver: &Value) -> String {
    let all: Vec<&str> = items(&driver["spec"], "tokenRequests").map(|t| text_of(t, "audience")).collect();
    if all.is_empty() { "<unset>".to_owned() } else { all.join(",") }
}

fn lifecycle_modes_cell(driver: &Value) -> String {
    let all: Vec<&str> = items(&driver["spec"], "volumeLifecycleModes").filter_map(Value::as_str).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}
