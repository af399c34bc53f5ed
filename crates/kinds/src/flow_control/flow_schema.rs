//! Validation of FlowSchemas (`ValidateFlowSchema`).

use super::validate_mandatory_object;
use crate::{FieldErrors, field_cursor::FieldCursor, flow_control::bootstrap};
use serde_json::Value;

const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let cursor = FieldCursor::object(object);
    let (metadata, spec) = (cursor.at("metadata"), cursor.at("spec"));
    let (precedence, method, level) =
        (spec.at("matchingPrecedence"), spec.at("distinguisherMethod"), spec.at("priorityLevelConfiguration"));
    let number = precedence.integer().unwrap_or(0);
    if number <= 0 || number > 10_000 {
        let detail = if number <= 0 { "must be a positive value" } else { "must not be greater than 10000" };
        precedence.invalid(detail, errors);
    }
    if number == 1 && metadata.at("name").text() != "exempt" {
        precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1", errors);
    }
    let method_type = method.at("type");
    if method.is_set() && !matches!(method_type.text(), "ByNamespace" | "ByUser") {
        // Upstream shows the method.
        method_type.with_value(method.value()).not_supported(&["ByNamespace", "ByUser"], errors);
    }
    let level_name = level.at("name");
    if level_name.text().is_empty() {
        level_name.required("must reference a priority level", errors);
    } else {
        level_name.validate_text(api::names::dns1123_subdomain, errors);
    }
    spec.at("rules").items().for_each(|rule| self::validate_rule(&rule, errors));
    validate_mandatory_object(object, &bootstrap::mandatory().0, errors);
}

/// Validates a rule with its subjects (`ValidateFlowSchemaPolicyRulesWithSubjects`).
fn validate_rule(rule: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (subjects, resource_rules, other_rules) =
        (rule.at("subjects"), rule.at("resourceRules"), rule.at("nonResourceRules"));
    if subjects.count() == 0 {
        subjects.required("subjects must contain at least one value", errors);
    }
    subjects.items().for_each(|subject| self::validate_subject(&subject, errors));
    if resource_rules.count() == 0 && other_rules.count() == 0 {
        rule.required("at least one of resourceRules and nonResourceRules has to be non-empty", errors);
    }
    resource_rules.items().for_each(|rule| validate_resource_rule(&rule, errors));
    other_rules.items().for_each(|rule| validate_non_resource_rule(&rule, errors));
}

/// Validates a subject, which must have exactly the field of its kind (`ValidateFlowSchemaSubject`).
fn validate_subject(subject: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    const FIELDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let subject_kind = subject.at("kind");
    let kind = subject_kind.text();
    let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == kind) else {
        return subject_kind.not_supported(&["Group", "ServiceAccount", "User"], errors);
    };
    let value = subject.at(field);
    if value.is_null() {
        value.required(&format!("{field} is required when subject kind is '{kind}'"), errors);
    } else {
        let (name, namespace, is_account) = (value.at("name"), value.at("namespace"), kind == "ServiceAccount");
        if name.text().is_empty() {
            name.required("", errors);
        } else if is_account && name.text() != "*" {
            name.validate_text(api::names::dns1123_subdomain, errors);
        }
        if is_account && namespace.text().is_empty() {
            namespace.required("must specify namespace for service account", errors);
        } else if is_account {
            namespace.validate_text(api::names::dns1123_label, errors);
        }
    }
    for (other, name) in FIELDS {
        let field = subject.at(name);
        if other != kind && field.is_set() {
            field.forbidden(&format!("{name} is forbidden when subject kind is not '{other}'"), errors);
        }
    }
}

/// Returns whether a list contains `*`, which must be its only item.
fn validate_wildcard(list: &FieldCursor<'_, '_>, items_name: &str, errors: &mut FieldErrors) -> bool {
    let found = list.items().any(|item| item.text() == "*");
    if found && list.count() > 1 {
        list.invalid(&format!("if '*' is present, must not specify other {items_name}"), errors);
    }
    found
}

fn validate_verbs(verbs: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if verbs.count() == 0 {
        return verbs.required("verbs must contain at least one value", errors);
    }
    let are_known = verbs.items().all(|verb| VERBS.contains(&verb.text()));
    if !validate_wildcard(verbs, "verbs", errors) && !are_known {
        verbs.not_supported(&VERBS, errors);
    }
}

/// Validates a resource rule (`ValidateFlowSchemaResourcePolicyRule`).
fn validate_resource_rule(rule: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_verbs(&rule.at("verbs"), errors);
    for (list, one, all) in
        [(rule.at("apiGroups"), "api group", "api groups"), (rule.at("resources"), "resource", "resources")]
    {
        if list.count() == 0 {
            list.required(&format!("resource rules must supply at least one {one}"), errors);
        }
        validate_wildcard(&list, all, errors);
    }
    let namespaces = rule.at("namespaces");
    if namespaces.count() == 0 && !rule.at("clusterScope").is_true() {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        namespaces.required(detail, errors);
    }
    if validate_wildcard(&namespaces, "namespaces", errors) {
        return;
    }
    for namespace in namespaces.items() {
        for detail in api::names::dns1123_label(namespace.text()) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {detail}");
            namespace.invalid(&detail, errors);
        }
    }
}

/// Validates a non-resource rule (`ValidateFlowSchemaNonResourcePolicyRule`).
fn validate_non_resource_rule(rule: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_verbs(&rule.at("verbs"), errors);
    let urls = rule.at("nonResourceURLs");
    if urls.count() == 0 {
        return urls.required("nonResourceURLs must contain at least one value", errors);
    }
    if validate_wildcard(&urls, "non-resource URLs", errors) {
        return;
    }
    for url in urls.items() {
        if let Some(detail) = non_resource_path_error(url.text()) {
            url.invalid(detail, errors);
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
    use serde_json::json;

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
