//! Extreme numbers and incomplete objects do not disturb other objects.

use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

const LONGEST: i64 = i64::MAX;

fn template(command: &str, policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {
        "restartPolicy": policy, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", command]}]}})
}

#[e2e_test("a huge grace period can be shortened")]
fn huge_grace_period_can_be_shortened(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let pod = |name: &str, grace: i64| {
        let mut pod = template("trap '' TERM; sleep 10000 & wait; wait", "Never");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        kubectl.apply(&pod.to_string());
        kubectl.wait_ready(name);
    };
    pod("own", LONGEST);
    pod("asked", 5);
    kubectl.run("delete pod own --wait=false").ok();
    kubectl.run(&format!("delete pod asked --wait=false --grace-period={LONGEST}")).ok();
    for name in ["own", "asked"] {
        assert_eq!(kubectl.value(&format!("pod/{name}"), "/metadata/deletionGracePeriodSeconds"), LONGEST, "{name}");
        assert_eq!(
            kubectl.value(&format!("pod/{name}"), "/metadata/deletionTimestamp"),
            "9999-12-30T22:00:00Z",
            "{name}"
        );
        kubectl.run(&format!("delete pod {name} --grace-period=1 --timeout=60s")).ok();
    }
}

#[e2e_test("durations that overflow a timestamp stop no controller")]
fn overflowing_durations_stop_no_controller(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let job = |name: &str, spec: &Value| {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": template("exit 0", "Never")}});
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        kubectl.apply(&job.to_string());
    };
    job("deadline", &json!({"activeDeadlineSeconds": LONGEST, "template": template("sleep 10000", "Never")}));
    job("ttl", &json!({"ttlSecondsAfterFinished": i32::MAX}));
    kubectl.wait_value("job/deadline", "/status/active", &json!(1));
    kubectl.run("wait --for=condition=Complete --timeout=60s job/ttl").ok();
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "starting"}, "spec": {
        "schedule": "0 0 1 1 *", "startingDeadlineSeconds": LONGEST,
        "jobTemplate": {"spec": {"template": template("exit 0", "Never")}}}});
    kubectl.apply(&cron_job.to_string());
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "slow"}, "spec": {
        "minReadySeconds": i32::MAX - 1, "progressDeadlineSeconds": i32::MAX,
        "selector": {"matchLabels": {"app": "a"}}, "template": template("sleep 10000", "Always")}});
    kubectl.apply(&deployment.to_string());
    kubectl.wait_value("deployment/slow", "/status/readyReplicas", &json!(1));
    job("after", &json!({}));
    kubectl.run("wait --for=condition=Complete --timeout=60s job/after").ok();
}

#[e2e_test("a condition without lastTransitionTime stops no watch")]
fn condition_without_transition_time_stops_no_watch(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let service = |name: &str| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}});
        kubectl.apply(&service.to_string());
    };
    service("strange");
    for began in [json!({"lastTransitionTime": null}), json!({})] {
        let mut condition = json!({"type": "Odd", "status": "True", "reason": "R", "message": ""});
        condition.as_object_mut().unwrap().extend(began.as_object().unwrap().clone());
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        kubectl.args(&["patch", "service", "strange", "--subresource=status", "--type=merge", "-p", &patch], "").ok();
        check_service_gets_slice(&kubectl, &service, &format!("next-{}", began.as_object().unwrap().len()));
    }
}

/// Checks that the EndpointSlice controller still reconciles Services.
fn check_service_gets_slice(kubectl: &Kubectl, make: &impl Fn(&str), name: &str) {
    make(name);
    eventually("the Service to have its slice", || {
        !kubectl.run(&format!("get endpointslices -l kubernetes.io/service-name={name} -o name")).ok().is_empty()
    });
}
