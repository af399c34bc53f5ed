//! Extensions of schemas from markers of their types, and the kinds of types that all groups share.

use super::{message_name, schemas::reference};
use serde_json::{Map, Value, json};
use wire::protobuf::{
    merge_strategies,
    message_table::{Message, TABLE},
};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";

// Which types of `meta/v1` are kinds of other groups is in upstream's code (`AddToGroupVersion`), not in its types. A test compares
// the number of their kinds with the published document.

/// Types of `meta/v1` that are kinds only of the core group (`Unversioned`).
const UNVERSIONED: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Types of `meta/v1` that are kinds of every group and version of upstream's scheme.
const IN_ALL_GROUP_VERSIONS: [&str; 2] = ["DeleteOptions", "WatchEvent"];

/// Groups and versions of upstream's scheme, of which not all are served.
const GROUP_VERSIONS: &str = include_str!("group_versions.txt");

/// Description of `object` in `WatchEvent`.
const OBJECT_DESCRIPTION: &str = "Object is:\n * If Type is Added or Modified: the new state of the object.\n * If Type is Deleted: the state of the object immediately before deletion.\n * If Type is Error: *Status is recommended; other types may make sense\n   depending on context.";

/// Adds the extensions to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
    add_merge_extensions(name, schema);
    if let Some(message) = message_name(name).and_then(|name| TABLE.message(&name)) {
        add_union(message, schema);
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
        let all = GROUP_VERSIONS.lines().filter(|line| !line.starts_with('#')).filter_map(|each| each.split_once('/'));
        let all = all.map(|(group, version)| json!({"group": group, "kind": kind, "version": version}));
        schema["x-kubernetes-group-version-kind"] = all.collect();
    }
}

/// Adds the extensions of server-side apply and strategic merge patches.
fn add_merge_extensions(name: &str, schema: &mut Value) {
    let Some(message) = merge_strategies::of_schema(name) else { return };
    if message.atomic {
        schema["x-kubernetes-map-type"] = json!("atomic");
    }
    for field in message.fields {
        let Some(property) = schema.pointer_mut(&format!("/properties/{}", field.name)) else { continue };
        if let Some((topology, keys)) = field.apply {
            // A marker of a list can be at a field of bytes, which is a string in JSON.
            let is_list = matches!(property["type"].as_str(), Some("array" | "string"));
            let key = if is_list { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
            property[key] = json!(topology);
            if !keys.is_empty() {
                property["x-kubernetes-list-map-keys"] = json!(keys);
            }
        }
        if let Some((strategy, key)) = field.patch {
            property["x-kubernetes-patch-strategy"] = json!(strategy);
            if let Some(key) = key {
                property["x-kubernetes-patch-merge-key"] = json!(key);
            }
        }
    }
}

/// Adds the extension of a union: the values of its discriminator are the names of the other fields in Go.
fn add_union(message: &Message, schema: &mut Value) {
    let Some(discriminator) = message.union_discriminator else { return };
    let others = message.fields.iter().map(|field| field.name).filter(|name| *name != discriminator);
    let fields: Map<String, Value> = others.map(|name| (name.to_owned(), json!(go_name(name)))).collect();
    schema["x-kubernetes-unions"] = json!([{"discriminator": discriminator, "fields-to-discriminateBy": fields}]);
}

/// Returns the name of a field in Go: `LocalhostProfile` of `localhostProfile`.
fn go_name(json: &str) -> String {
    let mut letters = json.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
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
