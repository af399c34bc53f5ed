//! Tests of decisions by roles and bindings.

use super::*;
use crate::authorization::rbac;
use request::{Attributes, Decision, RequestTarget, ResourceAttributes};
use serde_json::{Value, json};

fn policy(objects: &[Value]) -> RuleResolver {
    let mut policy = RuleResolver::default();
    for object in objects {
        let (namespace, name) = (object["ns"].as_str().unwrap_or(""), object["name"].as_str().unwrap());
        match object.get("rules") {
            Some(_) => policy.set_role(namespace, name, Some(serde_json::from_value(object.clone()).unwrap())),
            None => policy.set_binding(namespace, name, Some(serde_json::from_value(object.clone()).unwrap())),
        }
    }
    policy
}

fn role(namespace: &str, name: &str, verb: &str) -> Value {
    json!({"ns": namespace, "name": name, "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
}

fn binding(namespace: &str, name: &str, role: &str, subjects: Value) -> Value {
    let (kind, role) = role.split_once('/').unwrap();
    json!({"ns": namespace, "name": name, "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo { name: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..UserInfo::default() }
}

fn pods(verb: &str, namespace: &str) -> Attributes {
    let resource =
        ResourceAttributes { resource: "pods".into(), namespace: namespace.into(), ..ResourceAttributes::default() };
    Attributes::for_resource(verb, resource)
}

#[track_caller]
fn check(policy: &RuleResolver, user: &UserInfo, attributes: &Attributes, expected: &str) {
    let got = match rbac::authorize(policy, user, attributes) {
        Decision::Allowed(reason) => format!("yes {reason}"),
        Decision::NoOpinion(reason) => format!("no {reason}"),
    };
    assert_eq!(got.trim_end(), expected);
}

#[test]
fn cluster_role_binding_applies_in_all_namespaces() {
    let ann = json!([{"kind": "User", "name": "ann"}]);
    let policy = policy(&[role("", "reader", "get"), binding("", "b", "ClusterRole/reader", ann)]);
    let allowed = r#"yes RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "ann""#;
    check(&policy, &user("ann", &[]), &pods("get", "n"), allowed);
    check(&policy, &user("ann", &[]), &pods("get", ""), allowed);
    check(&policy, &user("ann", &[]), &pods("list", ""), "no");
    check(&policy, &user("bob", &["ann"]), &pods("get", "n"), "no");
}

#[test]
fn role_binding_applies_in_its_namespace_only() {
    let all = json!([{"kind": "Group", "name": "devs"}]);
    let policy = policy(&[
        role("", "reader", "get"),
        role("n", "lister", "list"),
        binding("n", "cluster", "ClusterRole/reader", all.clone()),
        binding("n", "own", "Role/lister", all.clone()),
        binding("m", "other", "Role/lister", all),
    ]);
    let dev = user("ann", &["x", "devs"]);
    check(
        &policy,
        &dev,
        &pods("get", "n"),
        r#"yes RBAC: allowed by RoleBinding "cluster/n" of ClusterRole "reader" to Group "devs""#,
    );
    check(
        &policy,
        &dev,
        &pods("list", "n"),
        r#"yes RBAC: allowed by RoleBinding "own/n" of Role "lister" to Group "devs""#,
    );
    check(&policy, &dev, &pods("get", ""), "no");
    // A Role of another namespace is not found.
    check(&policy, &dev, &pods("list", "m"), r#"no RBAC: role.rbac.authorization.k8s.io "lister" not found"#);
    let path = Attributes { verb: "get".into(), target: RequestTarget::NonResource("/x".into()) };
    check(&policy, &dev, &path, "no");
}

#[test]
fn service_account_subject_matches_its_user() {
    let subjects = json!([{"kind": "ServiceAccount", "name": "app", "namespace": "n"}]);
    let nowhere = json!([{"kind": "ServiceAccount", "name": "lost"}]);
    let policy = policy(&[
        role("", "reader", "get"),
        binding("", "b", "ClusterRole/reader", subjects),
        binding("", "c", "ClusterRole/reader", nowhere.clone()),
        binding("m", "d", "ClusterRole/reader", nowhere),
    ]);
    check(
        &policy,
        &user("system:serviceaccount:n:app", &[]),
        &pods("get", "m"),
        r#"yes RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to ServiceAccount "app/n""#,
    );
    check(&policy, &user("app", &["system:serviceaccounts:n"]), &pods("get", "m"), "no");
    check(&policy, &user("system:serviceaccount::lost", &[]), &pods("get", "n"), "no");
    check(
        &policy,
        &user("system:serviceaccount:m:lost", &[]),
        &pods("get", "m"),
        r#"yes RBAC: allowed by RoleBinding "d/m" of ClusterRole "reader" to ServiceAccount "lost/""#,
    );
}

#[test]
fn missing_roles_are_reported_once_and_do_not_block() {
    let ann = json!([{"kind": "User", "name": "ann"}, {"kind": "Group", "name": "g"}]);
    let mut policy = policy(&[
        binding("", "a", "ClusterRole/x", ann.clone()),
        binding("", "b", "ClusterRole/y", ann.clone()),
        binding("", "z", "ClusterRole/reader", ann),
    ]);
    let ann = user("ann", &["g"]);
    let missing = |names: &[&str]| {
        let all: Vec<String> =
            names.iter().map(|n| format!("clusterrole.rbac.authorization.k8s.io {n:?} not found")).collect();
        format!("no RBAC: [{}]", all.join(", "))
    };
    check(&policy, &ann, &pods("get", ""), &missing(&["x", "y", "reader"]));
    let reader = role("", "reader", "get");
    policy.set_role("", "reader", Some(serde_json::from_value(reader).unwrap()));
    let allowed = r#"yes RBAC: allowed by ClusterRoleBinding "z" of ClusterRole "reader" to User "ann""#;
    check(&policy, &ann, &pods("get", ""), allowed);
    policy.set_binding("", "z", None);
    check(&policy, &ann, &pods("get", ""), &missing(&["x", "y"]));
}

#[test]
fn changed_binding_drops_its_old_subjects() {
    let named = |name: &str| binding("n", "b", "ClusterRole/reader", json!([{"kind": "User", "name": name}]));
    let mut policy = policy(&[role("", "reader", "get"), named("ann")]);
    policy.set_binding("n", "b", Some(serde_json::from_value(named("bob")).unwrap()));
    check(&policy, &user("ann", &[]), &pods("get", "n"), "no");
    assert!(matches!(rbac::authorize(&policy, &user("bob", &[]), &pods("get", "n")), Decision::Allowed(_)));
    policy.set_binding("n", "b", None);
    policy.set_role("", "reader", None);
    assert!(policy.bindings.is_empty() && policy.roles.is_empty());
}

#[test]
fn lookup_visits_only_bindings_of_the_user() {
    let mut policy = policy(&[role("", "reader", "get")]);
    for i in 0..10_000 {
        let one =
            binding("", &format!("b{i}"), "ClusterRole/reader", json!([{"kind": "User", "name": format!("u{i}")}]));
        policy.set_binding("", &format!("b{i}"), Some(serde_json::from_value(one).unwrap()));
    }
    assert_eq!(policy.applicable_bindings(&user("u77", &["g"]), "n").count(), 1);
    assert_eq!(policy.applicable_bindings(&user("nobody", &["g"]), "n").count(), 0);
}
