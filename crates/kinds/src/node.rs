//! Node.

use super::{
    Column, FieldErrors, FieldPath, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget, age_cell, column,
    core::validate_resource_quantity,
    enums,
    field_cursor::FieldCursor,
    field_validation::{parse_cidr, validate_cidr},
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
        let object = FieldCursor::object(object);
        let spec = object.at("spec");
        validate_resources(&object.at("status"), errors);
        validate_pod_cidrs(&spec, errors);
        let mut seen = BTreeSet::new();
        for taint in spec.at("taints").items() {
            let (key, effect) = (taint.at("key"), taint.at("effect"));
            key.validate_text(api::names::qualified_name, errors);
            taint.at("value").validate_text(api::names::label_value, errors);
            effect.one_of(enums::TAINT_EFFECTS, errors);
            if !seen.insert((effect.text(), key.text())) {
                taint.duplicate(errors);
            }
        }
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate_create(object, ctx, errors);
        let (object, old) = (FieldCursor::object(object), FieldCursor::object(old));
        validate_addresses(&object.at("status"), errors);
        let (spec, before) = (object.at("spec"), old.at("spec"));
        let old_cidrs = pod_cidrs(before.value());
        if !old_cidrs.is_empty() && pod_cidrs(spec.value()) != old_cidrs {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            spec.at("podCIDRs").forbidden(detail, errors);
        }
        let (id, old_id) = (spec.at("providerID"), before.at("providerID"));
        if !old_id.text().is_empty() && id.text() != old_id.text() {
            let detail = "node updates may not change providerID except from \"\" to valid";
            id.forbidden(detail, errors);
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

fn validate_pod_cidrs(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (field, single) = (spec.at("podCIDRs"), spec.at("podCIDR"));
    let list = (field.count() == 0 && !single.text().is_empty()).then(|| json!([single.value()]));
    let cidrs = list.as_ref().map_or(field, |list| field.with_value(list));
    cidrs.items().for_each(|network| validate_cidr(&network, errors));
    let families: BTreeSet<bool> =
        cidrs.items().filter_map(|cidr| parse_cidr(cidr.value())).map(|(ip, _)| ip.is_ipv4()).collect();
    if cidrs.count() > 2 || cidrs.count() == 2 && families.len() < 2 {
        cidrs.invalid("may specify no more than one CIDR for each IP family", errors);
    }
    cidrs.duplicates().for_each(|network| network.duplicate(errors));
}

/// Validates capacity and allocatable (`ValidateNodeResources`).
fn validate_resources(status: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    for list in [status.at("capacity"), status.at("allocatable")] {
        for (name, _) in list.entries() {
            // Upstream's path has the resource like a field.
            validate_resource_quantity(name, &list.at(name), errors);
        }
    }
}

fn validate_addresses(status: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    status.at("addresses").duplicates().for_each(|address| address.duplicate(errors));
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
