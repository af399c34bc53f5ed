//! What may be done in a new cluster: upstream's roles and bindings, and how those that are there are brought up to date.

mod controllers;
mod namespaced;
mod reconcile;
mod roles;
mod text;

pub(crate) use reconcile::{Reconciled, reconcile};

use super::rule::Rule;
use serde_json::{Value, json};
use std::sync::LazyLock;
use text::{Role, RuleText, Subject};

const GROUP: &str = "rbac.authorization.k8s.io";
/// Says `false` on what is to stay as somebody made it.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Bindings that were one once, and what was taken out of them (`clusterRoleBindingsToSplit`).
pub(crate) const SPLIT: &[(&str, &str)] = &[("system:discovery", "system:public-info-viewer")];

/// What was taken out of a binding: to the same subjects, with the same labels and annotations.
pub(crate) fn split(whole: &Value, part: &str) -> Value {
    let meta = &whole["metadata"];
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": part, "labels": meta["labels"], "annotations": meta["annotations"]},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": part},
        "subjects": whole["subjects"],
    })
}

/// An object that is to be there.
pub(crate) struct Default {
    pub(crate) resource: &'static str,
    /// Empty for one of the cluster.
    pub(crate) namespace: &'static str,
    pub(crate) name: String,
    pub(crate) object: Value,
}

/// What every node may do.
pub(crate) fn of_nodes() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
        let role = roles::FOR_PROGRAMS.iter().find(|role| role.name == "system:node");
        role.map(|role| rules(role.rules)).unwrap_or_default()
    });
    &RULES
}

/// Everything, roles before the bindings that name them.
pub(crate) fn all() -> Vec<Default> {
    let mut all: Vec<Default> = Vec::new();
    let plain = roles::FOR_USERS.iter().chain(roles::FOR_PROGRAMS);
    all.extend(plain.map(|role| cluster_role(role.name, &rules(role.rules), role.label)));
    all.extend(aggregated());
    for (name, rules_of) in controllers::ALL {
        all.push(cluster_role(&format!("system:controller:{name}"), &rules(rules_of), ""));
    }
    for role in namespaced::ALL {
        let object = object("Role", role.role, &json!({"rules": rules(role.rules)}));
        all.push(Default { resource: "roles", namespace: role.namespace, name: role.role.to_owned(), object });
    }
    all.extend(roles::BINDINGS.iter().map(|(role, subjects)| binding("", role, role, subjects)));
    for (name, _) in controllers::ALL {
        let role = format!("system:controller:{name}");
        all.push(binding("", &role, &role, &[Subject::Account("kube-system", name)]));
    }
    all.extend(namespaced::ALL.iter().map(|r| binding(r.namespace, r.binding, r.role, r.subjects)));
    all
}

fn rules(texts: &[RuleText]) -> Vec<Rule> {
    texts.iter().map(RuleText::rule).collect()
}

fn object(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}, "annotations": {AUTOUPDATE: "true"}},
    });
    for (field, value) in rest.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

fn cluster_role(name: &str, rules: &[Rule], label: &str) -> Default {
    let mut object = object("ClusterRole", name, &json!({"rules": rules}));
    for label in label.split_whitespace() {
        object["metadata"]["labels"][aggregate_to(label)] = json!("true");
    }
    Default { resource: "clusterroles", namespace: "", name: name.to_owned(), object }
}

fn aggregate_to(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

/// `view`, `edit` and `admin`, which are made of others; their rules are what the controller that aggregates them would
/// make of a new cluster, so that it has nothing to do.
fn aggregated() -> Vec<Default> {
    let of = |label: &str| -> Vec<Rule> {
        let parts = roles::FOR_USERS.iter().filter(|role: &&Role| role.label.split_whitespace().any(|l| l == label));
        parts.flat_map(|role| rules(role.rules)).collect()
    };
    let join = |first: Vec<Rule>, second: Vec<Rule>| {
        let mut all = first;
        for rule in second {
            if !all.contains(&rule) {
                all.push(rule);
            }
        }
        all
    };
    // In the order of the parts' names.
    let view = of("view");
    let edit = join(of("edit"), view.clone());
    let admin = join(edit.clone(), of("admin"));
    let made = |name: &str, rules: &[Rule], part_of: &str| {
        let mut role = cluster_role(name, rules, part_of);
        let selector = json!({"matchLabels": {aggregate_to(name): "true"}});
        role.object["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        role
    };
    vec![made("view", &view, "edit"), made("edit", &edit, "admin"), made("admin", &admin, "")]
}

fn binding(namespace: &'static str, name: &str, role: &str, subjects: &[Subject]) -> Default {
    let (kind, of, resource) = if namespace.is_empty() {
        ("ClusterRoleBinding", "ClusterRole", "clusterrolebindings")
    } else {
        ("RoleBinding", "Role", "rolebindings")
    };
    let mut rest = json!({"roleRef": {"apiGroup": GROUP, "kind": of, "name": role}});
    if !subjects.is_empty() {
        rest["subjects"] = subjects.iter().map(Subject::json).collect();
    }
    Default { resource, namespace, name: name.to_owned(), object: object(kind, name, &rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_object_is_there_once_and_bindings_name_roles_that_are_there() {
        let all = all();
        let keys: BTreeSet<_> = all.iter().map(|d| (d.resource, d.namespace, d.name.clone())).collect();
        assert_eq!((keys.len(), all.len()), (132, 132));
        for binding in all.iter().filter(|d| d.resource.ends_with("bindings")) {
            let role = &binding.object["roleRef"];
            let resource = if role["kind"] == "Role" { "roles" } else { "clusterroles" };
            let key = (resource, binding.namespace, role["name"].as_str().unwrap().to_owned());
            assert!(keys.contains(&key), "{key:?}");
        }
    }

    #[test]
    fn an_administrator_of_a_namespace_may_what_an_editor_may_and_an_editor_what_a_viewer_may() {
        let all = all();
        let rules = |name: &str| {
            let role = all.iter().find(|d| d.name == name).unwrap();
            serde_json::from_value::<Vec<Rule>>(role.object["rules"].clone()).unwrap()
        };
        let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
        assert_eq!((view.len(), edit.len(), admin.len()), (13, 28, 30));
        assert!(view.iter().all(|r| edit.contains(r)) && edit.iter().all(|r| admin.contains(r)));
        let secrets = |rules: &[Rule]| rules.iter().any(|r| r.resources.contains(&"secrets".to_owned()));
        assert!(!secrets(&view) && secrets(&edit));
    }
}
