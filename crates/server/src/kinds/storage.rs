//! `storage.k8s.io/v1`. Nothing provisions, attaches or publishes yet.

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, boolean,
    checks::{immutable, items, qualified, text as text_of},
    fill,
    info::METADATA,
    integer,
    plain::Plain,
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "storage.k8s.io";

pub(super) static STORAGE_CLASS: Plain = Plain {
    columns: &[
        super::Column { cell: Cell::Of(|c, _| json!(named(c, "storageclass.kubernetes.io/is-default-class"))), ..NAME },
        text("Provisioner", Cell::At("/provisioner")),
        text("ReclaimPolicy", Cell::At("/reclaimPolicy")),
        text("VolumeBindingMode", Cell::At("/volumeBindingMode")),
        boolean("AllowVolumeExpansion", Cell::At("/allowVolumeExpansion")),
        AGE,
    ],
    default: |object| {
        fill::at(object, "", &[("reclaimPolicy", json!("Delete")), ("volumeBindingMode", json!("Immediate"))]);
    },
    validate: storage_class,
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
    validate: |object, errors| required_name(&object["driverName"], &FieldPath::new("driverName"), errors),
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
    validate: |object, errors| {
        let path = FieldPath::new("spec");
        let policies = ["File", "None", "ReadWriteOnceWithFSType"];
        if !policies.contains(&text_of(&object["spec"], "fsGroupPolicy")) {
            errors.not_supported(&path.child("fsGroupPolicy"), &object["spec"]["fsGroupPolicy"], &policies);
        }
        for mode in items(&object["spec"], "volumeLifecycleModes") {
            if !matches!(mode.as_str(), Some("Ephemeral" | "Persistent")) {
                errors.not_supported(&path.child("volumeLifecycleModes"), mode, &["Ephemeral", "Persistent"]);
            }
        }
    },
    validate_change: |object, old, errors| {
        // Upstream's path of attachRequired.
        for (field, name) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            immutable(&object["spec"][field], &old["spec"][field], &FieldPath::new("spec").child(name), errors);
        }
    },
    ..Plain::of(&KindInfo { generation: true, ..KindInfo::of_cluster(GROUP, "CSIDriver", "csidrivers", "csidriver") })
};
pub(super) static CSI_NODE: Plain = Plain {
    columns: &[NAME, integer("Drivers", Cell::Count("/spec/drivers")), AGE],
    validate: |object, errors| {
        for (i, driver) in items(&object["spec"], "drivers").enumerate() {
            let path = FieldPath::new("spec").child("drivers").index(i);
            required_name(&driver["name"], &path.child("name"), errors);
            if text_of(driver, "nodeID").is_empty() {
                errors.required(&path.child("nodeID"), "");
            }
        }
    },
    ..Plain::of(&KindInfo::of_cluster(GROUP, "CSINode", "csinodes", "csinode"))
};
pub(super) static CSI_STORAGE_CAPACITY: Plain = Plain {
    columns: &[
        NAME,
        text("StorageClassName", Cell::At("/storageClassName")),
        text("Capacity", Cell::Of(|c, _| json!(c["capacity"].as_str().unwrap_or("<unset>")))),
    ],
    validate: |object, errors| {
        required_name(&object["storageClassName"], &FieldPath::new("storageClassName"), errors);
    },
    validate_change: |object, old, errors| {
        for field in ["nodeTopology", "storageClassName"] {
            immutable(&object[field], &old[field], &FieldPath::new(field), errors);
        }
    },
    ..Plain::of(&KindInfo::of(GROUP, "CSIStorageCapacity", "csistoragecapacities", "csistoragecapacity"))
};
pub(super) static VOLUME_ATTACHMENT: Plain = Plain {
    columns: &[
        NAME,
        text("Attacher", Cell::At("/spec/attacher")),
        text("PV", Cell::At("/spec/source/persistentVolumeName")),
        text("Node", Cell::At("/spec/nodeName")),
        boolean("Attached", Cell::At("/status/attached")),
        AGE,
    ],
    validate: |object, errors| {
        let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
        required_name(&spec["attacher"], &path.child("attacher"), errors);
        let source = &spec["source"];
        if source["persistentVolumeName"].is_null() && source["inlineVolumeSpec"].is_null() {
            errors.required(
                &path.child("source"),
                "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
            );
        }
        if text_of(spec, "nodeName").is_empty() {
            errors.required(&path.child("nodeName"), "");
        }
    },
    validate_change: |object, old, errors| {
        if object["spec"] != old["spec"] {
            errors.invalid(&FieldPath::new("spec"), &object["spec"], "field is immutable");
        }
    },
    ..Plain::of(&KindInfo {
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

/// The name of a driver or class.
fn required_name(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match name.as_str().unwrap_or("") {
        "" => errors.required(path, ""),
        text => api::names::dns1123_subdomain(text).iter().for_each(|e| errors.invalid(path, name, e)),
    }
}

/// `ValidateStorageClass`.
fn storage_class(object: &Value, errors: &mut FieldErrors) {
    let path = FieldPath::new("provisioner");
    match text_of(object, "provisioner") {
        "" => errors.required(&path, ""),
        text => qualified(&json!(text.to_lowercase()), &path, errors),
    }
    for (field, supported) in
        [("reclaimPolicy", ["Delete", "Retain"]), ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"])]
    {
        if !supported.contains(&text_of(object, field)) {
            errors.not_supported(&FieldPath::new(field), &object[field], &supported);
        }
    }
}
