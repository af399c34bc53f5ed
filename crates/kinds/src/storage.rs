//! Kinds of `storage.k8s.io/v1`.

mod csi_driver;
mod storage_class;

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, boolean,
    core::validate_inline,
    defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of, validate_csi_driver_name, validate_nonnegative_quantity},
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
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        forbid_updates(&object, &old, &["parameters", "provisioner", "reclaimPolicy"], errors);
        object.at("volumeBindingMode").validate_immutable(&old.at("volumeBindingMode"), errors);
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
        forbid_updates(&FieldCursor::object(object), &FieldCursor::object(old), &["driverName", "parameters"], errors);
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
        let object = FieldCursor::object(object);
        selector::validate(&object.at("nodeTopology"), errors);
        object.at("storageClassName").validate_text(api::names::dns1123_subdomain, errors);
        validate_nonnegative_quantity(&object.at("capacity"), errors);
    },
    warnings: |object, _| {
        let mut all = Vec::new();
        node_labels::warn_label_selector(&object["nodeTopology"], &FieldPath::new("nodeTopology"), &mut all);
        all
    },
    validate_change: |object, old, errors| {
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        for name in ["nodeTopology", "storageClassName"] {
            object.at(name).validate_immutable(&old.at(name), errors);
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
        let object = FieldCursor::object(object);
        let spec = object.at("spec");
        validate_csi_driver_name(&spec.at("attacher"), errors);
        validate_attachment_source(&spec.at("source"), errors);
        spec.at("nodeName").validate_text(api::names::dns1123_subdomain, errors);
    },
    validate_change: |object, old, errors| {
        FieldCursor::object(object).at("spec").validate_immutable(&FieldCursor::object(old).at("spec"), errors);
    },
    ..GenericKind::new(&KindInfo {
        requires_resource_version: true,
        status: true,
        reset_by_status_update: METADATA_RESET_FOR_STATUS,
        ..KindInfo::cluster_scoped(GROUP, "VolumeAttachment", "volumeattachments", "volumeattachment")
    })
};

fn forbid_updates(object: &FieldCursor<'_, '_>, old: &FieldCursor<'_, '_>, fields: &[&str], errors: &mut FieldErrors) {
    for name in fields {
        let field = object.at(name);
        if field.value() != old.at(name).value() {
            field.forbidden(&format!("updates to {name} are forbidden."), errors);
        }
    }
}

/// Validates the source of a VolumeAttachment (`validateVolumeAttachmentSource`).
fn validate_attachment_source(source: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (name, inline) = (source.at("persistentVolumeName"), source.at("inlineVolumeSpec"));
    match (name.is_set(), inline.is_set()) {
        (false, false) => source.required(one, errors),
        (false, true) => validate_inline(&inline, errors),
        (true, false) if name.text().is_empty() => {
            name.required("must specify non empty persistentVolumeName", errors);
        }
        (true, false) => name.validate_text(api::names::dns1123_subdomain, errors),
        (true, true) => source.forbidden(one, errors),
    }
}

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
