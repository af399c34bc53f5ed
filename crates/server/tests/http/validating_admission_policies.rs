//! ValidatingAdmissionPolicies and their bindings.

use crate::{common::*, custom_resources::*, webhooks::GROUP};
use api::feature_gates::FeatureGates;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(crate) async fn create_policy(api: &TestApi, name: &str, spec: Value) {
    let mut spec = spec;
    if spec["matchConstraints"].is_null() {
        let rule = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
        spec["matchConstraints"] = json!({"resourceRules": [rule]});
    }
    let object = json!({"metadata": {"name": name}, "spec": spec});
    api.check(post(format!("{GROUP}/validatingadmissionpolicies"), &object), 201, json!({})).await;
}

pub(crate) async fn create_binding(api: &TestApi, name: &str, policy: &str, fields: Value) {
    let mut spec = json!({"policyName": policy, "validationActions": ["Deny"]});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let object = json!({"metadata": {"name": name}, "spec": spec});
    api.check(post(format!("{GROUP}/validatingadmissionpolicybindings"), &object), 201, json!({})).await;
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn unserved_param_kind_fails_every_matching_request() {
    let api = TestApi::new().await;
    let spec =
        json!({"paramKind": {"apiVersion": "foo.io/v1", "kind": "Foo"}, "validations": [{"expression": "true"}]});
    create_policy(&api, "p", spec).await;
    // A policy without a binding has no effect; with one, the match resources of the binding do not matter.
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 201, json!({})).await;
    create_binding(&api, "b", "p", json!({"matchResources": {"objectSelector": {"matchLabels": {"of": "none"}}}}))
        .await;
    let message = "configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'foo.io/v1, Kind=Foo'";
    api.check(post(CONFIG_MAPS, &config_map("b", json!({}))), 422, json!({"message": message})).await;
}

#[tokio::test]
async fn access_reviews_are_exempt_from_policies() {
    let api = TestApi::new().await;
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    let spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]});
    create_policy(&api, "no", spec).await;
    create_binding(&api, "no", "no", json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 422, json!({})).await;
    let verb = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    api.check(post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &verb), 201, json!({})).await;
    api.check(post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})), 201, json!({})).await;
    let review = json!({"spec": {"token": "t"}});
    api.check(post("/apis/authentication.k8s.io/v1/tokenreviews", &review), 201, json!({})).await;
}

#[tokio::test]
async fn policy_applies_only_where_bound() {
    let api = TestApi::new().await;
    let validation = json!({"expression": "has(object.data) && object.data.owner != ''", "message": "say who owns it"});
    create_policy(&api, "owned", json!({"validations": [validation]})).await;
    api.check(post(CONFIG_MAPS, &config_map("before", json!({}))), 201, json!({})).await;
    create_binding(&api, "everywhere", "owned", json!({})).await;
    let message = "ValidatingAdmissionPolicy 'owned' with binding 'everywhere' denied request: say who owns it";
    let rejected = json!({
        "message": format!("configmaps \"a\" is forbidden: {message}"), "reason": "Invalid", "code": 422,
        "details": {"name": "a", "kind": "configmaps", "causes": [{"message": message}]},
    });
    api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 422, rejected.clone()).await;
    api.check(post(format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a", json!({}))), 422, rejected).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({"owner": "me"}))), 201, json!({})).await;
    api.check(
        merge_patch(format!("{CONFIG_MAPS}/a"), &json!({"data": {"owner": ""}})),
        422,
        json!({"reason": "Invalid"}),
    )
    .await;
    // A deleted binding has no effect.
    api.check(delete(format!("{GROUP}/validatingadmissionpolicybindings/everywhere")), 200, json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("b", json!({}))), 201, json!({})).await;
}

#[tokio::test]
async fn binding_sets_actions_and_match_resources() {
    let api = TestApi::new().await;
    let validation = json!({"expression": "false", "reason": "Forbidden", "messageExpression": "request.name + ' in ' + namespaceObject.metadata.name + ' by ' + request.userInfo.username"});
    create_policy(&api, "never", json!({"validations": [validation]})).await;
    create_binding(&api, "warns", "never", json!({"validationActions": ["Warn", "Audit"]})).await;
    let created = api.check(post(CONFIG_MAPS, &config_map("a", json!({}))), 201, json!({})).await;
    let warning =
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'never' with binding 'warns': a in default by test\"";
    assert_eq!(created.warnings(), [warning]);
    let select = json!({"matchResources": {"objectSelector": {"matchLabels": {"strict": "yes"}}}});
    create_binding(&api, "denies", "never", select).await;
    api.check(post(CONFIG_MAPS, &config_map("b", json!({}))), 201, json!({})).await;
    let strict = json!({"metadata": {"name": "c", "labels": {"strict": "yes"}}});
    let message = "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'never' with binding 'denies' denied request: c in default by test";
    let rejected = api.check(post(CONFIG_MAPS, &strict), 403, json!({"message": message, "reason": "Forbidden"})).await;
    assert_eq!(rejected.warnings().len(), 1);
}

#[tokio::test]
async fn param_ref_selects_parameter_objects() {
    let api = api_with_crontabs(&crontab_properties()).await;
    let rule = json!({"operations": ["CREATE"], "apiGroups": ["stable.example.com"], "apiVersions": ["v1"], "resources": ["crontabs"]});
    create_policy(&api, "limited", json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "most", "expression": "int(params.data.most)"}],
        "validations": [{"expression": "object.spec.replicas <= variables.most", "messageExpression": "'at most ' + string(variables.most)"}],
    }))
    .await;
    let by_name = json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}});
    create_binding(&api, "named", "limited", by_name).await;
    let denied = |reason: &str| {
        let message = format!(
            "crontabs.stable.example.com \"a\" is forbidden: ValidatingAdmissionPolicy 'limited' with binding 'named' denied request: {reason}"
        );
        json!({"message": message})
    };
    let tab = |replicas: i64| post(CRONTABS, &crontab("a", &json!({"replicas": replicas})));
    let missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    api.check(tab(3), 422, denied(missing)).await;
    api.check(post(CONFIG_MAPS, &config_map("limits", json!({"most": "2"}))), 201, json!({})).await;
    api.check(tab(3), 422, denied("at most 2")).await;
    // Every selected parameter object must be satisfied.
    let path = format!("{GROUP}/validatingadmissionpolicybindings/named");
    let labelled = |name: &str, maximum: &str| json!({"metadata": {"name": name, "labels": {"of": "limits"}}, "data": {"most": maximum}});
    let params = json!([{"op": "replace", "path": "/spec/paramRef", "value": {"selector": {"matchLabels": {"of": "limits"}}, "parameterNotFoundAction": "Allow"}}]);
    api.check(patch("json-patch", path, &params), 200, json!({})).await;
    api.check(post(format!("{CRONTABS}?dryRun=All"), &crontab("a", &json!({"replicas": 3}))), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &labelled("x", "5")), 201, json!({})).await;
    api.check(post(CONFIG_MAPS, &labelled("y", "1")), 201, json!({})).await;
    api.check(tab(3), 422, denied("at most 1")).await;
    api.check(tab(1), 201, json!({})).await;
}

#[tokio::test]
async fn policy_errors_follow_the_failure_policy() {
    let api = TestApi::new().await;
    let spec =
        |fails: &str| json!({"failurePolicy": fails, "validations": [{"expression": "object.data.none == 'x'"}]});
    create_policy(&api, "ignored", spec("Ignore")).await;
    create_binding(&api, "ignored", "ignored", json!({})).await;
    api.check(post(CONFIG_MAPS, &config_map("a", json!({"x": "y"}))), 201, json!({})).await;
    create_policy(&api, "fails", spec("Fail")).await;
    create_binding(&api, "fails", "fails", json!({})).await;
    let message = "configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'fails' with binding 'fails' denied request: expression 'object.data.none == 'x'' resulted in error: no such key: none";
    api.check(post(CONFIG_MAPS, &config_map("b", json!({"x": "y"}))), 422, json!({"message": message})).await;
    let rejected = api.send(&post(format!("{GROUP}/validatingadmissionpolicies"), &json!({"metadata": {"name": "wrong"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]},
        "validations": [{"expression": "objekt == 1"}]}}))).await;
    let expected_message = "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"wrong\" is invalid: spec.validations[0].expression: Invalid value: \"objekt == 1\": compilation failed: ERROR: <input>";
    assert!(
        rejected.status == 422 && rejected.body["message"].as_str().unwrap().starts_with(expected_message),
        "{}",
        rejected.body
    );
}

#[tokio::test]
async fn policies_check_delete_and_connect() {
    let api = TestApi::new().await;
    let rule = json!({"operations": ["DELETE", "CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "pods/exec"]});
    create_policy(&api, "kept", json!({
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        "matchConditions": [{"name": "not-me", "expression": "request.userInfo.username != 'me'"}],
        "validations": [{"expression": "request.operation == 'DELETE' ? !has(oldObject.metadata.labels) : !('sh' in object.command)", "message": "no"}],
    }))
    .await;
    create_binding(&api, "kept", "kept", json!({})).await;
    for name in ["a", "b"] {
        api.create_config_map(name, json!({"keep": "yes"})).await;
    }
    api.bound_pod("p").await;
    api.check(delete(format!("{CONFIG_MAPS}/a")), 422, json!({})).await;
    api.check(delete(format!("{CONFIG_MAPS}/a")).with_user("me", &["system:masters"]), 200, json!({})).await;
    let rejected = json!({"message": "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'kept' with binding 'kept' denied request: no"});
    api.check(post(format!("{PODS}/p/exec?command=sh&container=c"), &Value::Null), 422, rejected).await;
    let other = api.send(&post(format!("{PODS}/p/exec?command=ls&container=c"), &Value::Null)).await;
    assert_ne!(other.status, 422);
}

#[tokio::test]
async fn policy_status_has_type_checking_warnings() {
    let api = TestApi::new().await;
    let rule = json!({"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "replicasets", "deployments/scale"]});
    create_policy(&api, "p", json!({
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.paused"}, {"expression": "object.spec.replicas > 1", "messageExpression": "object.metadata.nam"}],
    }))
    .await;
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    let got = api.check(get(&path), 200, json!({"status": {"observedGeneration": 1}})).await.body;
    let warnings = got["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap();
    let message: Vec<(&str, &str)> =
        warnings.iter().map(|w| (w["fieldRef"].as_str().unwrap(), w["warning"].as_str().unwrap())).collect();
    let reason = |kind: &str, reason: &str, source: &str| {
        format!("apps/v1, Kind={kind}: ERROR: <input>: {reason}\n | {source}\n")
    };
    let paused = reason("ReplicaSet", "undefined field 'paused'", "object.spec.paused");
    let named = ["Deployment", "ReplicaSet"]
        .map(|kind| reason(kind, "undefined field 'nam'", "object.metadata.nam"))
        .join("\n");
    assert_eq!(
        message,
        [("spec.validations[0].expression", &*paused), ("spec.validations[1].messageExpression", &*named)]
    );
    // A comparison of a number with a string fails (`test/e2e/apimachinery/validatingadmissionpolicy.go`).
    let mixed = json!({"spec": {"validations": [{"expression": "object.spec.replicas > '1'", "messageExpression": "'wants ' + object.spec.replicas"}]}});
    let got = api.check(merge_patch(&path, &mixed), 200, json!({})).await.body;
    let warnings = got["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap();
    let message: Vec<&str> = warnings.iter().map(|w| w["warning"].as_str().unwrap()).collect();
    let reason =
        |operator: &str, types: &str| format!("found no matching overload for '{operator}' applied to '{types}'");
    assert!(message.len() == 2 && message[0].contains(&reason("_>_", "(int, string)")), "{message:?}");
    assert!(message[1].contains(&reason("_+_", "(string, int)")), "{message:?}");
    let fixed = json!({"spec": {"validations": [{"expression": "object.spec.replicas > 1"}]}});
    let status = json!({"status": {"observedGeneration": 3, "typeChecking": {"expressionWarnings": null}}});
    api.check(merge_patch(&path, &fixed), 200, status).await;
}

#[tokio::test]
async fn type_checking_covers_custom_resources() {
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &crontab_definition(&crontab_properties())), 201, json!({})).await;
    let rule = |group: &str, resource: &str| json!({"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    let mut any = rule("", "configmaps");
    any["apiGroups"] = json!(["*"]);
    create_policy(&api, "p", json!({
        "paramKind": {"apiVersion": "stable.example.com/v1", "kind": "CronTab"},
        "matchConstraints": {"resourceRules": [rule("stable.example.com", "crontabs"), rule("", "pods"), any]},
        "validations": [
            {"expression": "object.spec.replicas > '1'"},
            {"expression": "object.spec.nothing == 1"},
            {"expression": "params.spec.imag == 'x'"},
            {"expression": "object.metadata.labels['a'] == 'b' && object.kind == 'CronTab' && params.spec.image == 'i'"},
        ],
    }))
    .await;
    let got = api.check(get(format!("{GROUP}/validatingadmissionpolicies/p")), 200, json!({})).await.body;
    let warnings = got["status"]["typeChecking"]["expressionWarnings"].as_array().unwrap();
    let message: Vec<(&str, Vec<&str>)> = warnings
        .iter()
        .map(|w| (w["fieldRef"].as_str().unwrap(), w["warning"].as_str().unwrap().split("\n\n").collect()))
        .collect();
    assert_eq!(message.len(), 3, "{message:#?}");
    for ((field, message), (expected, expected_message)) in message.iter().zip([
        (
            "spec.validations[0].expression",
            [
                "/v1, Kind=Pod: ERROR: <input>: undefined field 'replicas'",
                "stable.example.com/v1, Kind=CronTab: ERROR: <input>: found no matching overload for '_>_' applied to '(int, string)'",
            ],
        ),
        (
            "spec.validations[1].expression",
            [
                "/v1, Kind=Pod: ERROR: <input>: undefined field 'nothing'",
                "stable.example.com/v1, Kind=CronTab: ERROR: <input>: undefined field 'nothing'",
            ],
        ),
        (
            "spec.validations[2].expression",
            [
                "/v1, Kind=Pod: ERROR: <input>: undefined field 'imag'",
                "stable.example.com/v1, Kind=CronTab: ERROR: <input>: undefined field 'imag'",
            ],
        ),
    ]) {
        assert_eq!((*field, message.len()), (expected, 2), "{message:?}");
        assert!(message.iter().zip(expected_message).all(|(message, expected_message)| message.starts_with(expected_message)), "{message:?}");
    }
}

#[tokio::test]
async fn policy_writers_must_be_able_to_read_params() {
    let api = TestApi::new().await;
    let all = json!([{"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}]);
    api.grant_cluster_role("ann", json!([{"kind": "User", "name": "ann"}]), all).await;
    let by = |request: TestRequest| request.with_user("ann", &["devs"]);
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let policy = |kind: Value| {
        let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "paramKind": kind, "validations": [{"expression": "false"}]});
        json!({"metadata": {"name": "p"}, "spec": spec})
    };
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let secret = json!({"apiVersion": "v1", "kind": "Secret"});
    let user = "user &{ann  [devs system:authenticated] map[]}";
    let all = format!(
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: {user} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
    );
    api.check(by(post(&policies, &policy(secret.clone()))), 422, json!({"message": all})).await;
    api.check(by(post(&policies, &policy(Value::Null))), 201, json!({})).await;
    let change = json!({"spec": {"paramKind": secret}});
    api.check(by(merge_patch(format!("{policies}/p"), &change)), 422, json!({"message": all})).await;
    api.check(merge_patch(format!("{policies}/p"), &change), 200, json!({})).await;
    // The unchanged `paramKind` is not checked again.
    api.check(by(merge_patch(format!("{policies}/p"), &json!({"spec": {"failurePolicy": "Ignore"}}))), 200, json!({}))
        .await;

    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let binding_of = |policy: &str| {
        let params = json!({"name": "top", "namespace": "default", "parameterNotFoundAction": "Deny"});
        json!({"metadata": {"name": "b"}, "spec": {"policyName": policy, "validationActions": ["Deny"], "paramRef": params}})
    };
    let one = format!(
        "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: spec.paramRef: Forbidden: {user} does not have \"get\" permission on the object referenced by paramRef"
    );
    api.check(by(post(&bindings, &binding_of("p"))), 422, json!({"message": one})).await;
    let read = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["top"]}]);
    api.grant_cluster_role("ann-reads", json!([{"kind": "User", "name": "ann"}]), read).await;
    // The parameters of a missing policy are unknown, so permission on all kinds is required.
    api.check(by(post(&bindings, &binding_of("none"))), 422, json!({"message": one})).await;
    api.check(by(post(format!("{bindings}?dryRun=All"), &binding_of("none"))), 422, json!({"message": one})).await;
    api.check(by(post(&bindings, &binding_of("p"))), 201, json!({})).await;
    let change = async |change: Value, code: u16, expected: Value| {
        api.check(by(merge_patch(format!("{bindings}/b"), &change)), code, expected).await;
    };
    change(json!({"spec": {"policyName": "none"}}), 422, json!({"message": one})).await;
    change(json!({"spec": {"paramRef": {"name": "other"}}}), 422, json!({"message": one})).await;
    change(json!({"metadata": {"labels": {"a": "b"}}}), 200, json!({})).await;
    api.check(delete(format!("{RBAC}/clusterrolebindings/ann-reads")), 200, json!({})).await;
    // A changed selector is checked again after the permission is revoked; changed labels are not.
    let elsewhere = json!({"spec": {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}});
    change(elsewhere, 422, json!({"message": one})).await;
    change(json!({"metadata": {"labels": {"a": "c"}}}), 200, json!({})).await;
}

#[tokio::test]
async fn binding_by_param_selector_requires_list() {
    let mut api = TestApi::new().await;
    api.server = api.server.with_gates(FeatureGates::parse("MutatingAdmissionPolicy=true").unwrap());
    let all = json!([{"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.grant_cluster_role("ann", json!([{"kind": "User", "name": "ann"}]), all).await;
    let beta = "/apis/admissionregistration.k8s.io/v1beta1";
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]});
    let change = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}});
    let param_kind = |version: &str, kind: &str| {
        json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [rule]}, "mutations": [change],
            "reinvocationPolicy": "Never", "paramKind": {"apiVersion": version, "kind": kind}}})
    };
    let make = |object: &Value| post(format!("{beta}/mutatingadmissionpolicies"), object).with_user("ann", &[]);
    // An unknown parameter kind requires permission on all kinds.
    api.check(make(&param_kind("v1", "Unknown")), 422, json!({"reason": "Invalid"})).await;
    api.check(make(&param_kind("v1", "ConfigMap")), 201, json!({})).await;
    let params = json!({"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Deny"});
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": params}});
    let request = || post(format!("{beta}/mutatingadmissionpolicybindings"), &binding).with_user("ann", &[]);
    let message = "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: spec.paramRef: Forbidden: user &{ann  [system:authenticated] map[]} does not have \"list\" permission on the object referenced by paramRef";
    api.check(request(), 422, json!({"message": message})).await;
    let list = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]);
    api.grant_cluster_role("ann-lists", json!([{"kind": "User", "name": "ann"}]), list).await;
    api.check(request(), 201, json!({})).await;
}
