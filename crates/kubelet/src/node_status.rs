//! Status of the Node object.

use crate::{Shared, deadline::within_deadline, node_conditions, node_shutdown};
use api::resources::{Amounts, is_extended};
use k8s_openapi::{
    api::core::v1::{Node, NodeStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lifecycle::{EventKind, NodePressure};
use runtime::{Handler, Image};
use serde_json::{Value, json};
use std::{cmp::Reverse, collections::BTreeMap};

/// Upstream's `maxNamesPerImageInNodeStatus`.
const NAMES_PER_IMAGE: usize = 5;
/// File of the boot ID, which changes with each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The variable part of the node's status.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeState {
    /// Reason why the runtime or its network is not ready.
    not_ready: Option<String>,
    shutting_down: bool,
    /// Pressure conditions.
    pressures: Vec<NodePressure>,
    runtime_version: String,
    /// Whether the runtime supports `supplementalGroupsPolicy: Strict`.
    supplemental_groups_policy: bool,
    /// Runtime handlers and their features (`status.runtimeHandlers`).
    runtime_handlers: Value,
    images: Value,
    /// Extended resources that other clients added to the node's capacity.
    extended: Extended,
}

impl NodeState {
    /// Observes the node and its runtime.
    pub(crate) async fn observe(shared: &Shared, extended: Extended) -> Self {
        let (not_ready, supplemental_groups_policy, runtime_handlers) = match shared.runtime.status().await {
            Ok(status) => (
                status
                    .runtime_not_ready
                    .or(status.network_not_ready.map(|m| format!("container runtime network not ready: {m}"))),
                status.supplemental_groups_policy,
                runtime_handlers(&status.handlers),
            ),
            // The handlers of before are kept.
            Err(error) => (Some(error.to_string()), false, Value::Null),
        };
        // A runtime that is not ready is not queried further.
        let (version, images) = if not_ready.is_none() {
            (shared.runtime.version().await.ok(), shared.runtime.images().await.unwrap_or_default())
        } else {
            (None, Vec::new())
        };
        Self {
            not_ready,
            shutting_down: shared.shutdown.is_on(),
            pressures: shared.evictions.pressures(),
            runtime_version: version.map(|v| format!("{}://{}", v.name, v.version)).unwrap_or_default(),
            supplemental_groups_policy,
            runtime_handlers,
            images: image_list(images, shared.options.config.node_status_max_images),
            extended,
        }
    }

    /// Whether the runtime and its network are ready.
    pub(crate) fn runs(&self) -> bool {
        self.not_ready.is_none()
    }

    /// Whether the node is Ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.why_not_ready().is_none()
    }

    /// Returns the reasons why the node is not Ready, formatted like Go's aggregated errors.
    fn why_not_ready(&self) -> Option<String> {
        match (&self.not_ready, self.shutting_down) {
            (None, true) => Some(node_shutdown::NOT_READY.to_owned()),
            (Some(message), true) => Some(format!("[{message}, {}]", node_shutdown::NOT_READY)),
            (message, false) => message.clone(),
        }
    }

    pub(crate) async fn write(&self, shared: &Shared) -> Result<(), kube::Error> {
        let api: Api<Node> = Api::all(shared.client.clone());
        let (now, name) = (shared.now(), &shared.options.node_name);
        let old_status = within_deadline(api.get_opt(name)).await?.and_then(|n| n.status).unwrap_or_default();
        let allocatable = allocatable(&shared.node_resources.allocatable, &old_status);
        let previous_boot_id = old_status.node_info.map(|info| info.boot_id).filter(|id| !id.is_empty());
        let previous = old_status.conditions.unwrap_or_default();
        let conditions = node_conditions::conditions(&self.pressures, self.why_not_ready().as_deref());
        let event_reasons = node_conditions::events(&conditions, &previous);
        let stamped = conditions.into_iter().map(|c| node_conditions::set_timestamps(c, &previous, &json!(now)));
        let conditions: Vec<Value> = stamped.collect();
        let swap = shared.evictions.system_stats().memory().map_or(0, |memory| memory.swap_total);
        let mut status = json!({"status": {
            "capacity": quantities(&shared.node_resources.capacity), "allocatable": allocatable,
            "conditions": conditions, "images": self.images,
            "addresses": [{"type": "InternalIP", "address": shared.options.node_ip}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": shared.options.port}},
            "nodeInfo": info(&self.runtime_version, swap),
            "features": {"supplementalGroupsPolicy": self.supplemental_groups_policy},
        }});
        if !self.runtime_handlers.is_null() {
            status["status"]["runtimeHandlers"] = self.runtime_handlers.clone();
        }
        tracing::debug!(not_ready = ?self.why_not_ready(), "node status");
        within_deadline(api.patch_status(name, &PatchParams::default(), &Patch::Merge(status))).await?;
        for reason in event_reasons {
            let message = format!("Node {name} status is now: {reason}");
            shared.recorder.record_node(EventKind::Normal, reason, message);
        }
        let boot_id = read(BOOT_ID);
        if previous_boot_id.is_some_and(|previous| previous != boot_id) {
            let message = format!("Node {name} has been rebooted, boot id: {boot_id}");
            shared.recorder.record_node(EventKind::Warning, "Rebooted", message);
        }
        Ok(())
    }
}

/// Extended resources by name.
pub(crate) type Extended = BTreeMap<String, Quantity>;

/// Returns the extended resources of a node's capacity.
pub(crate) fn extended(status: &NodeStatus) -> Extended {
    let capacity = status.capacity.iter().flatten().filter(|(name, _)| is_extended(name));
    capacity.map(|(name, amount)| (name.clone(), amount.clone())).collect()
}

/// Returns the allocatable resources: the kubelet's, and the extended resources of the capacity. Extended resources
/// that
/// were removed from the capacity are removed from the allocatable, too.
fn allocatable(machine: &Amounts, previous: &NodeStatus) -> Value {
    let mut all = quantities(machine);
    for name in previous.allocatable.iter().flatten().map(|(name, _)| name).filter(|name| is_extended(name)) {
        all[name.as_str()] = Value::Null;
    }
    for (name, amount) in extended(previous) {
        all[name] = json!(amount);
    }
    all
}

fn quantities(amounts: &Amounts) -> Value {
    let text = |name: &str, amount: api::quantity::Amount| match name {
        "memory" | "ephemeral-storage" => amount.to_binary_quantity(),
        name if name.starts_with("hugepages-") => amount.to_binary_quantity(),
        _ => amount.to_quantity(),
    };
    amounts
        .iter()
        .map(|(name, amount)| (name.clone(), json!(text(name, *amount))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns the largest images, limited by `nodeStatusMaxImages`; a negative number means all.
fn image_list(mut images: Vec<Image>, max: i64) -> Value {
    images.sort_by(|a, b| Reverse(a.size).cmp(&Reverse(b.size)).then_with(|| a.id.cmp(&b.id)));
    images.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    let entry = |image: &Image| {
        let names: Vec<&String> = image.digests.iter().chain(&image.tags).take(NAMES_PER_IMAGE).collect();
        json!({"names": names, "sizeBytes": image.size})
    };
    images.iter().map(entry).collect()
}

/// Returns the runtime handlers with their features, sorted by name (upstream's `RuntimeHandlers`).
fn runtime_handlers(handlers: &[Handler]) -> Value {
    let mut sorted: Vec<&Handler> = handlers.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let entry = |handler: &&Handler| {
        let features = json!({
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts, "userNamespaces": handler.user_namespaces,
        });
        json!({"name": handler.name, "features": features})
    };
    if sorted.is_empty() { Value::Null } else { sorted.iter().map(entry).collect() }
}

pub(crate) fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

fn read(path: &str) -> String {
    crate::host_file::read_text(path).unwrap_or_default().trim().to_owned()
}

fn info(runtime_version: &str, swap: u64) -> Value {
    let os = read("/etc/os-release");
    let pretty =
        os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"').to_owned();
    let machine = read("/etc/machine-id");
    // Some machines have no product UUID.
    let system = Some(read("/sys/class/dmi/id/product_uuid")).filter(|id| !id.is_empty());
    let mut info = json!({
        "machineID": machine, "systemUUID": system.unwrap_or_else(|| machine.clone()),
        "bootID": read(BOOT_ID), "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "osImage": pretty, "containerRuntimeVersion": runtime_version, "kubeletVersion": api::KUBERNETES_VERSION,
        "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": architecture(),
    });
    if swap > 0 {
        info["swap"] = json!({"capacity": swap});
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, size: u64) -> Image {
        let (tags, digests) = (vec![format!("{id}:1")], vec![format!("{id}@sha256:0")]);
        Image { id: id.to_owned(), tags, digests, size, uid: None, username: String::new(), pinned: false }
    }

    #[test]
    fn not_ready_reasons_are_combined() {
        let message = |runtime: Option<&str>, shutting_down| {
            let not_ready = runtime.map(str::to_owned);
            let (pressures, runtime_version, images) = (Vec::new(), String::new(), json!([]));
            let extended = Extended::new();
            NodeState {
                not_ready,
                shutting_down,
                pressures,
                runtime_version,
                supplemental_groups_policy: false,
                runtime_handlers: Value::Null,
                images,
                extended,
            }
            .why_not_ready()
        };
        assert_eq!(message(None, false), None);
        assert_eq!(message(Some("no runtime"), false).as_deref(), Some("no runtime"));
        assert_eq!(message(None, true).as_deref(), Some("node is shutting down"));
        assert_eq!(message(Some("no runtime"), true).as_deref(), Some("[no runtime, node is shutting down]"));
    }

    #[test]
    fn runtime_handlers_are_sorted_and_have_features() {
        let handler = |name: &str, recursive| Handler {
            name: name.to_owned(),
            recursive_read_only_mounts: recursive,
            user_namespaces: false,
        };
        let features = |recursive| json!({"recursiveReadOnlyMounts": recursive, "userNamespaces": false});
        let expected = json!([{"name": "", "features": features(true)}, {"name": "runc", "features": features(false)}]);
        assert_eq!(runtime_handlers(&[handler("runc", false), handler("", true)]), expected);
        assert_eq!(runtime_handlers(&[]), Value::Null);
    }

    #[test]
    fn extended_resources_follow_the_capacity() {
        let previous = json!({
            "capacity": {"cpu": "64", "example.com/dongle": "2", "kubernetes.io/batch-cpu": "1"},
            "allocatable": {"cpu": "64", "example.com/gone": "1"},
        });
        let machine = Amounts::from([("cpu".to_owned(), api::quantity::Amount::units(2))]);
        let expected = json!({"cpu": "2", "example.com/dongle": "2", "example.com/gone": null});
        assert_eq!(allocatable(&machine, &serde_json::from_value(previous).unwrap()), expected);
    }

    #[test]
    fn largest_images_are_listed_with_names() {
        let images = || vec![image("a", 1), image("b", 3), image("c", 2)];
        let b = json!({"names": ["b@sha256:0", "b:1"], "sizeBytes": 3});
        let c = json!({"names": ["c@sha256:0", "c:1"], "sizeBytes": 2});
        assert_eq!(image_list(images(), 2), json!([b, c]));
        assert_eq!(image_list(images(), 0), json!([]));
        assert_eq!(image_list(images(), -1).as_array().map(Vec::len), Some(3));
    }
}
