use super::*;
use jiff::Timestamp;
use serde_json::{Value, json};

fn quota(hard: &Value) -> ResourceQuota {
    serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).unwrap()
}

fn object(group: &str, resource: &str, value: &Value) -> Object {
    let mut value = value.clone();
    if value["metadata"].is_null() {
        value["metadata"] = json!({});
    }
    Object::new(Kind { group, resource }, &value, Timestamp::from_second(1000).unwrap())
}

fn pod(resources: &Value) -> Object {
    object("", "pods", &json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
}

/// Checks the creation of `new` with the existing objects.
#[track_caller]
fn check_new(hard: &Value, existing: &[Object], new: &Object, expected: &str) {
    let quota = quota(hard);
    let message =
        check(&quota, &used(&quota, existing), new, None).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(message, expected, "{hard}");
}

#[test]
fn quota_limits_the_sum_of_pod_resources() {
    let hard = json!({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"});
    let small = || pod(&json!({"requests": {"cpu": "500m"}, "limits": {"memory": "512Mi"}}));
    check_new(&hard, &[], &small(), "");
    check_new(&hard, &[small()], &small(), "");
    check_new(
        &hard,
        &[small(), small()],
        &small(),
        "exceeded quota: q, requested: limits.memory=512Mi,pods=1,requests.cpu=500m, \
         used: limits.memory=1Gi,pods=2,requests.cpu=1, limited: limits.memory=1Gi,pods=2,requests.cpu=1",
    );
    let message = "failed quota: q: must specify limits.memory for: c; requests.cpu for: c";
    check_new(&hard, &[], &pod(&json!({})), message);
}

#[test]
fn terminated_pod_uses_only_its_object_count() {
    let hard = json!({"pods": "1", "count/pods": "2"});
    let with = |metadata: &Value, phase: &str| {
        object("", "pods", &json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}))
    };
    let ended = || with(&json!({}), "Succeeded");
    let deleted = |at: i64| {
        let at = Timestamp::from_second(at).unwrap().to_string();
        with(&json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30}), "Running")
    };
    check_new(&hard, &[ended()], &pod(&json!({})), "");
    check_new(&hard, &[deleted(960)], &pod(&json!({})), "");
    let message = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
    check_new(&hard, &[deleted(980)], &pod(&json!({})), message);
    let message = "exceeded quota: q, requested: count/pods=1, used: count/pods=2, limited: count/pods=2";
    check_new(&hard, &[ended(), ended()], &pod(&json!({})), message);
}

#[test]
fn overhead_and_extended_resources_count() {
    let hard = json!({"requests.memory": "1Gi", "requests.example.com/gpu": "1"});
    let new = |gpus: &str| {
        let requests = json!({"memory": "512Mi", "example.com/gpu": gpus});
        object(
            "",
            "pods",
            &json!({"spec": {"overhead": {"memory": "256Mi"},
            "containers": [{"name": "c", "resources": {"requests": requests}}]}}),
        )
    };
    check_new(&hard, &[], &new("1"), "");
    let message = "exceeded quota: q, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=0, \
                limited: requests.example.com/gpu=1";
    check_new(&hard, &[], &new("2"), message);
    let message = "exceeded quota: q, requested: requests.memory=768Mi, used: requests.memory=768Mi, \
                limited: requests.memory=1Gi";
    check_new(&hard, &[new("0")], &new("0"), message);
}

#[test]
fn object_count_quota_supports_all_resources() {
    let one = |group: &str, resource: &str| object(group, resource, &json!({}));
    let message = |name: &str| format!("exceeded quota: q, requested: {name}=1, used: {name}=1, limited: {name}=1");
    for (group, resource, name) in [
        ("", "configmaps", "configmaps"),
        ("", "secrets", "count/secrets"),
        ("apps", "deployments", "count/deployments.apps"),
        ("example.com", "things", "count/things.example.com"),
    ] {
        let hard = json!({name: "1"});
        check_new(&hard, &[], &one(group, resource), "");
        check_new(&hard, &[one(group, resource)], &one(group, resource), &message(name));
    }
    // Only core resources have short names.
    check_new(&json!({"deployments": "0"}), &[], &one("apps", "deployments"), "");
    check_new(&json!({"count/deployments.apps": "0"}), &[], &one("extensions", "deployments"), "");
}

#[test]
fn services_and_claims_have_specific_usage() {
    let service =
        |kind: &str| object("", "services", &json!({"spec": {"type": kind, "ports": [{"port": 1}, {"port": 2}]}}));
    let message =
        "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
    let hard = json!({"services.nodeports": "1", "services.loadbalancers": "0"});
    check_new(&hard, &[], &service("ClusterIP"), "");
    check_new(&hard, &[], &service("NodePort"), message);
    let claim = |class: &str| {
        let resources = json!({"requests": {"storage": "2Gi"}});
        object("", "persistentvolumeclaims", &json!({"spec": {"storageClassName": class, "resources": resources}}))
    };
    let hard = json!({"requests.storage": "3Gi", "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "0"});
    check_new(&hard, &[], &claim("slow"), "");
    let message =
        "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi";
    check_new(&hard, &[claim("slow")], &claim("slow"), message);
    let class = "fast.storageclass.storage.k8s.io/persistentvolumeclaims";
    let message = format!("exceeded quota: q, requested: {class}=1, used: {class}=0, limited: {class}=0");
    check_new(&hard, &[], &claim("fast"), &message);
}

#[test]
fn devices_count_by_class_with_maximum_of_alternatives() {
    let exactly = |class: &str, count: i64| json!({"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": count}});
    let either = |class: &str, count: i64| json!({"name": class, "deviceClassName": class, "allocationMode": "ExactCount", "count": count});
    let claim = |requests: &Value| {
        object("resource.k8s.io", "resourceclaims", &json!({"spec": {"devices": {"requests": requests}}}))
    };
    let name = "gold.deviceclass.resource.k8s.io/devices";
    let hard = json!({name: "4", "count/resourceclaims.resource.k8s.io": "2"});
    let message = |request: u32, used: u32| {
        format!("exceeded quota: q, requested: {name}={request}, used: {name}={used}, limited: {name}=4")
    };
    let three = || claim(&json!([exactly("gold", 3)]));
    check_new(&hard, &[], &three(), "");
    check_new(&hard, &[three()], &three(), &message(3, 3));
    check_new(&hard, &[three()], &claim(&json!([exactly("silver", 3)])), "");
    check_new(&hard, &[], &claim(&json!([exactly("gold", 3), exactly("gold", 2)])), &message(5, 0));
    let choice = json!([{"name": "r", "firstAvailable": [either("gold", 2), either("silver", 9), either("gold", 1)]}]);
    check_new(&hard, &[three()], &claim(&choice), &message(2, 3));
    let all = json!([{"name": "r", "exactly": {"deviceClassName": "gold", "allocationMode": "All"}}]);
    check_new(&hard, &[], &claim(&all), &message(32, 0));
}

#[test]
fn update_counts_the_increase() {
    let quota = quota(&json!({"services.nodeports": "1"}));
    let service = |kind: &str| object("", "services", &json!({"spec": {"type": kind, "ports": [{"port": 1}]}}));
    let (old, new) = (service("ClusterIP"), service("NodePort"));
    let full = used(&quota, [&service("NodePort"), &old]);
    let message =
        "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1";
    assert_eq!(check(&quota, &full, &new, Some(&old)).unwrap_err().to_string(), message);
    // An exceeded quota does not affect existing objects, and allows decreases.
    assert_eq!(check(&quota, &full, &new, Some(&new)), Ok(()));
    assert_eq!(check(&quota, &full, &old, Some(&new)), Ok(()));
}

#[test]
fn update_into_a_scope_counts_the_whole_usage() {
    let hard = json!({"pods": "0", "requests.cpu": "1"});
    let spec = json!({"hard": hard, "scopes": ["Terminating"]});
    let quota = serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap();
    let pod = |deadline: Option<i64>, cpu: &str| {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        object("", "pods", &json!({"spec": {"containers": containers, "activeDeadlineSeconds": deadline}}))
    };
    let (old, new) = (pod(None, "2"), pod(Some(60), "2"));
    let message = "exceeded quota: q, requested: pods=1,requests.cpu=2, used: pods=0,requests.cpu=0, \
                limited: pods=0,requests.cpu=1";
    assert_eq!(check(&quota, &used(&quota, [&old]), &new, Some(&old)).unwrap_err().to_string(), message);
    // In the scope, only the increase counts; out of it, nothing counts.
    assert_eq!(check(&quota, &used(&quota, [&new]), &pod(Some(30), "2"), Some(&new)), Ok(()));
    assert_eq!(check(&quota, &used(&quota, [&new]), &old, Some(&new)), Ok(()));
}

#[test]
fn exceeded_quota_rejects_only_increases() {
    let quota = quota(&json!({"requests.cpu": "4", "requests.memory": "1Gi"}));
    let with_requests = |cpu: &str, memory: &str| pod(&json!({"requests": {"cpu": cpu, "memory": memory}}));
    let old = with_requests("1", "4Gi");
    let full = used(&quota, [&old]);
    assert_eq!(check(&quota, &full, &with_requests("2", "2Gi"), Some(&old)), Ok(()));
    let message = "exceeded quota: q, requested: requests.cpu=4, used: requests.cpu=1, limited: requests.cpu=4";
    assert_eq!(check(&quota, &full, &with_requests("5", "2Gi"), Some(&old)).unwrap_err().to_string(), message);
}

#[test]
fn pod_level_requests_replace_container_requests() {
    let hard = json!({"requests.cpu": "1"});
    let whole = |resources: Value| {
        object("", "pods", &json!({"spec": {"containers": [{"name": "c"}], "resources": resources}}))
    };
    check_new(&hard, &[], &whole(json!({"requests": {"cpu": "1"}})), "");
    check_new(&hard, &[], &whole(json!({})), "failed quota: q: must specify requests.cpu for: c");
    let message = "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1";
    check_new(&hard, &[], &whole(json!({"requests": {"cpu": "2"}})), message);
}

#[test]
fn quota_status_contains_all_limits() {
    let quota = quota(&json!({"pods": "2", "requests.memory": "1Gi", "cpu": "1", "configmaps": "1"}));
    let pod = pod(&json!({"requests": {"cpu": "250m", "memory": "100Mi"}}));
    let shown =
        serde_json::to_value(resource_list(&used(&quota, [&pod, &object("", "configmaps", &json!({}))]))).unwrap();
    assert_eq!(shown, json!({"pods": "1", "requests.memory": "100Mi", "cpu": "250m", "configmaps": "1"}));
}
