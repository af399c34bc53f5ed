//! Whether rules give no more than other rules do (`k8s.io/component-helpers/auth/rbac/validation`). Pure.

use super::rule::{Rule, url_covers};
use std::{borrow::Borrow, collections::BTreeMap};

/// How many single rights are looked at: whoever writes a role with more of them must be allowed to escalate.
const MOST: usize = 20_000;
/// How many missing rights are worth telling.
const TOLD: usize = 1_000;

/// What the wanted rules give and the owned ones do not, each a single right.
pub(crate) fn missing<O: Borrow<Rule>>(owned: &[O], wanted: &[Rule]) -> Vec<Rule> {
    let covers = |right: &Rule| owned.iter().any(|rule| covers(rule.borrow(), right));
    let mut missing = Vec::new();
    for (n, right) in wanted.iter().filter(|rule| !covers(rule)).flat_map(rights).enumerate() {
        if n >= MOST || !covers(&right) {
            missing.push(right);
        }
        if n >= MOST || missing.len() >= TOLD {
            break;
        }
    }
    missing
}

/// Whether one rule gives all that another does.
fn covers(owned: &Rule, wanted: &Rule) -> bool {
    let all = |owned: &[String], wanted: &[String]| has(owned, "*") || wanted.iter().all(|w| has(owned, w));
    let names = if wanted.resource_names.is_empty() {
        owned.resource_names.is_empty()
    } else {
        owned.resource_names.is_empty() || wanted.resource_names.iter().all(|w| has(&owned.resource_names, w))
    };
    all(&owned.verbs, &wanted.verbs)
        && all(&owned.api_groups, &wanted.api_groups)
        && (has(&owned.resources, "*") || wanted.resources.iter().all(|w| has_resource(&owned.resources, w)))
        && wanted.urls.iter().all(|w| owned.urls.iter().any(|o| url_covers(o, w)))
        && names
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|value| value == wanted)
}

fn has_resource(owned: &[String], wanted: &str) -> bool {
    has(owned, wanted) || wanted.split_once('/').is_some_and(|(_, part)| has(owned, &format!("*/{part}")))
}

/// The single rights of a rule: one verb on one resource, or on one path.
fn rights(rule: &Rule) -> impl Iterator<Item = Rule> {
    let resources = rule.api_groups.iter().flat_map(move |group| {
        rule.resources.iter().flat_map(move |resource| {
            rule.verbs.iter().flat_map(move |verb| {
                let names = rule.resource_names.iter().map(Some);
                let none = rule.resource_names.is_empty().then_some(None);
                names.chain(none).map(move |name| Rule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: name.cloned().into_iter().collect(),
                    urls: Vec::new(),
                })
            })
        })
    });
    let urls = rule.urls.iter().flat_map(move |url| {
        let right = move |verb: &String| Rule { verbs: vec![verb.clone()], urls: vec![url.clone()], ..Rule::default() };
        rule.verbs.iter().map(right)
    });
    resources.chain(urls)
}

/// Single rights on the same thing as one rule.
pub(crate) fn compact(rights: Vec<Rule>) -> Vec<Rule> {
    let (mut compacted, mut simple) = (Vec::new(), BTreeMap::<_, Rule>::new());
    for right in rights {
        if right.urls.is_empty() && right.api_groups.len() == 1 && right.resources.len() == 1 {
            let key = (right.api_groups.clone(), right.resources.clone(), right.resource_names.clone());
            match simple.get_mut(&key) {
                Some(known) => known.verbs.extend(right.verbs),
                None => drop(simple.insert(key, right)),
            }
        } else {
            compacted.push(right);
        }
    }
    compacted.extend(simple.into_values());
    compacted
}

/// A rule as Go writes it in an error.
pub(crate) fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// `["a" "b"]`, Go's `%q` of a list.
pub(crate) fn quoted(list: &[String]) -> String {
    let all: Vec<String> = list.iter().map(|value| api::go_quote::quoted(value)).collect();
    format!("[{}]", all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups, resources, verbs and names, each with blanks between them.
    fn rule(groups: &str, resources: &str, verbs: &str, names: &str) -> Rule {
        let list = |text: &str| text.split(' ').filter(|t| !t.is_empty()).map(|t| t.replace("core", "")).collect();
        Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: list(names),
            urls: Vec::new(),
        }
    }

    #[track_caller]
    fn check(owned: &[Rule], wanted: &Rule, expected: &[&str]) {
        let missing = compact(missing(owned, std::slice::from_ref(wanted)));
        assert_eq!(missing.iter().map(describe).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rights_may_come_from_several_rules() {
        let owned = [rule("core", "pods", "get list", ""), rule("core apps", "pods services", "watch", "")];
        check(&owned, &rule("core", "pods", "watch get list", ""), &[]);
        check(
            &owned,
            &rule("core", "pods services", "get watch delete", ""),
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}"#,
                r#"{APIGroups:[""], Resources:["services"], Verbs:["get" "delete"]}"#,
            ],
        );
    }

    #[test]
    fn a_star_gives_everything_and_is_given_by_nothing_less() {
        let everything = Rule::everything();
        for wanted in everything.clone().iter().chain([&rule("any.io", "a/b", "x", "y")]) {
            check(&everything, wanted, &[]);
        }
        check(
            &[rule("core", "pods", "get list watch create update patch delete", "")],
            &rule("core", "pods", "*", ""),
            &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#],
        );
        check(&[rule("*", "*/scale", "get", "")], &rule("apps", "deployments/scale", "get", ""), &[]);
    }

    #[test]
    fn names_narrow_a_right() {
        let owned = [rule("core", "secrets", "get", "a b")];
        check(&owned, &rule("core", "secrets", "get", "a"), &[]);
        check(
            &owned,
            &rule("core", "secrets", "get", "b c"),
            &[r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["c"], Verbs:["get"]}"#],
        );
        check(
            &owned,
            &rule("core", "secrets", "get", ""),
            &[r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#],
        );
        check(&[rule("core", "secrets", "get", "")], &rule("core", "secrets", "get", "a"), &[]);
    }

    #[test]
    fn paths_are_covered_by_those_that_end_in_a_star() {
        let urls = |all: &[&str]| Rule {
            verbs: vec!["get".into()],
            urls: all.iter().map(|u| (*u).to_owned()).collect(),
            ..Rule::default()
        };
        check(&[urls(&["/api/*", "/x"])], &urls(&["/api/v1", "/x", "/api/*"]), &[]);
        check(
            &[urls(&["/api/*"])],
            &urls(&["/api", "/y"]),
            &[r#"{NonResourceURLs:["/api"], Verbs:["get"]}"#, r#"{NonResourceURLs:["/y"], Verbs:["get"]}"#],
        );
    }

    #[test]
    fn a_role_of_billions_of_rights_is_not_gone_through() {
        let many: Vec<String> = (0..5_000).map(|i| i.to_string()).collect();
        let one = std::slice::from_ref;
        let huge = Rule { verbs: many.clone(), api_groups: many.clone(), resources: many, ..Rule::default() };
        assert_eq!(missing::<Rule>(&[], one(&huge)).len(), TOLD);
        let nearly = Rule { api_groups: vec!["*".into()], resources: vec!["*".into()], ..huge.clone() };
        assert!(missing(one(&nearly), one(&huge)).is_empty());
        let halves = [
            Rule { verbs: nearly.verbs[..2_500].to_vec(), ..nearly.clone() },
            Rule { verbs: nearly.verbs[2_500..].to_vec(), ..nearly },
        ];
        assert_eq!(missing(&halves, &[huge]).len(), 1);
    }
}
