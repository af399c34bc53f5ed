//! Comparison of policy rules, to find rules that grant more than others
//! (`k8s.io/component-helpers/auth/rbac/validation/policy_comparator.go`). Does no I/O.

use super::policy_rule::PolicyRule;
use request::non_resource_url_matches;
use std::{borrow::Borrow, collections::BTreeMap};

/// Maximum number of single permissions that are compared. To write a role with more of them, a user needs `escalate`.
const MAX_BREAKDOWN: usize = 20_000;
/// Maximum number of uncovered permissions that are reported.
const MAX_UNCOVERED: usize = 1_000;

/// Returns the permissions of the servant rules that the owner's rules do not cover, one rule for each (`Covers`).
pub fn uncovered_rules<O: Borrow<PolicyRule>>(owner: &[O], servant: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_covered = |permission: &PolicyRule| owner.iter().any(|rule| rule_covers(rule.borrow(), permission));
    let mut uncovered = Vec::new();
    for (n, permission) in servant.iter().filter(|rule| !is_covered(rule)).flat_map(breakdown_rule).enumerate() {
        if n >= MAX_BREAKDOWN || !is_covered(&permission) {
            uncovered.push(permission);
        }
        if n >= MAX_BREAKDOWN || uncovered.len() >= MAX_UNCOVERED {
            break;
        }
    }
    uncovered
}

/// Whether one rule allows all that another allows (`ruleCovers`).
fn rule_covers(owner: &PolicyRule, servant: &PolicyRule) -> bool {
    let all = |owner: &[String], servant: &[String]| has(owner, "*") || servant.iter().all(|value| has(owner, value));
    let names = if servant.resource_names.is_empty() {
        owner.resource_names.is_empty()
    } else {
        owner.resource_names.is_empty() || servant.resource_names.iter().all(|name| has(&owner.resource_names, name))
    };
    let covers_url = |url: &String| owner.non_resource_urls.iter().any(|o| non_resource_url_matches(o, url));
    all(&owner.verbs, &servant.verbs)
        && all(&owner.api_groups, &servant.api_groups)
        && (has(&owner.resources, "*") || servant.resources.iter().all(|r| covers_resource(&owner.resources, r)))
        && servant.non_resource_urls.iter().all(covers_url)
        && names
}

fn has(list: &[String], name: &str) -> bool {
    list.iter().any(|value| value == name)
}

fn covers_resource(owner: &[String], resource: &str) -> bool {
    has(owner, resource)
        || resource.split_once('/').is_some_and(|(_, subresource)| has(owner, &format!("*/{subresource}")))
}

/// Breaks a rule down into single permissions: one verb on one resource or URL (`BreakdownRule`).
fn breakdown_rule(rule: &PolicyRule) -> impl Iterator<Item = PolicyRule> {
    let resources = rule.api_groups.iter().flat_map(move |group| {
        rule.resources.iter().flat_map(move |resource| {
            rule.verbs.iter().flat_map(move |verb| {
                let names = rule.resource_names.iter().map(Some);
                let none = rule.resource_names.is_empty().then_some(None);
                names.chain(none).map(move |name| PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: name.cloned().into_iter().collect(),
                    non_resource_urls: Vec::new(),
                })
            })
        })
    });
    let urls = rule.non_resource_urls.iter().flat_map(move |url| {
        let permission = move |verb: &String| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        };
        rule.verbs.iter().map(permission)
    });
    resources.chain(urls)
}

/// Joins single permissions on the same resource into one rule (`CompactRules`).
pub fn compact_rules(permissions: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let (mut compacted, mut simple) = (Vec::new(), BTreeMap::<_, PolicyRule>::new());
    for permission in permissions {
        let is_simple = permission.non_resource_urls.is_empty()
            && permission.api_groups.len() == 1
            && permission.resources.len() == 1;
        if is_simple {
            let key = (permission.api_groups.clone(), permission.resources.clone(), permission.resource_names.clone());
            match simple.get_mut(&key) {
                Some(existing) => existing.verbs.extend(permission.verbs),
                None => drop(simple.insert(key, permission)),
            }
        } else {
            compacted.push(permission);
        }
    }
    compacted.extend(simple.into_values());
    compacted
}

/// Returns the text of a rule in errors (`CompactString`).
pub fn compact_string(rule: &PolicyRule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", go_quoted_list(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// Formats a list as Go's `%q`, for example `["a" "b"]`.
pub fn go_quoted_list(list: &[String]) -> String {
    let all: Vec<String> = list.iter().map(|value| api::go_quote::quoted(value)).collect();
    format!("[{}]", all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rule of groups, resources, verbs and names, which are separated by blanks.
    fn rule(groups: &str, resources: &str, verbs: &str, names: &str) -> PolicyRule {
        let list = |text: &str| text.split(' ').filter(|t| !t.is_empty()).map(|t| t.replace("core", "")).collect();
        PolicyRule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            non_resource_urls: Vec::new(),
        }
    }

    #[track_caller]
    fn check(owner: &[PolicyRule], servant: &PolicyRule, expected: &[&str]) {
        let uncovered = compact_rules(uncovered_rules(owner, std::slice::from_ref(servant)));
        assert_eq!(uncovered.iter().map(compact_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn permissions_may_come_from_several_rules() {
        let owner = [rule("core", "pods", "get list", ""), rule("core apps", "pods services", "watch", "")];
        check(&owner, &rule("core", "pods", "watch get list", ""), &[]);
        check(
            &owner,
            &rule("core", "pods services", "get watch delete", ""),
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#,
                r#"{APIGroups:[""], Resources:["services"], Verbs:["get" "delete"]}"#,
            ],
        );
    }

    #[test]
    fn star_covers_everything_and_is_covered_by_star_only() {
        let full_authority = PolicyRule::full_authority();
        for servant in full_authority.clone().iter().chain([&rule("any.io", "a/b", "x", "y")]) {
            check(&full_authority, servant, &[]);
        }
        check(
            &[rule("core", "pods", "get list watch create update patch delete", "")],
            &rule("core", "pods", "*", ""),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#],
        );
        check(&[rule("*", "*/scale", "get", "")], &rule("apps", "deployments/scale", "get", ""), &[]);
    }

    #[test]
    fn resource_names_narrow_a_permission() {
        let owner = [rule("core", "secrets", "get", "a b")];
        check(&owner, &rule("core", "secrets", "get", "a"), &[]);
        check(
            &owner,
            &rule("core", "secrets", "get", "b c"),
            &[r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["c"], Verbs:["get"]}"#],
        );
        check(
            &owner,
            &rule("core", "secrets", "get", ""),
            &[r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#],
        );
        check(&[rule("core", "secrets", "get", "")], &rule("core", "secrets", "get", "a"), &[]);
    }

    #[test]
    fn urls_are_covered_by_urls_that_end_in_a_star() {
        let urls = |all: &[&str]| PolicyRule {
            verbs: vec!["get".into()],
            non_resource_urls: all.iter().map(|u| (*u).to_owned()).collect(),
            ..PolicyRule::default()
        };
        check(&[urls(&["/api/*", "/x"])], &urls(&["/api/v1", "/x", "/api/*"]), &[]);
        check(
            &[urls(&["/api/*"])],
            &urls(&["/api", "/y"]),
            &[r#"{NonResourceURLs:["/api"], Verbs:["get"]}"#, r#"{NonResourceURLs:["/y"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn comparison_of_a_huge_role_is_bounded() {
        let many: Vec<String> = (0..5_000).map(|i| i.to_string()).collect();
        let one = std::slice::from_ref;
        let huge =
            PolicyRule { verbs: many.clone(), api_groups: many.clone(), resources: many, ..PolicyRule::default() };
        assert_eq!(uncovered_rules::<PolicyRule>(&[], one(&huge)).len(), MAX_UNCOVERED);
        let nearly = PolicyRule { api_groups: vec!["*".into()], resources: vec!["*".into()], ..huge.clone() };
        assert!(uncovered_rules(one(&nearly), one(&huge)).is_empty());
        let halves = [
            PolicyRule { verbs: nearly.verbs[..2_500].to_vec(), ..nearly.clone() },
            PolicyRule { verbs: nearly.verbs[2_500..].to_vec(), ..nearly },
        ];
        assert_eq!(uncovered_rules(&halves, &[huge]).len(), 1);
    }
}
