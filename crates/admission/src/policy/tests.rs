use super::*;
use crate::{AuthorizationAttributes, AuthorizationDecision, Authorizer};
use api::field::{FieldErrors, FieldPath};
use serde_json::json;

/// Authorizer that allows only the verb `get`.
#[derive(Debug)]
struct Getters;

impl Authorizer for Getters {
    fn authorize(&self, question: &AuthorizationAttributes) -> AuthorizationDecision {
        AuthorizationDecision { allowed: question.verb == "get", reason: String::new() }
    }

    fn request(&self) -> AuthorizationAttributes {
        AuthorizationAttributes::default()
    }
}

fn decide(spec: &Json, object: &Json, params: &Json) -> Vec<Denial> {
    let policy = Policy::read(&json!({"metadata": {"name": "p"}, "spec": spec}));
    let request = json!({"operation": "CREATE", "userInfo": {"username": "ann"}});
    let inputs = conditions::inputs(object, &Json::Null, &request, Arc::new(Getters));
    policy.decide(inputs, params, &json!({"metadata": {"name": "n", "labels": {"env": "test"}}})).denials
}

#[track_caller]
fn check(spec: Json, expected: &[&str]) {
    let object = json!({"spec": {"replicas": 7}, "metadata": {"labels": {"a.b/c": "d"}}});
    let denials = decide(&spec, &object, &json!({"most": 5}));
    let messages: Vec<&str> = denials.iter().map(|d| d.message.as_str()).collect();
    assert_eq!(messages, expected, "{spec}");
}

#[test]
fn failed_validation_has_message_and_reason_of_the_policy() {
    let one = |validation: Json| json!({"validations": [validation]});
    let few = "object.spec.replicas <= params.most";
    check(one(json!({"expression": "object.spec.replicas == 7"})), &[]);
    check(one(json!({"expression": few})), &["failed expression: object.spec.replicas <= params.most"]);
    check(one(json!({"expression": few, "message": "too many"})), &["too many"]);
    let output = "'at most ' + string(params.most) + ' in ' + namespaceObject.metadata.labels.env";
    check(one(json!({"expression": few, "message": "m", "messageExpression": output})), &["at most 5 in test"]);
    check(one(json!({"expression": few, "message": "m", "messageExpression": "object.none"})), &["m"]);
    check(one(json!({"expression": few, "message": "m", "messageExpression": "'a\\nb'"})), &["m"]);
    check(one(json!({"expression": "authorizer.group('').resource('pods').check('get').allowed()"})), &[]);
    check(one(json!({"expression": "authorizer.path('/x').check('post').allowed()", "message": "no"})), &["no"]);
    check(one(json!({"expression": "namespaceObject.metadata.name == 'n'"})), &[]);
    let other =
        "compilation error: compilation failed: ERROR: <input>: undefined field 'kind'\n | namespaceObject.kind == ''";
    check(one(json!({"expression": "namespaceObject.kind == ''"})), &[other]);
    let missing = "expression 'object.none == 1' resulted in error: no such key: none";
    check(one(json!({"expression": "object.none == 1"})), &[missing]);
    check(json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.none == 1"}]}), &[]);
    check(
        json!({"validations": [{"expression": "false", "message": "a"}, {"expression": "false", "message": "b"}]}),
        &["a", "b"],
    );
}

#[test]
fn conditions_and_variables_apply_to_the_whole_policy() {
    let conditions = |text: &str| json!({"matchConditions": [{"name": "c", "expression": text}], "validations": [{"expression": "false", "message": "no"}]});
    check(conditions("request.userInfo.username == 'ann'"), &["no"]);
    check(conditions("request.operation == 'DELETE'"), &[]);
    check(conditions("object.none == 1"), &["expression 'object.none == 1' resulted in error: no such key: none"]);
    let variables = json!([
        {"name": "n", "expression": "object.spec.replicas"}, {"name": "twice", "expression": "variables.n * 2"},
        {"name": "bad", "expression": "object.none.x"},
    ]);
    let with = |text: &str| json!({"variables": variables, "validations": [{"expression": text, "message": "no"}]});
    check(with("variables.twice == 14"), &[]);
    check(with("variables.twice == 7 && variables.bad == 1"), &["no"]);
    let message = "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: none";
    check(with("variables.bad == 1"), &[message]);
    let annotated = json!({"validations": [], "auditAnnotations": [{"key": "a", "valueExpression": "object.none"}]});
    assert!(decide(&annotated, &json!({}), &Json::Null)[0].always);
}

#[test]
fn invalid_expressions_are_rejected_by_validation() {
    let check = |spec: Json, expected: &[&str]| {
        let mut errors = FieldErrors::default();
        super::check(&spec, "p", &FieldPath::new("spec"), &mut errors);
        let got: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(got.len(), expected.len(), "{spec}: {got:#?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.starts_with(expected), "{got}\nis not\n{expected}");
        }
    };
    let one = |validation: Json| json!({"validations": [validation]});
    check(one(json!({"expression": "object.x > 1"})), &[]);
    check(
        one(json!({"expression": "objekt.x > 1"})),
        &[
            "spec.validations[0].expression: Invalid value: \"objekt.x > 1\": compilation failed: ERROR: <input>: undeclared reference to 'objekt' (in container '')",
        ],
    );
    check(
        one(json!({"expression": "'x'"})),
        &["spec.validations[0].expression: Invalid value: \"'x'\": must evaluate to bool"],
    );
    check(
        one(json!({"expression": " "})),
        &["spec.validations[0].expression: Required value: expression is not specified"],
    );
    check(
        one(json!({"expression": "true", "reason": "Because"})),
        &[
            "spec.validations[0].reason: Unsupported value: \"Because\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
        ],
    );
    check(
        one(json!({"expression": "true", "messageExpression": "1"})),
        &["spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string"],
    );
    check(
        one(json!({"expression": "request.nothing == 1"})),
        &[
            "spec.validations[0].expression: Invalid value: \"request.nothing == 1\": compilation failed: ERROR: <input>: undefined field 'nothing'",
        ],
    );
    check(
        json!({"variables": [{"name": "a-b", "expression": "1"}]}),
        &["spec.variables[0].name: Invalid value: \"a-b\": name is not a valid CEL identifier"],
    );
    check(
        json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.b == 1"}]}),
        &[
            "spec.validations[0].expression: Invalid value: \"variables.b == 1\": compilation failed: ERROR: <input>: undefined field 'b'",
        ],
    );
    check(
        json!({"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "nothing"}]}),
        &[
            "spec.matchConditions[1].expression: Invalid value: \"nothing\": compilation failed",
            "spec.matchConditions[1].name: Duplicate value: \"a\"",
        ],
    );
    check(json!({"paramKind": {"kind": "ConfigMap"}}), &["spec.paramKind.apiVersion: Required value"]);
}
