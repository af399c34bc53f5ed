//! MutatingAdmissionPolicies and their bindings.

use crate::{
    common::*,
    custom_resources::*,
    webhook_server::WebhookServer,
    webhooks::{create_mutating_webhook, patch_response, rule_for},
};
use api::feature_gates::FeatureGates;
use serde_json::{Value, json};

const BETA: &str = "/apis/admissionregistration.k8s.io/v1beta1";
const ALPHA: &str = "/apis/admissionregistration.k8s.io/v1alpha1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn api_with_policies(mut api: TestApi) -> TestApi {
    api.server = api.server.with_gates(FeatureGates::parse("MutatingAdmissionPolicy=true").unwrap());
    api
}

fn with_match_constraints(group: &str, resource: &str) -> Value {
    let rule = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    json!({"resourceRules": [rule]})
}

fn apply_configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

async fn policy(api: &TestApi, name: &str, mutations: &[Value], fields: Value) {
    let mut spec = json!({"matchConstraints": with_match_constraints("", "configmaps"), "reinvocationPolicy": "Never", "mutations": mutations});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let object = json!({"metadata": {"name": name}, "spec": spec});
    api.check(post(format!("{BETA}/mutatingadmissionpolicies"), &object), 201, json!({})).await;
    let object = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
    api.check(post(format!("{BETA}/mutatingadmissionpolicybindings"), &object), 201, json!({})).await;
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn failed_json_patch_test_leaves_the_object_unchanged() {
    let api = api_with_policies(TestApi::new().await);
    let mutation = |value: &str| {
        format!(
            "[JSONPatch{{op: 'test', path: '/data/a', value: '{value}'}}, JSONPatch{{op: 'replace', path: '/data/a', value: 'new'}}]"
        )
    };
    policy(&api, "other", &[json_patch(&mutation("other"))], json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({"a": "old"}))), 201, json!({"data": {"a": "old"}})).await;
    policy(&api, "same", &[json_patch(&mutation("old"))], json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("b", json!({"a": "old"}))), 201, json!({"data": {"a": "new"}})).await;
}

#[tokio::test]
async fn mutating_policies_are_served_by_feature_gate() {
    let api = TestApi::new().await;
    api.check(get(format!("{BETA}/mutatingadmissionpolicies")), 404, json!({})).await;
    let group = "/apis/admissionregistration.k8s.io";
    let versions = api.send(&get(group)).await.body["versions"].as_array().unwrap().len();
    assert_eq!(versions, 1);
    let api = api_with_policies(api);
    let group = api.send(&get(group)).await.body;
    let names: Vec<&Value> = group["versions"].as_array().unwrap().iter().map(|v| &v["version"]).collect();
    assert_eq!(names, ["v1", "v1beta1", "v1alpha1"]);
    let mutation = apply_configuration("Object{data: {'by': 'policy'}}");
    policy(&api, "p", &[mutation], json!({})).await;
    let defaults = json!({"failurePolicy": "Fail", "matchConstraints": {"matchPolicy": "Equivalent"}});
    let path = format!("{BETA}/mutatingadmissionpolicies/p");
    api.check(get(&path), 200, json!({"apiVersion": "admissionregistration.k8s.io/v1beta1", "spec": defaults})).await;
    let alpha = json!({"apiVersion": "admissionregistration.k8s.io/v1alpha1", "metadata": {"generation": 1}});
    api.check(get(format!("{ALPHA}/mutatingadmissionpolicies/p")), 200, alpha).await;
    let rows = json!({"rows": [{"cells": ["p", 1, "<unset>", "0s"]}]});
    api.check(get_table(format!("{BETA}/mutatingadmissionpolicies")), 200, rows).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 201, json!({"data": {"by": "policy"}})).await;
}

#[tokio::test]
async fn mutating_policy_applies_config_and_json_patch() {
    let api = api_with_policies(TestApi::new().await);
    let sidecar = "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'sidecar', image: variables.image}]}}}}";
    let labels = "[JSONPatch{op: 'test', path: '/metadata/name', value: 'd'}, JSONPatch{op: 'add', path: '/metadata/labels', value: {'a.b/c': request.userInfo.username}}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('x/y'), value: string(size(object.spec.template.spec.containers))}]";
    let variables = json!([{"name": "image", "expression": "object.spec.template.spec.containers[0].image + ':side'"}]);
    let fields = json!({"matchConstraints": with_match_constraints("apps", "deployments"), "variables": variables});
    policy(&api, "sidecar", &[apply_configuration(sidecar), json_patch(labels)], fields).await;
    let created = api.check(post(DEPLOYMENTS, &deployment("d")), 201, json!({})).await.body;
    let containers = created["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let named: Vec<(&Value, &Value)> = containers.iter().map(|c| (&c["name"], &c["image"])).collect();
    assert_eq!(named, [(&json!("c"), &json!("i")), (&json!("sidecar"), &json!("i:side"))]);
    // Added fields get defaults, and each mutation sees the previous ones.
    assert_eq!(containers[1]["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(created["metadata"]["labels"], json!({"a.b/c": "test", "x/y": "2"}));
}

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

#[tokio::test]
async fn invalid_mutating_policy_is_rejected() {
    let api = api_with_policies(TestApi::new().await);
    let fields = |fails: &str| json!({"matchConstraints": with_match_constraints("apps", "deployments"), "failurePolicy": fails});
    for (name, mutation, reason) in [
        (
            "atomic",
            apply_configuration("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'x': 'y'}}}}"),
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        ),
        (
            "unknown",
            apply_configuration("Object{spec: Object.spec{replicasx: 1}}"),
            "error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema",
        ),
        (
            "missing",
            apply_configuration("Object{spec: Object.spec{replicas: object.spec.none}}"),
            "expression 'Object{spec: Object.spec{replicas: object.spec.none}}' resulted in error: no such key: none",
        ),
    ] {
        policy(&api, name, std::slice::from_ref(&mutation), fields("Fail")).await;
        let message = format!("policy '{name}' with binding '{name}' denied request: {reason}");
        let rejected = json!({"reason": "Invalid", "message": message, "details": {"name": "d", "causes": [{"message": message}]}});
        api.check(post(DEPLOYMENTS, &deployment("d")), 403, rejected).await;
        api.check(
            merge_patch(
                format!("{BETA}/mutatingadmissionpolicies/{name}"),
                &json!({"spec": {"failurePolicy": "Ignore"}}),
            ),
            200,
            json!({}),
        )
        .await;
        api.check(post(format!("{DEPLOYMENTS}?dryRun=All"), &deployment("d")), 201, json!({})).await;
    }
    let invalid = json_patch("[JSONPatch{op: 'add', path: '/spec/unknown', value: 1}]");
    policy(&api, "strict", &[invalid], fields("Ignore")).await;
    let message = "Internal error occurred: strict decoding error: unknown field \"spec.unknown\"";
    api.check(post(DEPLOYMENTS, &deployment("d")), 500, json!({"message": message})).await;
}

#[tokio::test]
async fn mutation_expressions_are_compiled_on_write() {
    let api = api_with_policies(TestApi::new().await);
    for (mutation, expected) in [
        (
            apply_configuration("'teapot'"),
            "applyConfiguration.expression: Invalid value: \"'teapot'\": must evaluate to Object but got string",
        ),
        (
            apply_configuration("Object.spec{}"),
            "applyConfiguration.expression: Invalid value: \"Object.spec{}\": must evaluate to Object but got Object.spec",
        ),
        (
            json_patch("Object{}"),
            "jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object",
        ),
        (
            apply_configuration("Object{spec: Object.specx{}}"),
            "unexpected type name \"Object.specx\", expected \"Object.spec\", which matches field name path from root Object type",
        ),
        (json_patch("[JSONPatch{op: 1}]"), "expected type of field 'op' is 'string' but provided type is 'int'"),
        (apply_configuration("params.x"), "undeclared reference to 'params'"),
        (
            json!({"patchType": "Other"}),
            "patchType: Unsupported value: \"Other\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
        ),
        (json!({"patchType": "JSONPatch"}), "jsonPatch: Required value: must be specified when patchType is JSONPatch"),
        (
            json!({"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}),
            "applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch",
        ),
        (
            json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}, "jsonPatch": {"expression": "[]"}}),
            "jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
        ),
    ] {
        let spec = json!({"matchConstraints": with_match_constraints("", "configmaps"), "reinvocationPolicy": "Never", "mutations": [mutation]});
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        let rejected = api.check(post(format!("{BETA}/mutatingadmissionpolicies"), &object), 422, json!({})).await.body;
        let message = rejected["message"].as_str().unwrap();
        assert!(message.contains("spec.mutations[0].") && message.contains(expected), "{message}\n{expected}");
    }
    let object = json!({"metadata": {"name": "p"}, "spec": {}});
    let rejected = api.check(post(format!("{BETA}/mutatingadmissionpolicies"), &object), 422, json!({})).await.body;
    let causes = rejected["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().filter_map(|cause| cause["field"].as_str()).collect();
    assert_eq!(fields, ["spec.matchConstraints", "spec.mutations", "spec.reinvocationPolicy"]);
}

#[tokio::test]
async fn mutating_policy_uses_match_conditions_and_params() {
    let api = api_with_policies(TestApi::new().await);
    let fields = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConditions": [{"name": "not-params", "expression": "object.metadata.name != 'params'"}],
    });
    policy(&api, "p", &[apply_configuration("Object{data: params.data}")], fields).await;
    let reference = json!({"name": "params", "namespace": "default", "parameterNotFoundAction": "Deny"});
    let path = format!("{BETA}/mutatingadmissionpolicybindings/p");
    api.check(merge_patch(path, &json!({"spec": {"paramRef": reference}})), 200, json!({})).await;
    let message = "policy 'p' with binding 'p' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 403, json!({"message": message})).await;
    api.check(delete(format!("{BETA}/mutatingadmissionpolicybindings/p")), 200, json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("params", json!({"k": "v"}))), 201, json!({})).await;
    let object = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "paramRef": reference,
        "matchResources": {"objectSelector": {"matchLabels": {"x": "y"}}}}});
    api.check(post(format!("{BETA}/mutatingadmissionpolicybindings"), &object), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 201, json!({"data": null})).await;
    let labelled = json!({"metadata": {"name": "b", "labels": {"x": "y"}}});
    api.check(post(CONFIG_MAPS, &labelled), 201, json!({"data": {"k": "v"}})).await;
}

#[tokio::test]
async fn mutating_policy_is_reinvoked_after_changes() {
    let api = api_with_policies(TestApi::new().await);
    let count = |by: &str| {
        let key = format!("has(object.data) && has(object.data.{by}) ? string(int(object.data.{by}) + 1) : '1'");
        apply_configuration(&format!("Object{{data: {{'{by}': {key}}}}}"))
    };
    policy(&api, "first", &[count("first")], json!({"reinvocationPolicy": "IfNeeded"})).await;
    policy(&api, "second", &[count("second")], json!({})).await;
    let created = json!({"data": {"first": "2", "second": "1"}});
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 201, created).await;
}

#[tokio::test]
async fn mutating_policies_run_before_webhooks() {
    let api = api_with_policies(TestApi::new().await);
    let hook = WebhookServer::new(|_, review| {
        let seen = review["request"]["object"]["data"]["by"].as_str().unwrap_or("nobody").to_owned();
        patch_response(review, json!([{"op": "add", "path": "/data/seen", "value": seen}]))
    })
    .await;
    policy(&api, "p", &[apply_configuration("Object{data: {'by': 'policy'}}")], json!({})).await;
    create_mutating_webhook(&api, "w", hook.client_config("/"), json!({"rules": rule_for("configmaps")})).await;
    let created = json!({"data": {"by": "policy", "seen": "policy"}});
    api.check(post(CONFIG_MAPS, &config_map("a", json!({"x": "y"}))), 201, created).await;
}

#[tokio::test]
async fn mutating_policy_merges_custom_resources_by_schema() {
    let api = api_with_policies(api_with_crontabs(&crontab_properties()).await);
    let rule = json!({"operations": ["*"], "apiGroups": ["stable.example.com"], "apiVersions": ["v1"], "resources": ["crontabs"]});
    let fields = json!({"matchConstraints": {"resourceRules": [rule]}});
    policy(&api, "p", &[apply_configuration("Object{spec: Object.spec{replicas: 7}}")], fields).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 1}))), 201, json!({"spec": {"replicas": 7}})).await;
}
