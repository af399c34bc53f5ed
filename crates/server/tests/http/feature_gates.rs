//! Fields of disabled feature gates.

use crate::{common::*, validation::merge_into};
use api::feature_gates::FeatureGates;
use serde_json::{Value, json};

/// Returns a server with these feature gates on the same store.
fn with_feature_gates(api: &TestApi, gates: &str) -> TestApi {
    let server = api.server.clone().with_gates(FeatureGates::parse(gates).unwrap());
    TestApi { server, engine: api.engine.clone() }
}

const SIGNALS: &str = "ContainerStopSignals=true";

fn pod_with_stop_signal(name: &str, os: Option<&str>, signal: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": signal});
    if let Some(os) = os {
        object["spec"]["os"] = json!({"name": os});
    }
    object
}

#[tokio::test]
async fn disabled_stop_signal_is_dropped_unless_already_set() {
    let off = TestApi::new().await;
    let on = with_feature_gates(&off, SIGNALS);
    let response = off.check(post(PODS, &pod_with_stop_signal("dropped", None, "SIGNOTHING")), 201, json!({})).await;
    assert_eq!(response.body["spec"]["containers"][0].get("lifecycle"), None);
    let mut with_hook = pod_with_stop_signal("hook", None, "SIGUSR1");
    with_hook["spec"]["containers"][0]["lifecycle"]["preStop"] = json!({"sleep": {"seconds": 1}});
    let response = off.check(post(PODS, &with_hook), 201, json!({})).await;
    assert_eq!(response.body["spec"]["containers"][0]["lifecycle"], json!({"preStop": {"sleep": {"seconds": 1}}}));
    // A Pod that was created with the feature can still be updated.
    let kept = on.check(post(PODS, &pod_with_stop_signal("kept", Some("linux"), "SIGUSR1")), 201, json!({})).await.body;
    assert_eq!(kept["spec"]["containers"][0]["lifecycle"], json!({"stopSignal": "SIGUSR1"}));
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    let lifecycle = json!({"spec": {"containers": [{"lifecycle": {"stopSignal": "SIGUSR1"}}]}});
    off.check(merge_patch(format!("{PODS}/kept"), &change), 200, lifecycle).await;
}

#[tokio::test]
async fn disabled_stateful_set_max_unavailable_is_dropped() {
    let on = TestApi::new().await;
    let off = with_feature_gates(&on, "MaxUnavailableStatefulSet=false");
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let set = |name: &str| {
        let template = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}});
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, "updateStrategy": strategy}})
    };
    let rolling = |body: &Value| body["spec"]["updateStrategy"]["rollingUpdate"].clone();
    let dropped = off.check(post(sets, &set("dropped")), 201, json!({})).await.body;
    assert_eq!(rolling(&dropped), json!({"partition": 0}));
    let kept = on.check(post(sets, &set("kept")), 201, json!({})).await.body;
    assert_eq!(rolling(&kept), json!({"partition": 0, "maxUnavailable": 2}));
    let change = json!({"spec": {"replicas": 3}});
    let kept = off.check(merge_patch(format!("{sets}/kept"), &change), 200, json!({})).await.body;
    assert_eq!(rolling(&kept), json!({"partition": 0, "maxUnavailable": 2}));
}

#[tokio::test]
async fn stop_signal_must_match_the_pod_os() {
    let api = with_feature_gates(&TestApi::new().await, SIGNALS);
    let field = "spec.containers[0].lifecycle.stopSignal";
    for (os, signal, expected) in [
        (Some("linux"), "SIGRTMIN+15", None),
        (Some("linux"), "SIGRTMAX-14", None),
        (Some("windows"), "SIGKILL", None),
        (None, "SIGUSR1", Some(("Forbidden", "Forbidden: may not be set for containers with empty `spec.os.name`"))),
        (
            Some("windows"),
            "SIGUSR1",
            Some(("NotSupported", "Unsupported value: \"SIGUSR1\": supported values: \"SIGKILL\", \"SIGTERM\"")),
        ),
    ] {
        let request = post(format!("{PODS}?dryRun=All"), &pod_with_stop_signal("p", os, signal));
        match expected {
            None => drop(api.check(request, 201, json!({})).await),
            Some((reason, message)) => {
                let cause = json!({"field": field, "reason": format!("FieldValue{reason}"), "message": message});
                api.check(request, 422, json!({"details": {"causes": [cause]}})).await;
            }
        }
    }
    // Signal names only: no numbers, and the prefix `SIG` is required.
    for signal in ["USR1", "10", "SIGRTMIN+16", "sigterm"] {
        let response = api.check(post(PODS, &pod_with_stop_signal("p", Some("linux"), signal)), 422, json!({})).await;
        let message = response.body["message"].as_str().unwrap();
        let expected = format!("{field}: Unsupported value: {signal:?}: supported values: \"SIGABRT\", \"SIGALRM\"");
        assert!(message.contains(&expected), "{signal}: {message}");
    }
    // A sidecar may have a lifecycle, an init container may not.
    let with_init = |init: Value| {
        let mut object = pod("init");
        object["spec"]["os"] = json!({"name": "linux"});
        object["spec"]["initContainers"] = json!([init]);
        object
    };
    let mut init = json!({"name": "i", "image": "i", "lifecycle": {"stopSignal": "SIGHUP"}});
    let cause = json!({"field": "spec.initContainers[0].lifecycle", "reason": "FieldValueForbidden"});
    api.check(post(PODS, &with_init(init.clone())), 422, json!({"details": {"causes": [cause]}})).await;
    init["restartPolicy"] = json!("Always");
    api.check(post(PODS, &with_init(init)), 201, json!({})).await;
}

const RESTART_ALL: &str = "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true";

fn pod_with_rules(list: &str, container: &Value) -> Value {
    let mut object = pod("p");
    let mut whole = json!({"name": "x", "image": "x"});
    merge_into(&mut whole, container);
    if list == "containers" {
        object["spec"][list][0] = whole;
    } else {
        object["spec"][list] = json!([whole]);
    }
    object
}

/// Asserts that a container with these fields is rejected with these causes: field, reason (without `FieldValue`),
/// message.
async fn check_restart_rules(api: &TestApi, container: &Value, causes: &[(&str, &str, &str)]) {
    for list in ["containers", "initContainers"] {
        let request = post(format!("{PODS}?dryRun=All"), &pod_with_rules(list, container));
        let causes: Vec<Value> = causes
            .iter()
            .map(|(field, reason, message)| {
                json!({"field": format!("spec.{list}[0].{field}"), "reason": format!("FieldValue{reason}"), "message": message})
            })
            .collect();
        if causes.is_empty() {
            api.check(request, 201, json!({})).await;
        } else {
            api.check(request, 422, json!({"details": {"causes": causes}})).await;
        }
    }
}

fn rule(action: &str, codes: &Value) -> Value {
    json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": action, "exitCodes": codes}]})
}

#[tokio::test]
async fn invalid_restart_policy_rules_are_rejected() {
    let api = TestApi::new().await;
    let codes = json!({"operator": "In", "values": [1, 2]});
    check_restart_rules(&api, &rule("Restart", &codes), &[]).await;
    check_restart_rules(&api, &rule("Restart", &json!({"operator": "NotIn"})), &[]).await;
    let sometimes = "Unsupported value: \"Sometimes\": supported values: \"Always\", \"Never\", \"OnFailure\"";
    check_restart_rules(&api, &json!({"restartPolicy": "Sometimes"}), &[("restartPolicy", "NotSupported", sometimes)])
        .await;
    let mut without = rule("Restart", &codes);
    without.as_object_mut().unwrap().remove("restartPolicy");
    let required = "Required value: must specify restartPolicy when restart rules are used";
    check_restart_rules(&api, &without, &[("restartPolicy", "Required", required)]).await;
    let action = "Unsupported value: \"Stop\": supported values: \"Restart\"";
    check_restart_rules(&api, &rule("Stop", &codes), &[("restartPolicyRules[0].action", "NotSupported", action)]).await;
    let operator = "Unsupported value: \"\": supported values: \"In\", \"NotIn\"";
    let field = "restartPolicyRules[0].exitCodes.operator";
    check_restart_rules(&api, &rule("Restart", &json!({"values": [1]})), &[(field, "NotSupported", operator)]).await;
    let required = "Required value: must be specified";
    let field = "restartPolicyRules[0].exitCodes";
    check_restart_rules(&api, &rule("Restart", &Value::Null), &[(field, "Required", required)]).await;
    let many = json!({"operator": "In", "values": (0..256).collect::<Vec<_>>()});
    let field = "restartPolicyRules[0].exitCodes.values";
    check_restart_rules(
        &api,
        &rule("Restart", &many),
        &[(field, "TooMany", "Too many: 256: must have at most 255 items")],
    )
    .await;
    let mut many = rule("Restart", &codes);
    many["restartPolicyRules"] = json!(vec![many["restartPolicyRules"][0].clone(); 21]);
    check_restart_rules(&api, &many, &[("restartPolicyRules", "TooMany", "Too many: 21: must have at most 20 items")])
        .await;
    // They are accepted in a sidecar and have no effect.
    let mut sidecar = rule("Restart", &codes);
    sidecar["restartPolicy"] = json!("Always");
    check_restart_rules(&api, &sidecar, &[]).await;
}

#[tokio::test]
async fn restart_all_containers_requires_its_feature_gate() {
    let off = TestApi::new().await;
    let on = with_feature_gates(&off, RESTART_ALL);
    let container = rule("RestartAllContainers", &json!({"operator": "In", "values": [42]}));
    let rejected = "Unsupported value: \"RestartAllContainers\": supported values: \"Restart\"";
    check_restart_rules(&off, &container, &[("restartPolicyRules[0].action", "NotSupported", rejected)]).await;
    check_restart_rules(&on, &container, &[]).await;
    let unknown = "Unsupported value: \"X\": supported values: \"Restart\", \"RestartAllContainers\"";
    let codes = json!({"operator": "In"});
    check_restart_rules(&on, &rule("X", &codes), &[("restartPolicyRules[0].action", "NotSupported", unknown)]).await;
    // A Pod that was created with the feature can still be updated.
    on.check(post(PODS, &pod_with_rules("containers", &container)), 201, json!({})).await;
    off.check(merge_patch(format!("{PODS}/p"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({})).await;
}

#[tokio::test]
async fn disabled_container_restart_rules_drop_policies() {
    let on = TestApi::new().await;
    let off = with_feature_gates(&on, "ContainerRestartRules=false");
    let container = rule("Restart", &json!({"operator": "In", "values": [42]}));
    let response = off.check(post(PODS, &pod_with_rules("containers", &container)), 201, json!({})).await.body;
    let stored = &response["spec"]["containers"][0];
    assert_eq!((stored.get("restartPolicy"), stored.get("restartPolicyRules")), (None, None));
    let mut init = pod_with_rules("initContainers", &json!({"restartPolicy": "Always"}));
    init["metadata"]["name"] = json!("sidecar");
    off.check(post(PODS, &init), 201, json!({"spec": {"initContainers": [{"restartPolicy": "Always"}]}})).await;
    init["spec"]["initContainers"][0]["restartPolicy"] = json!("Never");
    let message = "Unsupported value: \"Never\": supported values: \"Always\"";
    let cause = json!({"field": "spec.initContainers[0].restartPolicy", "message": message});
    off.check(post(PODS, &init), 422, json!({"details": {"causes": [cause]}})).await;
    // Fields that were set with the feature are kept.
    let mut kept = pod_with_rules("containers", &container);
    kept["metadata"]["name"] = json!("kept");
    on.check(post(PODS, &kept), 201, json!({})).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let spec = json!({"spec": {"containers": [{"restartPolicy": "Never"}]}});
    off.check(merge_patch(format!("{PODS}/kept"), &labels), 200, spec).await;
}

#[tokio::test]
async fn disabled_env_files_drops_file_key_refs() {
    let on = TestApi::new().await;
    let off = with_feature_gates(&on, "EnvFiles=false");
    let object = |name: &str| {
        let mut object = pod(name);
        object["spec"]["volumes"] = json!([{"name": "e", "emptyDir": {}}]);
        let source = json!({"fileKeyRef": {"volumeName": "e", "path": "a", "key": "K"}});
        object["spec"]["containers"][0]["env"] = json!([{"name": "V", "valueFrom": source}]);
        object
    };
    let returned = json!({"spec": {"containers": [{"env": [{"valueFrom": {"fileKeyRef": {"key": "K"}}}]}]}});
    on.check(post(PODS, &object("p")), 201, returned.clone()).await;
    // Without the field the variable has no source.
    off.check(post(PODS, &object("q")), 422, json!({"reason": "Invalid"})).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    off.check(merge_patch(format!("{PODS}/p"), &label), 200, returned).await;
}

#[tokio::test]
async fn disabled_pod_resources_and_image_volumes_are_dropped() {
    let on = TestApi::new().await;
    let off = with_feature_gates(&on, "PodLevelResources=false,ImageVolume=false");
    let mut whole = pod("p");
    whole["spec"]["resources"] = json!({"requests": {"cpu": "1"}});
    let response = off.check(post(PODS, &whole), 201, json!({})).await.body;
    assert_eq!(response["spec"].get("resources"), None);
    let mut image = pod("q");
    image["spec"]["volumes"] = json!([{"name": "v", "image": {"reference": "i"}}]);
    let cause = json!({"field": "spec.volumes[0]", "message": "Required value: must specify a volume type"});
    off.check(post(PODS, &image), 422, json!({"details": {"causes": [cause]}})).await;
    // Fields that were set with the features are kept.
    whole["metadata"]["name"] = json!("kept");
    whole["spec"]["volumes"] = image["spec"]["volumes"].take();
    on.check(post(PODS, &whole), 201, json!({})).await;
    let kept = json!({"spec": {"resources": {"requests": {"cpu": "1"}}}});
    off.check(merge_patch(format!("{PODS}/kept"), &json!({"metadata": {"labels": {"a": "b"}}})), 200, kept).await;
}
