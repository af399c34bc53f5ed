//! Validation of rules and match constraints (`pkg/apis/admissionregistration/validation`).

use crate::{FieldErrors, enums, field_cursor::FieldCursor, selector, validate_path_segment_name};
use std::collections::BTreeSet;

/// Validates the match constraints of a policy or binding (`validateMatchResources`).
pub(super) fn validate_match_resources(constraints: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    constraints.at("matchPolicy").one_of(enums::MATCH_POLICIES, errors);
    selector::validate(&constraints.at("namespaceSelector"), errors);
    selector::validate(&constraints.at("objectSelector"), errors);
    for rules in [constraints.at("resourceRules"), constraints.at("excludeResourceRules")] {
        rules.items().for_each(|rule| validate_resource_names(&rule.at("resourceNames"), errors));
        validate_rules(&rules, errors);
    }
}

fn validate_resource_names(names: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let mut seen = BTreeSet::new();
    for name in names.items() {
        name.validate_text(validate_path_segment_name, errors);
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
    }
}

/// Validates a list of rules (`validateRuleWithOperations`).
pub(super) fn validate_rules(rules: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    rules.items().for_each(|rule| validate_rule(&rule, errors));
}

fn validate_rule(rule: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (operations, groups, versions) = (rule.at("operations"), rule.at("apiGroups"), rule.at("apiVersions"));
    for (list, plural) in [(operations, "operations"), (groups, "API groups"), (versions, "API versions")] {
        if list.count() == 0 {
            list.required("", errors);
        }
        if list.count() > 1 && list.items().any(|item| item.text() == "*") {
            list.invalid(&format!("if '*' is present, must not specify other {plural}"), errors);
        }
    }
    for version in versions.items().filter(|version| version.text().is_empty()) {
        version.required("", errors);
    }
    for operation in operations.items() {
        operation.supported(enums::OPERATIONS, errors);
    }
    validate_resources(&rule.at("resources"), errors);
    rule.at("scope").supported(enums::SCOPES, errors);
}

/// Validates resources such as `pods`, `pods/status`, `pods/*`, `*/status`, `*` and `*/*` (`validateResources`).
fn validate_resources(resources: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if resources.count() == 0 {
        resources.required("", errors);
    }
    let (mut wildcard_resources, mut wildcard_subresources) = (BTreeSet::new(), BTreeSet::new());
    for item in resources.items() {
        let name = item.text();
        if name.is_empty() {
            item.required("", errors);
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else { continue };
        if wildcard_resources.contains(resource) {
            item.invalid(&format!("if '{resource}/*' is present, must not specify {name}"), errors);
        }
        if wildcard_subresources.contains(subresource) {
            item.invalid(&format!("if '*/{subresource}' is present, must not specify {name}"), errors);
        }
        if subresource == "*" {
            wildcard_resources.insert(resource);
        }
        if resource == "*" {
            wildcard_subresources.insert(subresource);
        }
    }
    let has = |name: &str| resources.items().any(|item| item.text() == name);
    if resources.count() > 1 && has("*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources", errors);
    }
    let whole = resources.items().map(|item| item.text()).filter(|name| !name.is_empty() && !name.contains('/'));
    // Like upstream, which checks the last resource without a subresource only.
    if has("*") && whole.last().is_some_and(|name| name != "*") {
        resources.invalid("if '*' is present, must not specify other resources without subresources", errors);
    }
}
