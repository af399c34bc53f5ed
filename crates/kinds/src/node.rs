//! Node.

use super::{
    Column, FieldErrors, FieldPath, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget, age_cell, column,
    core::validate_resource_quantity,
    enums,
    field_validation::{duplicates, parse_cidr, validate_cidr},
    name_cell,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Node;

static INFO: KindInfo = KindInfo {
    short_names: &["no"],
    namespaced: false,
    status: true,
    subresources: &[Subresource::proxy("NodeProxyOptions")],
    ..KindInfo::core("Node", "nodes", "node")
};

const COLUMNS: &[Column] = &[
    Column { format: "name", ..column("Name", "string", 0) },
    column("Status", "string", 0),
    column("Roles", "string", 0),
    column("Age", "string", 0),
    column("Version", "string", 0),
    column("Internal-IP", "string", 1),
    column("External-IP", "string", 1),
    column("OS-Image", "string", 1),
    column("Kernel-Version", "string", 1),
    column("Container-Runtime", "string", 1),
];

const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";

impl Kind for Node {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn set_defaults(&self, object: &mut Value) {
        if object["spec"]["unschedulable"] == json!(false)
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.remove("unschedulable");
        }
        if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
            sync_pod_cidr_fields(spec);
        }
        // Allocatable defaults to the capacity (`SetDefaults_NodeStatus`).
        if object["status"]["allocatable"].is_null() && object["status"]["capacity"].is_object() {
            object["status"]["allocatable"] = object["status"]["capacity"].clone();
        }
    }

    fn warnings(&self, object: &Value, _old: Option<&Value>) -> Vec<String> {
        spec_warnings(&object["spec"])
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        validate_resources(&object["status"], errors);
        validate_pod_cidrs(&object["spec"], errors);
        let mut seen = BTreeSet::new();
        for (i, taint) in object["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
            let path = FieldPath::new("spec").child("taints").index(i);
            let text = |field: &str| taint[field].as_str().unwrap_or("");
            api::names::qualified_name(text("key"))
                .iter()
                .for_each(|e| errors.invalid(&path.child("key"), &taint["key"], e));
            api::names::label_value(text("value"))
                .iter()
                .for_each(|e| errors.invalid(&path.child("value"), &taint["value"], e));
            match text("effect") {
                "" => errors.required(&path.child("effect"), ""),
                effect if enums::TAINT_EFFECTS.contains(&effect) => {}
                _ => errors.not_supported(&path.child("effect"), &taint["effect"], enums::TAINT_EFFECTS),
            }
            if !seen.insert((text("effect").to_owned(), text("key").to_owned())) {
                errors.duplicate(&path, taint);
            }
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate_create(object, ctx, errors);
        validate_addresses(&object["status"], errors);
        let (path, new, before) = (FieldPath::new("spec"), &object["spec"], &old["spec"]);
        if !pod_cidrs(before).is_empty() && pod_cidrs(new) != pod_cidrs(before) {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(&path.child("podCIDRs"), detail);
        }
        let id = |spec: &Value| spec["providerID"].as_str().unwrap_or("").to_owned();
        if !id(before).is_empty() && id(new) != id(before) {
            let detail = "node updates may not change providerID except from \"\" to valid";
            errors.forbidden(&path.child("providerID"), detail);
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        match ctx.target {
            WriteTarget::Status => object["spec"] = old["spec"].clone(),
            _ => object["status"] = old["status"].clone(),
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        let info = &object["status"]["nodeInfo"];
        let address = |kind: &str| {
            let all = object["status"]["addresses"].as_array();
            let found = all.into_iter().flatten().find(|a| a["type"] == kind);
            found.map_or_else(|| json!("<none>"), |a| a["address"].clone())
        };
        let cells = vec![
            name_cell(object),
            json!(status_cell(object)),
            json!(roles_cell(object)),
            age_cell(object, now),
            info["kubeletVersion"].clone(),
            address("InternalIP"),
            address("ExternalIP"),
            info["osImage"].clone(),
            info["kernelVersion"].clone(),
            info["containerRuntimeVersion"].clone(),
        ];
        Row { cells, conditions: Vec::new() }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["spec.unschedulable"]
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        BTreeMap::from([("spec.unschedulable", (object["spec"]["unschedulable"] == json!(true)).to_string())])
    }
}

/// Returns the Pod CIDRs of a node.
fn pod_cidrs(spec: &Value) -> Vec<&Value> {
    match spec["podCIDRs"].as_array() {
        Some(all) if !all.is_empty() => all.iter().collect(),
        _ => Some(&spec["podCIDR"]).filter(|c| c.as_str().is_some_and(|c| !c.is_empty())).into_iter().collect(),
    }
}

/// Syncs `podCIDR` with the first of `podCIDRs`. If they differ, `podCIDR` wins, as in upstream's conversion
/// (`Convert_v1_NodeSpec_To_core_NodeSpec`).
fn sync_pod_cidr_fields(spec: &mut Value) {
    let pod_cidr = spec["podCIDR"].as_str().filter(|c| !c.is_empty()).map(str::to_owned);
    match (pod_cidr, spec["podCIDRs"][0].as_str().map(str::to_owned)) {
        (Some(pod_cidr), first) if first.as_ref() != Some(&pod_cidr) => spec["podCIDRs"] = json!([pod_cidr]),
        (None, Some(first)) => spec["podCIDR"] = json!(first),
        _ => {}
    }
}

/// Warns of deprecated fields and non-standard CIDRs (`fieldIsDeprecatedWarnings`).
fn spec_warnings(spec: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if !spec["configSource"].is_null() {
        all.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        all.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, network) in pod_cidrs(spec).into_iter().filter_map(Value::as_str).enumerate() {
        all.extend(api::address::cidr_warnings(network, &FieldPath::new("spec").child("podCIDRs").index(i)));
    }
    all
}

fn validate_pod_cidrs(spec: &Value, errors: &mut FieldErrors) {
    let (path, all) = (FieldPath::new("spec").child("podCIDRs"), pod_cidrs(spec));
    for (i, network) in all.iter().enumerate() {
        validate_cidr(network, &path.index(i), errors);
    }
    let families: BTreeSet<bool> = all.iter().filter_map(|c| parse_cidr(c)).map(|(ip, _)| ip.is_ipv4()).collect();
    if all.len() > 2 || all.len() == 2 && families.len() < 2 {
        errors.invalid(&path, &json!(all), "may specify no more than one CIDR for each IP family");
    }
    for (i, network) in duplicates(all) {
        errors.duplicate(&path.index(i), network);
    }
}

/// Validates capacity and allocatable (`ValidateNodeResources`).
fn validate_resources(status: &Value, errors: &mut FieldErrors) {
    for list in ["capacity", "allocatable"] {
        for (name, quantity) in status[list].as_object().into_iter().flatten() {
            validate_resource_quantity(name, quantity, &FieldPath::new("status").child(list).child(name), errors);
        }
    }
}

fn validate_addresses(status: &Value, errors: &mut FieldErrors) {
    let all = status["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, address) in duplicates(all) {
        errors.duplicate(&FieldPath::new("status").child("addresses").index(i), address);
    }
}

fn status_cell(object: &Value) -> String {
    let ready = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut text = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if object["spec"]["unschedulable"] == json!(true) {
        text += ",SchedulingDisabled";
    }
    text
}

fn roles_cell(object: &Value) -> String {
    let labels = object["metadata"]["labels"].as_object();
    let roles: Vec<&str> =
        labels.into_iter().flat_map(|m| m.keys()).filter_map(|k| k.strip_prefix(ROLE_LABEL_PREFIX)).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}
