//! The node: registered once, kept alive by its Lease, its status written when it changes.

use crate::Shared;
use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Upstream's renewal of a 40 s Lease.
const RENEW: Duration = Duration::from_secs(10);
/// Upstream's `nodeStatusReportFrequency`: an unchanged status is written this often.
const REPORT: u32 = 30;
const RETRY: Duration = Duration::from_millis(200);

pub(crate) async fn run(shared: &Shared) {
    while !shared.stop.is_cancelled() {
        match register(shared).await {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "the node could not be registered; trying again"),
        }
        tokio::time::sleep(RETRY).await;
    }
    let (mut beat, mut ready) = (0u32, None);
    loop {
        let now_ready = not_ready_reason(shared).await;
        if ready.as_ref() != Some(&now_ready) || beat % REPORT == 0 {
            match report(shared, now_ready.as_deref(), ready.as_ref() != Some(&now_ready)).await {
                Ok(()) => ready = Some(now_ready.clone()),
                Err(error) => tracing::warn!(%error, "the node's status was not taken"),
            }
        }
        if (beat == 0 || now_ready.is_none())
            && let Err(error) = renew(shared).await
        {
            tracing::warn!(%error, "the node's Lease was not renewed");
        }
        beat = beat.wrapping_add(1);
        // A node that is not ready looks again soon: its runtime may come up any moment.
        let pause = if now_ready.is_some() { RETRY } else { RENEW };
        if shared.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}

async fn not_ready_reason(shared: &Shared) -> Option<String> {
    match shared.runtime.status().await {
        Ok(status) => status
            .runtime_not_ready
            .or(status.network_not_ready.map(|m| format!("container runtime network not ready: {m}"))),
        Err(error) => Some(error.to_string()),
    }
}

async fn register(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let name = &shared.options.node_name;
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch,
    });
    let mut node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
    if let Some(cidr) = &shared.options.pod_cidr {
        node["spec"] = json!({"podCIDR": cidr, "podCIDRs": [cidr]});
    }
    let node: Node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &node).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        Err(e) => Err(e),
    }
}

async fn report(shared: &Shared, not_ready: Option<&str>, changed: bool) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(shared.client.clone());
    let now = Timestamp::now();
    let version = shared.runtime.version().await.map(|v| format!("{}://{}", v.name, v.version)).unwrap_or_default();
    let known = api.get_opt(&shared.options.node_name).await?;
    let since = |kind: &str, status: &str| -> Value {
        let all = known.iter().filter_map(|n| n.status.as_ref()).flat_map(|s| s.conditions.iter().flatten());
        let same = all.into_iter().find(|c| c.type_ == kind && c.status == status);
        same.and_then(|c| c.last_transition_time.as_ref()).map_or_else(|| json!(now), |t| json!(t))
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message,
               "lastHeartbeatTime": now, "lastTransitionTime": since(kind, status)})
    };
    let ready = match not_ready {
        None => condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        Some(why) => condition("Ready", "False", "KubeletNotReady", why),
    };
    let conditions = [
        condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ready,
    ];
    let resources = resources(shared);
    let status = json!({"status": {
        "capacity": resources, "allocatable": resources, "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": shared.options.node_ip}, {"type": "Hostname", "address": shared.options.node_name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": info(&version),
    }});
    tracing::debug!(changed, ?not_ready, "node status");
    api.patch_status(&shared.options.node_name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn resources(shared: &Shared) -> Value {
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let disk =
        nix::sys::statvfs::statvfs(&shared.options.root_dir).map(|s| s.blocks() * s.fragment_size()).unwrap_or(0);
    json!({
        "cpu": cpus.to_string(), "memory": format!("{}Ki", memory.unwrap_or(0)), "pods": shared.options.max_pods.to_string(),
        "ephemeral-storage": format!("{}Ki", disk / 1024),
    })
}

fn info(runtime_version: &str) -> Value {
    let os = read("/etc/os-release");
    let pretty =
        os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux").trim_matches('"').to_owned();
    json!({
        "machineID": read("/etc/machine-id"), "systemUUID": read("/sys/class/dmi/id/product_uuid"),
        "bootID": read("/proc/sys/kernel/random/boot_id"), "kernelVersion": read("/proc/sys/kernel/osrelease"),
        "osImage": pretty, "containerRuntimeVersion": runtime_version, "kubeletVersion": api::KUBERNETES_VERSION,
        "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
    })
}

async fn renew(shared: &Shared) -> Result<(), kube::Error> {
    let api: Api<Lease> = Api::namespaced(shared.client.clone(), "kube-node-lease");
    let name = &shared.options.node_name;
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(Timestamp::now())});
    let patch = json!({"spec": spec});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(e)) if e.code == 404 => {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
            let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            api.create(&PostParams::default(), &lease).await.map(drop)
        }
        other => other.map(drop),
    }
}
