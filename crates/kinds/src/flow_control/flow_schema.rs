//! Validation of FlowSchemas (`ValidateFlowSchema`).

use super::validate_mandatory_object;
use crate::{
    FieldErrors, FieldPath,
    field_validation::{items, text as text_of, validate_dns_label, validate_dns_subdomain},
    flow_control::bootstrap,
};
use serde_json::{Value, json};

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let precedence = spec["matchingPrecedence"].as_i64().unwrap_or(0);
    if precedence <= 0 || precedence > 10_000 {
        let detail = if precedence <= 0 { "must be a positive value" } else { "must not be greater than 10000" };
        errors.invalid(&path.child("matchingPrecedence"), &json!(precedence), detail);
    }
    if precedence == 1 && object["metadata"]["name"] != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&path.child("matchingPrecedence"), &json!(1), detail);
    }
    let method = &spec["distinguisherMethod"];
    if !method.is_null() && !matches!(text_of(method, "type"), "ByNamespace" | "ByUser") {
        let at = path.child("distinguisherMethod").child("type");
        errors.not_supported(&at, method, &["ByNamespace", "ByUser"]);
    }
    let (level, at) = (&spec["priorityLevelConfiguration"], path.child("priorityLevelConfiguration").child("name"));
    match text_of(level, "name") {
        "" => errors.required(&at, "must reference a priority level"),
        _ => validate_dns_subdomain(&level["name"], &at, errors),
    }
    for (i, rule) in items(spec, "rules").enumerate() {
        self::validate_rule(rule, &path.child("rules").index(i), errors);
    }
    validate_mandatory_object(object, &bootstrap::mandatory().0, errors);
}

/// Validates a rule with its subjects (`ValidateFlowSchemaPolicyRulesWithSubjects`).
fn validate_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if items(rule, "subjects").next().is_none() {
        errors.required(&path.child("subjects"), "subjects must contain at least one value");
    }
    for (i, subject) in items(rule, "subjects").enumerate() {
        self::validate_subject(subject, &path.child("subjects").index(i), errors);
    }
    if ["resourceRules", "nonResourceRules"].iter().all(|list| items(rule, list).next().is_none()) {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.required(path, detail);
    }
    for (i, policy_rule) in items(rule, "resourceRules").enumerate() {
        validate_resource_rule(policy_rule, &path.child("resourceRules").index(i), errors);
    }
    for (i, policy_rule) in items(rule, "nonResourceRules").enumerate() {
        validate_non_resource_rule(policy_rule, &path.child("nonResourceRules").index(i), errors);
    }
}

/// Validates a subject, which must have exactly the field of its kind (`ValidateFlowSchemaSubject`).
fn validate_subject(subject: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    const FIELDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text_of(subject, "kind");
    let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(&path.child("kind"), &json!(kind), &["Group", "ServiceAccount", "User"]);
    };
    let (value, at) = (&subject[field], path.child(field));
    if value.is_null() {
        errors.required(&at, &format!("{field} is required when subject kind is '{kind}'"));
    } else {
        let account = kind == "ServiceAccount";
        match text_of(value, "name") {
            "" => errors.required(&at.child("name"), ""),
            name if account && name != "*" => validate_dns_subdomain(&value["name"], &at.child("name"), errors),
            _ => {}
        }
        if account && text_of(value, "namespace").is_empty() {
            errors.required(&at.child("namespace"), "must specify namespace for service account");
        } else if account {
            validate_dns_label(&value["namespace"], &at.child("namespace"), errors);
        }
    }
    for (other, field) in FIELDS {
        if other != kind && !subject[field].is_null() {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.forbidden(&path.child(field), &detail);
        }
    }
}

/// Returns whether a list contains `*`, which must be its only item.
fn validate_wildcard(list: &Value, items_name: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let all = list.as_array().map_or(&[][..], Vec::as_slice);
    let found = all.iter().any(|one| one == "*");
    if found && all.len() > 1 {
        errors.invalid(path, list, &format!("if '*' is present, must not specify other {items_name}"));
    }
    found
}

fn validate_verbs(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let (list, path) = (&rule["verbs"], path.child("verbs"));
    if items(rule, "verbs").next().is_none() {
        return errors.required(&path, "verbs must contain at least one value");
    }
    let known = |verb: &Value| verb.as_str().is_some_and(|verb| VERBS.contains(&verb));
    if !validate_wildcard(list, "verbs", &path, errors) && !items(rule, "verbs").all(known) {
        errors.not_supported(&path, list, &VERBS);
    }
}

/// Validates a resource rule (`ValidateFlowSchemaResourcePolicyRule`).
fn validate_resource_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_verbs(rule, path, errors);
    for (field, one, all) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let at = path.child(field);
        if items(rule, field).next().is_none() {
            errors.required(&at, &format!("resource rules must supply at least one {one}"));
        }
        validate_wildcard(&rule[field], all, &at, errors);
    }
    let at = path.child("namespaces");
    if items(rule, "namespaces").next().is_none() && rule["clusterScope"] != true {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&at, detail);
    }
    if validate_wildcard(&rule["namespaces"], "namespaces", &at, errors) {
        return;
    }
    for (i, namespace) in items(rule, "namespaces").enumerate() {
        for detail in api::names::dns1123_label(namespace.as_str().unwrap_or("")) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {detail}");
            errors.invalid(&at.index(i), namespace, &detail);
        }
    }
}

/// Validates a non-resource rule (`ValidateFlowSchemaNonResourcePolicyRule`).
fn validate_non_resource_rule(rule: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_verbs(rule, path, errors);
    let at = path.child("nonResourceURLs");
    if items(rule, "nonResourceURLs").next().is_none() {
        return errors.required(&at, "nonResourceURLs must contain at least one value");
    }
    if validate_wildcard(&rule["nonResourceURLs"], "non-resource URLs", &at, errors) {
        return;
    }
    for (i, url) in items(rule, "nonResourceURLs").enumerate() {
        if let Some(detail) = non_resource_path_error(url.as_str().unwrap_or("")) {
            errors.invalid(&at.index(i), url, detail);
        }
    }
}

/// Returns the first error of a non-resource path (`ValidateNonResourceURLPath`).
fn non_resource_path_error(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || (stars == 1 && !path.ends_with("/*")) => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_control::bootstrap;

    fn found(name: &str, spec: &Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        validate(&json!({"metadata": {"name": name}, "spec": spec}), &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    /// Checks the errors of a valid rule that is changed by `parts`.
    #[track_caller]
    fn check(parts: Value, expected: &[&str]) {
        let mut rule = json!({
            "subjects": [{"kind": "User", "user": {"name": "ann"}}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        });
        for (key, value) in parts.as_object().unwrap() {
            rule[key] = value.clone();
        }
        let spec = json!({"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "p"}, "rules": [rule]});
        let expected: Vec<String> = expected.iter().map(|e| format!("spec.rules[0]{e}")).collect();
        assert_eq!(found("f", &spec), expected);
    }

    #[test]
    fn default_flow_schemas_are_valid() {
        for schema in bootstrap::all().0 {
            let name = schema["metadata"]["name"].as_str().unwrap();
            assert_eq!(found(name, &schema["spec"]), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn flow_schema_has_level_and_distinguisher_method() {
        let spec = json!({"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "p_"}, "distinguisherMethod": {"type": "ByHand"}});
        let found = found("f", &spec);
        let method = "spec.distinguisherMethod.type: Unsupported value: {\"type\":\"ByHand\"}: supported values: \"ByNamespace\", \"ByUser\"";
        assert_eq!(found[0], method);
        assert!(found[1].starts_with(
            "spec.priorityLevelConfiguration.name: Invalid value: \"p_\": a lowercase RFC 1123 subdomain"
        ));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn subject_must_match_its_kind() {
        let with_subject = |subject: Value| json!({"subjects": [subject]});
        check(json!({"subjects": []}), &[".subjects: Required value: subjects must contain at least one value"]);
        check(
            with_subject(json!({"kind": "User"})),
            &[".subjects[0].user: Required value: user is required when subject kind is 'User'"],
        );
        check(
            with_subject(json!({"kind": "Group", "group": {"name": ""}})),
            &[".subjects[0].group.name: Required value"],
        );
        let kinds = "supported values: \"Group\", \"ServiceAccount\", \"User\"";
        check(
            with_subject(json!({"kind": "Foo"})),
            &[&format!(".subjects[0].kind: Unsupported value: \"Foo\": {kinds}")],
        );
        let account = |name: &str, namespace: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": namespace}});
        check(with_subject(account("*", "n")), &[]);
        check(
            with_subject(account("*", "")),
            &[".subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account"],
        );
        check(
            with_subject(json!({"kind": "User", "user": {"name": "a"}, "group": {"name": "b"}})),
            &[".subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'"],
        );
    }

    #[test]
    fn non_resource_rules_are_validated() {
        let with_rule =
            |verbs: Value, urls: Value| json!({"nonResourceRules": [{"verbs": verbs, "nonResourceURLs": urls}]});
        check(with_rule(json!(["*"]), json!(["*"])), &[]);
        check(with_rule(json!(["get"]), json!(["/", "/a/*"])), &[]);
        let verbs = "\"create\", \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"";
        let at = ".nonResourceRules[0]";
        check(
            with_rule(json!(["foo"]), json!(["x", "", "/a b", "/a//b", "/a*"])),
            &[
                &format!("{at}.verbs: Unsupported value: [\"foo\"]: supported values: {verbs}"),
                &format!("{at}.nonResourceURLs[0]: Invalid value: \"x\": must start with slash"),
                &format!("{at}.nonResourceURLs[1]: Invalid value: \"\": must not be empty"),
                &format!("{at}.nonResourceURLs[2]: Invalid value: \"/a b\": must not contain white-space"),
                &format!("{at}.nonResourceURLs[3]: Invalid value: \"/a//b\": must not contain double slash"),
                &format!("{at}.nonResourceURLs[4]: Invalid value: \"/a*\": wildcard can only do suffix matching"),
            ],
        );
        let beside = |elements: &str| format!("if '*' is present, must not specify other {elements}");
        check(
            with_rule(json!(["*", "get"]), json!(["*", "/x"])),
            &[
                &format!("{at}.verbs: Invalid value: [\"*\",\"get\"]: {}", beside("verbs")),
                &format!("{at}.nonResourceURLs: Invalid value: [\"*\",\"/x\"]: {}", beside("non-resource URLs")),
            ],
        );
        check(
            with_rule(json!([]), json!([])),
            &[
                &format!("{at}.verbs: Required value: verbs must contain at least one value"),
                &format!("{at}.nonResourceURLs: Required value: nonResourceURLs must contain at least one value"),
            ],
        );
    }

    #[test]
    fn resource_rules_have_namespaces_or_cluster_scope() {
        let with_rule = |rule: Value| json!({"resourceRules": [rule]});
        let at = ".resourceRules[0]";
        check(
            with_rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"], "clusterScope": true})),
            &[],
        );
        let namespaces = "resource rules that are not cluster scoped must supply at least one namespace";
        check(
            with_rule(json!({"verbs": ["get"], "apiGroups": ["a"], "resources": ["b"]})),
            &[&format!("{at}.namespaces: Required value: {namespaces}")],
        );
        check(
            with_rule(json!({"verbs": ["get"], "namespaces": ["*"]})),
            &[
                &format!("{at}.apiGroups: Required value: resource rules must supply at least one api group"),
                &format!("{at}.resources: Required value: resource rules must supply at least one resource"),
            ],
        );
        let beside = "if '*' is present, must not specify other";
        check(
            with_rule(
                json!({"verbs": ["get"], "apiGroups": ["*", "a"], "resources": ["*", "b"], "namespaces": ["*", "c"]}),
            ),
            &[
                &format!("{at}.apiGroups: Invalid value: [\"*\",\"a\"]: {beside} api groups"),
                &format!("{at}.resources: Invalid value: [\"*\",\"b\"]: {beside} resources"),
                &format!("{at}.namespaces: Invalid value: [\"*\",\"c\"]: {beside} namespaces"),
            ],
        );
        let rule = json!({"verbs": ["get"], "apiGroups": ["a"], "resources": ["b"], "namespaces": ["A_"]});
        let spec = json!({"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "p"}, "rules": [{"subjects": [{"kind": "User", "user": {"name": "a"}}], "resourceRules": [rule]}]});
        let label = "each member of this list must be '*' or a DNS-1123 label; a lowercase RFC 1123 label must consist";
        let found = found("f", &spec);
        assert!(
            found[0].starts_with(&format!("spec.rules[0]{at}.namespaces[0]: Invalid value: \"A_\": {label}")),
            "{found:?}"
        );
    }
}
