//! `storage.k8s.io/v1`. Volumes are made by the controllers; nothing attaches or publishes yet.

mod class;
mod driver;

use super::{
    AGE, Cell, FieldPath, KindInfo, NAME, boolean,
    checks::{csi_driver_name, immutable, items, not_negative_quantity, subdomain, text as text_of},
    core::validate_inline,
    fill,
    info::METADATA,
    integer, node_labels,
    plain::Plain,
    selector, text,
};
use serde_json::{Value, json};

const GROUP: &str = "storage.k8s.io";

pub(super) static STORAGE_CLASS: Plain = Plain {
    columns: &[
        super::Column { cell: Cell::Of(|c, _| json!(named(c, "storageclass.kubernetes.io/is-default-class"))), ..NAME },
        text("Provisioner", Cell::At("/provisioner")),
        text("ReclaimPolicy", Cell::At("/reclaimPolicy")),
        text("VolumeBindingMode", Cell::At("/volumeBindingMode")),
        text("AllowVolumeExpansion", Cell::Of(|c, _| json!(c["allowVolumeExpansion"] == true))),
        AGE,
    ],
    default: |object| {
        fill::at(object, "", &[("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))]);
    },
    validate: class::storage,
    warnings: |object, _| class::warnings(object),
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
        immutable(&object["volumeBindingMode"], &old["volumeBindingMode"], &path, errors);
    },
    ..Plain::of(&KindInfo {
        short_names: &["sc"],
        ..KindInfo::of_cluster(GROUP, "StorageClass", "storageclasses", "storageclass")
    })
};
pub(super) static VOLUME_ATTRIBUTES_CLASS: Plain = Plain {
    columns: &[
        super::Column { cell: Cell::Of(|c, _| json!(named(c, "storageclass.kubernetes.io/is-default-class"))), ..NAME },
        text("DriverName", Cell::At("/driverName")),
        AGE,
    ],
    validate: class::attributes,
    validate_change: |object, old, errors| {
        for field in ["driverName", "parameters"] {
            if object[field] != old[field] {
                errors.forbidden(&FieldPath::new(field), &format!("updates to {field} are forbidden."));
            }
        }
    },
    ..Plain::of(&KindInfo {
        short_names: &["vac"],
        ..KindInfo::of_cluster(GROUP, "VolumeAttributesClass", "volumeattributesclasses", "volumeattributesclass")
    })
};
pub(super) static CSI_DRIVER: Plain = Plain {
    columns: &[
        NAME,
        boolean("AttachRequired", Cell::At("/spec/attachRequired")),
        boolean("PodInfoOnMount", Cell::At("/spec/podInfoOnMount")),
        boolean("StorageCapacity", Cell::At("/spec/storageCapacity")),
        text("TokenRequests", Cell::Of(|d, _| json!(audiences(d)))),
        boolean("RequiresRepublish", Cell::At("/spec/requiresRepublish")),
        text("Modes", Cell::Of(|d, _| json!(modes(d)))),
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
        fill::at(object, "/spec", &values);
    },
    validate: driver::validate,
    validate_change: driver::validate_change,
    ..Plain::of(&KindInfo {
        needs_version: true,
        generation: true,
        ..KindInfo::of_cluster(GROUP, "CSIDriver", "csidrivers", "csidriver")
    })
};
pub(super) static CSI_NODE: Plain = Plain {
    columns: &[NAME, integer("Drivers", Cell::Count("/spec/drivers")), AGE],
    validate: driver::validate_node,
    validate_change: driver::validate_node_change,
    ..Plain::of(&KindInfo { needs_version: true, ..KindInfo::of_cluster(GROUP, "CSINode", "csinodes", "csinode") })
};
pub(super) static CSI_STORAGE_CAPACITY: Plain = Plain {
    columns: &[
        NAME,
        // Its storage has no printer upstream, and shows what any object has.
        super::Column { kind: "date", ..text("Created At", Cell::At("/metadata/creationTimestamp")) },
    ],
    validate: |object, errors| {
        selector::validate(&object["nodeTopology"], &FieldPath::new("nodeTopology"), errors);
        subdomain(&json!(text_of(object, "storageClassName")), &FieldPath::new("storageClassName"), errors);
        not_negative_quantity(&object["capacity"], &FieldPath::new("capacity"), errors);
    },
    warnings: |object, _| {
        let mut all = Vec::new();
        node_labels::of_selector(&object["nodeTopology"], &FieldPath::new("nodeTopology"), &mut all);
        all
    },
    validate_change: |object, old, errors| {
        for field in ["nodeTopology", "storageClassName"] {
            immutable(&object[field], &old[field], &FieldPath::new(field), errors);
        }
    },
    ..Plain::of(&KindInfo {
        needs_version: true,
        ..KindInfo::of(GROUP, "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity")
    })
};
pub(super) static VOLUME_ATTACHMENT: Plain = Plain {
    columns: &[
        NAME,
        super::Column { format: "name", ..text("Attacher", Cell::At("/spec/attacher")) },
        text("PV", Cell::At("/spec/source/persistentVolumeName")),
        text("Node", Cell::At("/spec/nodeName")),
        boolean("Attached", Cell::At("/status/attached")),
        AGE,
    ],
    validate: |object, errors| {
        let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
        csi_driver_name(&spec["attacher"], &path.child("attacher"), errors);
        let (at, source) = (path.child("source"), &spec["source"]);
        let one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (&source["persistentVolumeName"], &source["inlineVolumeSpec"]) {
            (Value::Null, Value::Null) => errors.required(&at, one),
            (Value::Null, inline) => validate_inline(inline, &at.child("inlineVolumeSpec"), errors),
            (name, Value::Null) if name == "" => {
                errors.required(&at.child("persistentVolumeName"), "must specify non empty persistentVolumeName");
            }
            (name, Value::Null) => subdomain(name, &at.child("persistentVolumeName"), errors),
            _ => errors.forbidden(&at, one),
        }
        subdomain(&json!(text_of(spec, "nodeName")), &path.child("nodeName"), errors);
    },
    validate_change: |object, old, errors| {
        if object["spec"] != old["spec"] {
            errors.invalid(&FieldPath::new("spec"), &object["spec"], "field is immutable");
        }
    },
    ..Plain::of(&KindInfo {
        needs_version: true,
        status: true,
        kept_by_status: METADATA,
        ..KindInfo::of_cluster(GROUP, "VolumeAttachment", "volumeattachments", "volumeattachment")
    })
};

/// The name, and whether it is the one for all that name none.
fn named(class: &Value, annotation: &str) -> String {
    let default = class["metadata"]["annotations"][annotation] == "true";
    format!("{}{}", text_of(&class["metadata"], "name"), if default { " (default)" } else { "" })
}

fn audiences(driver: &Value) -> String {
    let all: Vec<&str> = items(&driver["spec"], "tokenRequests").map(|t| text_of(t, "audience")).collect();
    if all.is_empty() { "<unset>".to_owned() } else { all.join(",") }
}

fn modes(driver: &Value) -> String {
    let all: Vec<&str> = items(&driver["spec"], "volumeLifecycleModes").filter_map(Value::as_str).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}
