//! Extensions of schemas from markers that are not in `.proto` files, and the kinds of types that all groups share.

use super::schemas::reference;
use serde_json::{Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

/// A type, its discriminator, and its other fields with their discriminator values.
type Union = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Unions (`+union`, `+unionDiscriminator`).
const UNIONS: [Union; 5] = [
    ("core.v1.AppArmorProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    ("core.v1.SeccompProfile", "type", &[("localhostProfile", "LocalhostProfile")]),
    ("flowcontrol.v1.LimitResponse", "type", &[("queuing", "Queuing")]),
    ("flowcontrol.v1.PriorityLevelConfigurationSpec", "type", &[("exempt", "Exempt"), ("limited", "Limited")]),
    ("flowcontrol.v1.Subject", "kind", &[("group", "Group"), ("serviceAccount", "ServiceAccount"), ("user", "User")]),
];

/// Redundant or unused merge markers: type, field, marker, value.
const MERGE_MARKERS: [(&str, &str, &str, &str); 3] = [
    ("api.core.v1.PersistentVolumeClaimStatus", "allocatedResourceStatuses", "map-type", "granular"),
    ("api.core.v1.PersistentVolumeSpec", "claimRef", "map-type", "granular"),
    ("kube-aggregator.pkg.apis.apiregistration.v1.APIServiceSpec", "caBundle", "list-type", "atomic"),
];

/// Types of `meta/v1` that are kinds only of the core group (`Unversioned`).
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Types of `meta/v1` that are kinds of every group and version of upstream's scheme (`AddToGroupVersion`).
const IN_ALL_GROUP_VERSIONS: [&str; 2] = ["DeleteOptions", "WatchEvent"];

/// Groups and versions of upstream's scheme, of which not all are served.
const GROUP_VERSIONS: &str = "/v1 admission.k8s.io/v1 admission.k8s.io/v1beta1 admissionregistration.k8s.io/v1 \
    admissionregistration.k8s.io/v1alpha1 admissionregistration.k8s.io/v1beta1 apiextensions.k8s.io/v1 \
    apiextensions.k8s.io/v1beta1 apiregistration.k8s.io/v1 apiregistration.k8s.io/v1beta1 apps/v1 apps/v1beta1 \
    apps/v1beta2 authentication.k8s.io/v1 authentication.k8s.io/v1alpha1 authentication.k8s.io/v1beta1 \
    authorization.k8s.io/v1 authorization.k8s.io/v1beta1 autoscaling/v1 autoscaling/v2 autoscaling/v2beta1 \
    autoscaling/v2beta2 batch/v1 batch/v1beta1 certificates.k8s.io/v1 certificates.k8s.io/v1alpha1 \
    certificates.k8s.io/v1beta1 coordination.k8s.io/v1 coordination.k8s.io/v1alpha2 coordination.k8s.io/v1beta1 \
    discovery.k8s.io/v1 discovery.k8s.io/v1beta1 events.k8s.io/v1 events.k8s.io/v1beta1 extensions/v1beta1 \
    flowcontrol.apiserver.k8s.io/v1 flowcontrol.apiserver.k8s.io/v1beta1 flowcontrol.apiserver.k8s.io/v1beta2 \
    flowcontrol.apiserver.k8s.io/v1beta3 imagepolicy.k8s.io/v1alpha1 internal.apiserver.k8s.io/v1alpha1 \
    networking.k8s.io/v1 networking.k8s.io/v1beta1 node.k8s.io/v1 node.k8s.io/v1alpha1 node.k8s.io/v1beta1 policy/v1 \
    policy/v1beta1 rbac.authorization.k8s.io/v1 rbac.authorization.k8s.io/v1alpha1 rbac.authorization.k8s.io/v1beta1 \
    resource.k8s.io/v1 resource.k8s.io/v1alpha3 resource.k8s.io/v1beta1 resource.k8s.io/v1beta2 scheduling.k8s.io/v1 \
    scheduling.k8s.io/v1alpha1 scheduling.k8s.io/v1beta1 storage.k8s.io/v1 storage.k8s.io/v1alpha1 \
    storage.k8s.io/v1beta1 storagemigration.k8s.io/v1beta1";

/// Description of `object` in `WatchEvent`.
const OBJECT_DESCRIPTION: &str = "Object is:\n * If Type is Added or Modified: the new state of the object.\n * If Type is Deleted: the state of the object immediately before deletion.\n * If Type is Error: *Status is recommended; other types may make sense\n   depending on context.";

/// Adds the extensions to a schema.
pub(super) fn add(name: &str, schema: &mut Value) {
    let api = name.strip_prefix("io.k8s.api.").unwrap_or_default();
    if let Some((_, discriminator, fields)) = UNIONS.iter().find(|(api_name, _, _)| *api_name == api) {
        let fields: Value = fields.iter().map(|(field, value)| (*field, json!(value))).collect();
        schema["x-kubernetes-unions"] = json!([{"discriminator": discriminator, "fields-to-discriminateBy": fields}]);
    }
    for (_, field, key, value) in
        MERGE_MARKERS.iter().filter(|(schema_name, ..)| name.strip_prefix("io.k8s.") == Some(*schema_name))
    {
        if let Some(property) = schema.pointer_mut(&format!("/properties/{field}")) {
            property[format!("x-kubernetes-{key}")] = json!(value);
        }
    }
    if name == VERSION {
        default_to_empty_strings(schema);
    }
    let Some(kind) = name.strip_prefix(META) else { return };
    if kind == "WatchEvent" {
        *schema = watch_event();
    }
    if UNVERSIONED.contains(&kind) {
        schema["x-kubernetes-group-version-kind"] = json!([{"group": "", "kind": kind, "version": "v1"}]);
    } else if IN_ALL_GROUP_VERSIONS.contains(&kind) {
        let all = GROUP_VERSIONS.split_whitespace().filter_map(|each| each.split_once('/'));
        let all = all.map(|(group, version)| json!({"group": group, "kind": kind, "version": version}));
        schema["x-kubernetes-group-version-kind"] = all.collect();
    }
}

fn watch_event() -> Value {
    let object = json!({"description": OBJECT_DESCRIPTION, "allOf": [reference("io.k8s.apimachinery.pkg.runtime.RawExtension")]});
    json!({
        "description": "Event represents a single event to a watched resource.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {"type": {"type": "string", "default": ""}, "object": object},
    })
}

/// Adds defaults to `version.Info`, which is in no `.proto` file.
fn default_to_empty_strings(schema: &mut Value) {
    for field in schema["required"].as_array().cloned().unwrap_or_default() {
        if let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.as_str().unwrap_or_default())) {
            property["default"] = json!("");
        }
    }
}
