//! CEL validation rules (`x-kubernetes-validations`).

use super::*;

/// Starts a server whose CronTabs have the property `f` with this rule.
async fn api_with_rule(property: Value, rule: Value) -> TestApi {
    let mut property = property;
    property["x-kubernetes-validations"] = json!([rule]);
    api_with_crontabs(&json!({"f": property})).await
}

async fn send_and_format(api: &TestApi, request: TestRequest) -> String {
    let response = api.send(&request).await;
    let text = response.body["message"].as_str().unwrap_or("").to_owned();
    let text = text.strip_prefix("CronTab.stable.example.com \"a\" is invalid: ").map(str::to_owned).unwrap_or(text);
    format!("{} {text}", response.status).trim().to_owned()
}

/// Creates an object with this value of `f`, deletes it, and returns the status code and the message.
async fn create_and_delete(api: &TestApi, f: Value) -> String {
    let text = send_and_format(api, post(CRONTABS, &crontab("a", &json!({"f": f})))).await;
    api.send(&delete(format!("{CRONTABS}/a"))).await;
    text
}

fn port_range() -> Value {
    json!({"type": "object", "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"},
        "list": {"type": "array", "items": {"type": "string"}},
        "namespace": {"type": "string"}, "x-y": {"type": "string"}, "when": {"type": "string", "format": "date-time"},
    }})
}

#[tokio::test]
async fn rule_failure_uses_message_reason_and_field_path() {
    let rule = "self.min <= self.max";
    let api = api_with_rule(port_range(), json!({"rule": rule})).await;
    assert_eq!(create_and_delete(&api, json!({"min": 1, "max": 2})).await, "201");
    assert_eq!(
        create_and_delete(&api, json!({"min": 3, "max": 2})).await,
        "422 spec.f: Invalid value: failed rule: self.min <= self.max"
    );
    let missing = "422 spec.f: Invalid value: \"object\": no such key: max evaluating rule: self.min <= self.max";
    assert_eq!(create_and_delete(&api, json!({"min": 3})).await, missing);
    let api = api_with_rule(
        port_range(),
        json!({"rule": rule, "message": "from small to large", "reason": "FieldValueForbidden", "fieldPath": ".max"}),
    )
    .await;
    assert_eq!(
        create_and_delete(&api, json!({"min": 3, "max": 2})).await,
        "422 spec.f.max: Forbidden: from small to large"
    );
    let api = api_with_rule(port_range(), json!({"rule": rule, "reason": "FieldValueDuplicate"})).await;
    assert_eq!(create_and_delete(&api, json!({"min": 3, "max": 2})).await, "422 spec.f: Duplicate value");
    let expected = json!({"rule": rule, "messageExpression": "'%d is more than %d'.format([self.min, self.max])"});
    let api = api_with_rule(port_range(), expected).await;
    assert_eq!(
        create_and_delete(&api, json!({"min": 3, "max": 2})).await,
        "422 spec.f: Invalid value: 3 is more than 2"
    );
    let api =
        api_with_rule(json!({"type": "string"}), json!({"rule": "self.startsWith('kube')", "message": "no"})).await;
    assert_eq!(create_and_delete(&api, json!("x")).await, "422 spec.f: Invalid value: \"x\": no");
}

#[tokio::test]
async fn rules_read_escaped_names_and_format_types() {
    let rule = "self.__namespace__ == 'n' && self.x__dash__y == 'y' && self.when.getFullYear() == 2026";
    let api = api_with_rule(port_range(), json!({"rule": rule})).await;
    assert_eq!(
        create_and_delete(&api, json!({"namespace": "n", "x-y": "y", "when": "2026-01-01T00:00:00Z"})).await,
        "201"
    );
    let api = api_with_rule(port_range(), json!({"rule": "!has(self.list) || self.list.all(x, x.size() < 3)"})).await;
    assert_eq!(create_and_delete(&api, json!({})).await, "201");
    assert!(create_and_delete(&api, json!({"list": ["abc"]})).await.starts_with("422"));
}

#[tokio::test]
async fn root_rules_read_metadata_name() {
    let mut definition = crontab_definition(&crontab_properties());
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name.startsWith('a')", "message": "its name begins with a"},
            {"rule": "!has(self.status) || self.status.replicas <= self.spec.replicas", "message": "too many"}]);
    let api = TestApi::new().await;
    api.check(post(DEFINITIONS, &definition), 201, json!({})).await;
    let rejected = api.send(&post(CRONTABS, &crontab("b", &json!({})))).await;
    let message = "CronTab.stable.example.com \"b\" is invalid: <nil>: Invalid value: its name begins with a";
    assert_eq!(rejected.body["message"], message);
    api.check(post(CRONTABS, &crontab("a", &json!({"replicas": 1}))), 201, json!({})).await;
    let status = merge_patch(format!("{CRONTABS}/a/status"), &json!({"status": {"replicas": 2}}));
    assert_eq!(send_and_format(&api, status).await, "422 <nil>: Invalid value: too many");
}

#[tokio::test]
async fn transition_rules_compare_with_old_self() {
    let api =
        api_with_rule(json!({"type": "string"}), json!({"rule": "self == oldSelf", "message": "Value is immutable"}))
            .await;
    api.check(post(CRONTABS, &crontab("a", &json!({"f": "x"}))), 201, json!({})).await;
    let path = format!("{CRONTABS}/a");
    assert_eq!(
        send_and_format(&api, merge_patch(&path, &json!({"spec": {"f": "y"}}))).await,
        "422 spec.f: Invalid value: \"y\": Value is immutable"
    );
    api.check(merge_patch(&path, &json!({"metadata": {"labels": {"a": "b"}}})), 200, json!({})).await;
    // Transition rules are skipped when a field is removed or added.
    api.check(merge_patch(&path, &json!({"spec": {"f": null}})), 200, json!({})).await;
    api.check(merge_patch(&path, &json!({"spec": {"f": "z"}})), 200, json!({})).await;
    let rule = json!({"rule": "oldSelf.hasValue() || self == 'first'", "optionalOldSelf": true});
    let api = api_with_rule(json!({"type": "string"}), rule).await;
    assert!(create_and_delete(&api, json!("second")).await.starts_with("422"));
    assert_eq!(create_and_delete(&api, json!("first")).await, "201");
}

#[tokio::test]
async fn new_rule_allows_updates_of_other_fields() {
    let api = api_with_crontabs(&json!({"f": {"type": "string"}, "g": {"type": "string"}})).await;
    api.check(post(CRONTABS, &crontab("a", &json!({"f": "x"}))), 201, json!({})).await;
    let rule = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/f/x-kubernetes-validations",
        "value": [{"rule": "self == 'y'"}]}]);
    api.check(patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &rule), 200, json!({})).await;
    let path = format!("{CRONTABS}/a");
    api.check(merge_patch(&path, &json!({"spec": {"g": "x"}})), 200, json!({})).await;
    assert!(send_and_format(&api, merge_patch(&path, &json!({"spec": {"f": "z"}}))).await.starts_with("422"));
    // Schema errors are reported before rules are evaluated.
    let not_checked = "<nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    let reported = send_and_format(&api, merge_patch(&path, &json!({"spec": {"g": 1}}))).await;
    assert!(reported.contains(not_checked), "{reported}");
    let values = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/g/enum", "value": ["x"]}]);
    api.check(patch("json-patch", format!("{DEFINITIONS}/crontabs.stable.example.com"), &values), 200, json!({})).await;
    let reported = send_and_format(&api, merge_patch(&path, &json!({"spec": {"g": "y"}}))).await;
    assert!(reported.contains(not_checked), "{reported}");
}

#[tokio::test]
async fn crd_with_an_invalid_rule_is_rejected() {
    let api = TestApi::new().await;
    let list = json!({"type": "array", "items": {"type": "string"}});
    for (property, rule, at, message) in [
        (port_range(), json!({"rule": "self.nothing == 1"}), ".rule", "undefined field 'nothing'"),
        (port_range(), json!({"rule": "self.min.odd()"}), ".rule", "undeclared reference to 'odd' (in container '')"),
        (
            port_range(),
            json!({"rule": "self.min == 'x'"}),
            ".rule",
            "found no matching overload for '_==_' applied to '(int, string)'",
        ),
        (port_range(), json!({"rule": "self.min +"}), ".rule", "Syntax error"),
        (port_range(), json!({"rule": "self.min"}), ".rule", "must evaluate to a bool"),
        (port_range(), json!({"rule": " "}), ".rule", "Required value: rule is not specified"),
        (
            port_range(),
            json!({"rule": "true", "messageExpression": "1"}),
            ".messageExpression",
            "must evaluate to a string",
        ),
        (
            port_range(),
            json!({"rule": "true", "reason": "Odd"}),
            ".reason",
            "Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (
            port_range(),
            json!({"rule": "true", "fieldPath": ".nothing"}),
            ".fieldPath",
            "Invalid value: \".nothing\": must be a valid path",
        ),
        (
            port_range(),
            json!({"rule": "true", "optionalOldSelf": true}),
            ".optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        ),
    ] {
        let mut property = property;
        property["x-kubernetes-validations"] = json!([rule]);
        let response = api.send(&post(DEFINITIONS, &crontab_definition(&json!({"f": property})))).await;
        let text = response.body["message"].as_str().unwrap();
        let location =
            format!("spec.validation.openAPIV3Schema.properties[spec].properties[f].x-kubernetes-validations[0]{at}: ");
        assert!(response.status == 422 && text.contains(&location) && text.contains(message), "{rule}: {text}");
    }
    // A change of an atomic map changes the whole map; old values are still available.
    let whole = json!({"type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}});
    api.check(post(format!("{DEFINITIONS}?dryRun=All"), &crontab_definition(&json!({"f": whole}))), 201, json!({}))
        .await;
    let mut apart = list;
    apart["items"]["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf"}]);
    let response = api.send(&post(DEFINITIONS, &crontab_definition(&json!({"f": apart})))).await;
    let message = "oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[spec].properties[f]";
    assert!(response.body["message"].as_str().unwrap().contains(message), "{}", response.body);
}

#[tokio::test]
async fn rule_over_the_cost_budget_is_stopped() {
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let rule = "self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d >= 0))))";
    let api = api_with_rule(list, json!({"rule": rule})).await;
    let many: Vec<i32> = (0..100).collect();
    let reported = create_and_delete(&api, json!(many)).await;
    assert!(reported.starts_with("422 spec.f: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: self.all"), "{reported}");
}
