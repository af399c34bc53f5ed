//! Tests of this lint: it finds a typo in each form of read.

use crate::{
    check,
    program::{Program, Source},
};

/// Code that the statements can use.
const PRELUDE: &str = r#"
const STRATEGY: &str = "strategy";
const FIELDS: &[&str] = &["status.replicas"];
static DEPLOYMENT: GenericKind = GenericKind {
    columns: &[text("Ready", Cell::Pointer("/status/readyReplicas"))],
    fields: FIELDS,
    validate,
    ..GenericKind::new(&KindInfo { ..KindInfo::namespaced(GROUP, "Deployment", "deployments", "deployment") })
};
fn text<'a>(value: &'a Value, key: &str) -> &'a str { value[key].as_str().unwrap_or("") }
fn items<'a>(value: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> { value[list].as_array().into_iter().flatten() }
fn set_defaults_at(object: &mut Value, pointer: &str, values: &[(&str, Value)]) {
    let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else { return };
    values.iter().for_each(|(key, value)| drop(map.insert(key.to_string(), value.clone())));
}
fn each(value: &Value, visit: impl Fn(&Value)) { items(value, "containers").for_each(|c| visit(c)) }
"#;

/// Reads of a Deployment, and a name in them that becomes a typo, or the name of a field of another type.
const READS: [(&str, &str, &str); 34] = [
    (r#"object["spec"]["strategy"]["type"];"#, "strategy", "stategy"),
    (r#"object["spec"]["strategy"]["type"];"#, "type", "tpye"),
    (r#"object["spec"]["strategy"]["type"];"#, "type", "phase"),
    (r#"object["spec"]["strategy"] = json!({});"#, "strategy", "updateStrategy"),
    (r#"let spec = &object["spec"]; spec.get("paused");"#, "paused", "pause"),
    (r#"let (spec, n) = (&object["spec"], 1); spec["replicas"] == n;"#, "replicas", "replica"),
    (r#"if let Some(Value::Object(o)) = object.get("spec") { o.contains_key("selector"); }"#, "selector", "selectors"),
    (r#"object.pointer("/spec/strategy/rollingUpdate/maxSurge");"#, "maxSurge", "maxSurges"),
    (r#"object.pointer("/spec/template/spec/containers/0/name");"#, "name", "nodeName"),
    (r#"for i in 0..2 { object.pointer(&format!("/spec/template/spec/containers/{i}/image")); }"#, "image", "images"),
    (r#"object.get_mut("spec").and_then(Value::as_object_mut).map(|s| s.remove("paused"));"#, "paused", "suspend"),
    (r#"object["spec"].as_object_mut().into_iter().for_each(|s| drop(s.entry("paused")));"#, "paused", "paussed"),
    (r#"text(&object["spec"]["strategy"], "type");"#, "type", "tpye"),
    (r#"items(&object["spec"]["template"]["spec"], "containers").map(|c| text(c, "image"));"#, "image", "hostname"),
    (
        r#"for (i, c) in items(&object["spec"]["template"]["spec"], "volumes").enumerate() { c["name"]; }"#,
        "name",
        "nam",
    ),
    (
        r#"for c in items(&object["spec"]["template"]["spec"], "volumes") { c["emptyDir"]["medium"]; }"#,
        "emptyDir",
        "emtpyDir",
    ),
    (
        r#"for key in ["maxSurge", "maxUnavailable"] { object["spec"]["strategy"]["rollingUpdate"][key]; }"#,
        "maxSurge",
        "surge",
    ),
    (r#"object["spec"][STRATEGY]["rollingUpdate"];"#, "rollingUpdate", "rolling"),
    (r#"let get = |key: &str| object["status"][key].as_i64(); get("readyReplicas");"#, "readyReplicas", "ready"),
    (r#"let first = object["status"]["conditions"][0].clone(); first["reason"];"#, "reason", "reasons"),
    (
        r#"let v = object["status"]["conditions"].as_array().unwrap(); v.first().map(|c| &c["status"]);"#,
        "status",
        "state",
    ),
    (r#"object["spec"]["template"]["metadata"]["labels"]["any.io/label"];"#, "labels", "label"),
    (
        r#"for (_, claim) in object["metadata"]["annotations"].as_object().unwrap() { claim; }"#,
        "annotations",
        "anotations",
    ),
    (r#"set_defaults_at(object, "/spec/strategy", &[("type", json!("RollingUpdate"))]);"#, "type", "kind"),
    (r#"set_defaults_at(object, "/spec/strategy", &[("type", json!("RollingUpdate"))]);"#, "strategy", "strategies"),
    (r#"each(&object["spec"]["template"]["spec"], |c| drop(&c["ports"]));"#, "ports", "port"),
    (r#"let path = FieldPath::new("spec"); path.child("selector");"#, "selector", "selektor"),
    (
        r#"let path = FieldPath::new("spec").child("template").child("spec"); path.child("volumes").index(1).child("name");"#,
        "name",
        "n",
    ),
    (r#"let o = FieldCursor::object(object); o.at("spec").at("strategy").at("type").one_of(&["x"]);"#, "type", "kind"),
    (
        r#"for c in FieldCursor::object(object).at("status").at("conditions").items() { c.at("reason"); }"#,
        "reason",
        "x",
    ),
    (
        r#"match object["spec"]["strategy"]["type"].as_str() { Some(_) => object["spec"]["paused"].clone(), _ => json!(1) };"#,
        "paused",
        "x",
    ),
    (
        r#"let status = match object.get("status") { Some(s) => s, None => return }; status["replicas"];"#,
        "replicas",
        "replcas",
    ),
    (
        r#"drop(json!({"terminationGracePeriodSeconds": 1}));"#,
        "terminationGracePeriodSeconds",
        "terminationGraceSeconds",
    ),
    (r#"assert!(matches!(object["spec"]["paused"], Value::Bool(_)));"#, "paused", "paussed"),
];

fn problems(source: &str) -> Vec<String> {
    let program = Program::new(vec![Source::parse("crates/kinds/src/deployment.rs", source)]);
    check(&program).0.into_iter().map(|(_, _, problem)| problem).collect()
}

fn with_statement(statement: &str) -> String {
    format!("{PRELUDE}fn validate(object: &Value, errors: &mut FieldErrors) {{\n{statement}\n}}")
}

#[test]
fn typo_is_found_in_each_form_of_read() {
    for (statement, name, typo) in READS {
        assert_eq!(problems(&with_statement(statement)), Vec::<String>::new(), "{statement}");
        let (right, wrong) = ([r"\b", name, r"\b"].concat(), with_statement(statement));
        let regex = regex::Regex::new(&format!("\"[^\"]*{right}[^\"]*\"")).unwrap();
        let literal = regex.find_iter(statement).last().unwrap();
        let mut changed = statement.to_owned();
        changed.replace_range(literal.range(), &literal.as_str().replacen(name, typo, 1));
        let found = problems(&wrong.replace(statement, &changed));
        assert!(found.len() == 1 && found[0].contains(typo), "{changed}: {found:?}");
    }
}

/// Reads of a Deployment as the type of the field, with a read as another type.
const ACCESSES: [(&str, &str, &str); 12] = [
    (r#"object["spec"]["replicas"].as_i64();"#, "as_i64", "as_str"),
    (r#"object["spec"]["paused"].as_bool();"#, "as_bool", "as_i64"),
    (r#"object["spec"]["template"]["spec"]["volumes"].as_array();"#, "as_array", "as_object"),
    (r#"object["metadata"]["labels"].as_object();"#, "as_object", "as_array"),
    (r#"object.pointer("/spec/strategy/type").and_then(Value::as_str);"#, "Value::as_str", "Value::as_bool"),
    (r#"object["spec"]["paused"] == true;"#, "true", "\"true\""),
    (r#"object["spec"]["paused"] != json!(true);"#, "true", "1"),
    (r#"object["spec"]["strategy"]["type"] == STRATEGY;"#, "== STRATEGY", "== 1"),
    (r#"FieldCursor::object(object).at("spec").at("replicas").integer();"#, "integer", "text"),
    (r#"FieldCursor::object(object).at("status").at("conditions").items();"#, "items", "entries"),
    (
        r#"for c in items(&object["status"], "conditions").filter(|c| c["type"] == "x") { c["reason"].as_str(); }"#,
        "as_str",
        "as_i64",
    ),
    (
        r#"items(&object["spec"]["template"]["spec"]["containers"][0], "command").filter_map(Value::as_str);"#,
        "as_str",
        "as_i64",
    ),
];

#[test]
fn read_as_another_type_is_found() {
    for (statement, right, wrong) in ACCESSES {
        assert_eq!(problems(&with_statement(statement)), Vec::<String>::new(), "{statement}");
        let changed = statement.replacen(right, wrong, 1);
        let found = problems(&with_statement(&changed));
        assert!(found.len() == 1 && found[0].contains("is read as"), "{changed}: {found:?}");
    }
}

#[test]
fn read_as_one_of_two_types_is_allowed() {
    let port = r#"object["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"]"#;
    for statement in [
        format!("{port}.as_i64(); {port}.as_str();"),
        r#"object.get("status").map(|s| &s["conditions"]).map(|list| list.as_array());"#.to_owned(),
        r#"object["spec"]["replicas"].to_string() == "1";"#.to_owned(),
        r#"object["spec"]["replicas"] == "";"#.to_owned(),
        r#"if let Some(Value::Object(spec)) = object.get_mut("spec") { spec.retain(|_, v| v != &json!(false)); }"#
            .to_owned(),
    ] {
        assert_eq!(problems(&with_statement(&statement)), Vec::<String>::new(), "{statement}");
    }
}

#[test]
fn typo_is_found_in_data_of_a_kind() {
    for (name, typo) in [("/status/readyReplicas", "/status/ready"), ("status.replicas", "status.replica")] {
        let source = with_statement("").replace(name, typo);
        assert_eq!(problems(&source).len(), 1, "{typo}");
    }
}

#[test]
fn code_of_tests_is_not_checked() {
    let source = format!("{}#[cfg(test)] mod tests {{ fn f(v: &Value) {{ v[\"tpye\"]; }} }}", with_statement(""));
    assert_eq!(problems(&source), Vec::<String>::new());
}
