//! The node: its status, its endpoints, and node-pressure eviction.

use serde_json::{Value, json};
use std::time::Duration;
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, e2e_test, wait_for};

fn node(kubectl: &Kubectl) -> String {
    kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").ok()
}

fn pod(name: &str, script: &str) -> PodBuilder {
    PodBuilder::new(name).grace_period(1).script(script)
}

const SERVE: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

#[e2e_test("a node reports its capacity, info, conditions and Lease")]
fn node_reports_capacity_info_and_lease(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let name = node(&kubectl);
    let drivers = kubectl.wait_value(&format!("csinode/{name}"), "/spec/drivers", &json!([]));
    assert_eq!(drivers["metadata"]["ownerReferences"][0]["kind"], "Node");
    let status = kubectl.value(&format!("node/{name}"), "/status");
    let amount = |list: &str, resource: &str| {
        let text = status[list][resource].as_str().unwrap_or_else(|| panic!("{list} {resource}: {status}"));
        text.strip_suffix("Ki").map_or_else(|| text.parse::<i64>().unwrap(), |n| n.parse::<i64>().unwrap() * 1024)
    };
    for resource in ["memory", "ephemeral-storage"] {
        let (all, left) = (amount("capacity", resource), amount("allocatable", resource));
        assert!(0 < left && left < all, "{resource}: what Pods go for is not for them: {status}");
    }
    assert_eq!(amount("capacity", "memory") - amount("allocatable", "memory"), 100 << 20);
    assert_eq!(amount("capacity", "pods"), 230);
    let info = &status["nodeInfo"];
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(info["bootID"], boot.trim());
    for field in ["machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion"] {
        assert!(info[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {info}");
    }
    let conditions: Vec<String> = status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            format!(
                "{}={} {}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap(),
                c["reason"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        conditions,
        [
            "MemoryPressure=False KubeletHasSufficientMemory",
            "DiskPressure=False KubeletHasNoDiskPressure",
            "PIDPressure=False KubeletHasSufficientPID",
            "Ready=True KubeletReady"
        ]
    );
    wait_for("the image in the node's status", Duration::from_secs(60), || {
        let images = kubectl.value(&format!("node/{name}"), "/status/images").to_string();
        if images.contains("busybox") { Ok(()) } else { Err(images) }
    });
    let lease = cluster.kubectl_in("kube-node-lease");
    let renewed = lease.value(&format!("lease/{name}"), "/spec/renewTime");
    let (owner, uid) = ("/metadata/ownerReferences/0/uid", kubectl.value(&format!("node/{name}"), "/metadata/uid"));
    assert_eq!(lease.value(&format!("lease/{name}"), owner), uid);
    wait_for("the Lease to be renewed", Duration::from_secs(30), || {
        let now = lease.value(&format!("lease/{name}"), "/spec/renewTime");
        if now != renewed { Ok(()) } else { Err(now.to_string()) }
    });
}

#[e2e_test("a node serves its Pods, stats, metrics and configuration")]
fn node_serves_pods_stats_and_configz(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {}}]});
    let mounts =
        json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}], "readinessProbe": {"exec": {"command": ["true"]}}});
    kubectl.apply(
        &pod("p", &format!("dd if=/dev/zero of=/v/f bs=1M count=2; {SERVE}"))
            .spec(&volumes)
            .container(&mounts)
            .to_string(),
    );
    kubectl.wait_ready("p");
    let (name, namespace) = (node(&kubectl), kubectl.namespace().to_owned());
    let raw = |path: &str| kubectl.run(&format!("get --raw /api/v1/nodes/{name}/proxy/{path}")).ok();
    let json = |path: &str| -> Value { serde_json::from_str(&raw(path)).unwrap() };
    for health in ["healthz", "healthz/ping", "healthz/log", "healthz/syncloop"] {
        assert_eq!(raw(health), "ok", "{health}");
    }
    let logs = raw("logs/");
    assert!(logs.starts_with("<!doctype html>") && logs.contains("<a href=\"dpkg.log\">dpkg.log</a>"), "{logs}");
    assert!(!raw("logs/dpkg.log").is_empty());
    kubectl.run(&format!("get --raw /api/v1/nodes/{name}/proxy/logs/none")).failed();
    for list in ["pods", "runningpods/"] {
        let all = json(list);
        let items = all["items"].as_array().unwrap();
        let ours = items.iter().find(|p| p["metadata"]["namespace"] == namespace.as_str());
        let ours = ours.unwrap_or_else(|| panic!("{list}: {all}"));
        assert_eq!(
            (&ours["metadata"]["name"], &ours["spec"]["containers"][0]["name"]),
            (&json!("p"), &json!("c")),
            "{list}"
        );
    }
    assert_eq!(json("configz")["kubeletconfig"]["maxPods"], 230);
    assert_eq!(json("configz")["kubeletconfig"]["nodeStatusUpdateFrequency"], "10s");
    assert_eq!(json("configz")["kubeletconfig"]["fileCheckFrequency"], "20s");
    assert_eq!(json("configz")["kubeletconfig"]["evictionHard"]["memory.available"], "100Mi");
    // A value, and its timestamp if there is one.
    let sample = |page: &str, metric: &str| -> Vec<f64> {
        let text = raw(page);
        let line = text.lines().find(|l| l.starts_with(metric)).unwrap_or_else(|| panic!("no {metric} in {text}"));
        let (_, response) = line.rsplit_once('}').or(line.split_once(' ')).unwrap();
        response.split_whitespace().map(|number| number.parse().unwrap()).collect()
    };
    let value = |page: &str, metric: &str| sample(page, metric)[0];
    let of_container = format!("{{container=\"c\",namespace=\"{namespace}\",pod=\"p\"}} ");
    let of_pod = format!("{{namespace=\"{namespace}\",pod=\"p\"}} ");
    for metric in [
        format!("container_cpu_usage_seconds_total{of_container}"),
        format!("container_memory_working_set_bytes{of_container}"),
        format!("container_start_time_seconds{of_container}"),
        format!("pod_cpu_usage_seconds_total{of_pod}"),
        format!("pod_memory_working_set_bytes{of_pod}"),
        "node_cpu_usage_seconds_total ".to_owned(),
        "node_memory_working_set_bytes ".to_owned(),
    ] {
        assert!(value("metrics/resource", &metric) > 0.0, "{metric}");
    }
    assert!(raw("metrics/resource").contains("# TYPE node_cpu_usage_seconds_total counter\n"));
    let timed = |metric: &str| sample("metrics/resource", metric).get(1).is_some_and(|millis| *millis > 1.7e12);
    assert!(timed("node_cpu_usage_seconds_total ") && timed(&format!("pod_memory_working_set_bytes{of_pod}")));
    assert!(!timed(&format!("container_start_time_seconds{of_container}")) && !timed("resource_scrape_error "));
    assert!(value("metrics/resource", "resource_scrape_error ").abs() < 0.5);
    assert!(value("metrics", "kubelet_running_pods ") >= 1.0);
    assert!(value("metrics/cadvisor", "container_memory_working_set_bytes{container=\"c\",id=\"/") > 0.0);
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let probed = format!("container=\"c\",namespace=\"{namespace}\",pod=\"p\",pod_uid={uid},probe_type=\"Readiness\"");
    assert!(value("metrics/probes", &format!("prober_probe_total{{{probed},")) >= 1.0);
    let summary = json("stats/summary");
    let all = summary["pods"].as_array().unwrap();
    let ours = all.iter().find(|p| p["podRef"]["namespace"] == namespace.as_str()).unwrap();
    let volume = ours["volume"].as_array().unwrap().iter().find(|v| v["name"] == "v").unwrap();
    assert!(volume["usedBytes"].as_u64().unwrap() >= 2 << 20, "{volume}");
    for field in [
        "/containers/0/memory/workingSetBytes",
        "/cpu/usageCoreNanoSeconds",
        "/process_stats/process_count",
        "/network/interfaces/0/rxBytes",
    ] {
        assert!(ours.pointer(field).and_then(Value::as_u64).is_some_and(|n| n > 0), "{field}: {ours}");
    }
    assert_eq!(ours["network"]["interfaces"][0]["name"], "eth0", "{ours}");
    for field in
        ["/nodeName", "/memory/availableBytes", "/fs/capacityBytes", "/runtime/imageFs/usedBytes", "/rlimit/maxpid"]
    {
        assert!(summary["node"].pointer(field).is_some_and(|v| !v.is_null()), "{field}: {}", summary["node"]);
    }
    let brief = json("stats/summary?only_cpu_and_memory=true");
    assert!(brief["pods"][0].get("volume").is_none() && brief["node"].get("fs").is_none());
}

#[track_caller]
fn evicted(kubectl: &Kubectl, name: &str) -> String {
    // Disk usage of Pods is measured once a minute where it takes long.
    let status = wait_for(&format!("{name} to be evicted"), Duration::from_secs(120), || {
        let status = kubectl.value(&format!("pod/{name}"), "/status");
        if status["phase"] == "Failed" { Ok(status) } else { Err(status.to_string()) }
    });
    assert_eq!(status["reason"], "Evicted", "{status}");
    let message = status["message"].as_str().unwrap().to_owned();
    kubectl.wait_for_event(name, "Evicted", &message);
    message
}

#[e2e_test("a Pod over its ephemeral-storage limit is evicted")]
fn pod_over_ephemeral_storage_limit_is_evicted(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let volumes = json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]});
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    let fill = |file: &str| format!("dd if=/dev/zero of={file} bs=1M count=2; {SERVE}");
    kubectl.apply(&pod("volume", &fill("/v/f")).spec(&volumes).container(&mounts).to_string());
    kubectl.apply(&pod("modest", &fill("/tmp/f")).spec(&volumes).container(&mounts).to_string());
    let limits = json!({"resources": {"limits": {"ephemeral-storage": "1Mi"}}});
    kubectl.apply(&pod("storage", &fill("/f")).container(&limits).to_string());
    assert_eq!(evicted(&kubectl, "volume"), "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ");
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(evicted(&kubectl, "storage"), message);
    assert_eq!(kubectl.value("pod/modest", "/status/phase"), "Running");
}

#[e2e_test("memory pressure evicts Pods and rejects BestEffort Pods")]
fn memory_pressure_evicts_and_rejects_pods() {
    // Only an idle machine would have more memory available.
    let cluster =
        ClusterBuilder::default().kubelet_config(json!({"evictionHard": {"memory.available": "99.9%"}})).start();
    let kubectl = cluster.kubectl_in("default");
    let name = node(&kubectl);
    wait_for("MemoryPressure", Duration::from_secs(30), || {
        let node = kubectl.get(&format!("node/{name}")).unwrap();
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let memory = conditions.iter().find(|c| c["type"] == "MemoryPressure").unwrap();
        let expected = "kubelet has insufficient memory available";
        let tainted = node["spec"]["taints"].to_string().contains("node.kubernetes.io/memory-pressure");
        let reported = (&memory["status"], &memory["reason"], &memory["message"]);
        let lacks = reported == (&json!("True"), &json!("KubeletHasInsufficientMemory"), &json!(expected));
        if lacks && tainted { Ok(()) } else { Err(node.to_string()) }
    });
    let here = json!({"nodeName": name});
    kubectl.apply(&pod("modest", SERVE).spec(&here).to_string());
    kubectl.wait_value("pod/modest", "/status/reason", &json!("Evicted"));
    let expected = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(kubectl.value("pod/modest", "/status/message"), expected);
    let asking = json!({"resources": {"requests": {"memory": "1Ki"}}});
    kubectl.apply(&pod("asking", SERVE).spec(&here).container(&asking).to_string());
    let message = evicted(&kubectl, "asking");
    let (low, rest) = message.split_once("available: ").unwrap();
    assert!(low.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    // The Pod may be evicted before its container has started.
    if let Some((_, used)) = rest.split_once(". Container c was using ") {
        assert!(used.ends_with(", request is 1Ki, has larger consumption of memory. "), "{message}");
    }
    for (reason, text) in [
        ("Starting", ""),
        ("NodeAllocatableEnforced", ""),
        ("NodeReady", ""),
        ("EvictionThresholdMet", "Attempting to reclaim memory"),
        ("NodeHasInsufficientMemory", ""),
    ] {
        kubectl.wait_for_event(&name, reason, text);
    }
    let conditions = kubectl.value("pod/asking", "/status/conditions");
    let target = conditions.as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    let reported = (&target["status"], &target["reason"], &target["message"]);
    assert_eq!(reported, (&json!("True"), &json!("TerminationByKubelet"), &json!(message)));
}

#[e2e_test("disk pressure evicts Pods after the grace period and rejects new ones")]
fn disk_pressure_evicts_and_rejects_pods() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = ClusterBuilder::default().kubelet_config(json!({"evictionHard": {}})).start();
    let kubectl = cluster.kubectl_in("default");
    let here = json!({"nodeName": node(&kubectl), "terminationGracePeriodSeconds": 60});
    let script = format!("dd if=/dev/zero of=/f bs=1M count=3; {SERVE}");
    kubectl.apply(&pod("before", &script).spec(&here).to_string());
    kubectl.wait_ready("before");
    // Unused images and dead containers are removed before Pods are evicted.
    let tar = dir.path().join("idle.tar");
    test_images::busybox(&tar, &["example.com/idle:1"], &crate::image_pulls::printing("idle")).unwrap();
    cluster.import(&tar);
    let once = json!({"nodeName": node(&kubectl), "restartPolicy": "Never"});
    kubectl.apply(&pod("ended", "echo said").spec(&once).to_string());
    kubectl.wait_value("pod/ended", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs ended").ok().trim(), "said");
    let images = |cluster: &Cluster| {
        let output = cluster.podium(&["image", "ls"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(images(&cluster).contains("example.com/idle"), "{}", images(&cluster));
    cluster.stop_podium(nix::sys::signal::Signal::SIGKILL);
    // No disk has this much space available.
    cluster.set_kubelet_config(json!({"imageMinimumGCAge": "1ms", "evictionHard": {}, "evictionMaxPodGracePeriod": 60,
        "evictionSoft": {"nodefs.available": "99.9%"}, "evictionSoftGracePeriod": {"nodefs.available": "2s"}}));
    cluster.start_podium();
    let message = evicted(&kubectl, "before");
    assert!(message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: "), "{message}");
    let used = message.split_once(". Container c was using ").unwrap().1;
    assert!(used.ends_with(", request is 0, has larger consumption of ephemeral-storage. "), "{message}");
    let terminated = kubectl.value("pod/before", "/status/containerStatuses/0/state/terminated");
    assert_eq!(terminated["exitCode"], 0, "a soft threshold leaves time to end well: {terminated}");
    assert!(!images(&cluster).contains("example.com/idle"), "{}", images(&cluster));
    kubectl.run("logs ended").failed();
    assert_eq!(kubectl.value("pod/ended", "/status/phase"), "Succeeded");
    let asking = json!({"resources": {"requests": {"memory": "1Ki"}}});
    kubectl.apply(&pod("after", SERVE).spec(&here).container(&asking).to_string());
    kubectl.wait_value("pod/after", "/status/reason", &json!("Evicted"));
    let expected = "Pod was rejected: The node had condition: [DiskPressure]. ";
    assert_eq!(kubectl.value("pod/after", "/status/message"), expected);
}
