//! Default RBAC roles and bindings of a cluster (upstream's `bootstrappolicy`).

mod cluster_roles;
mod controller_roles;
mod namespace_roles;
mod reconcile;
mod rule_builder;

pub use reconcile::{ReconcileOperation, reconcile};

use super::policy_rule::PolicyRule;
use rule_builder::{Role, RuleTemplate, Subject};
use serde_json::{Value, json};
use std::sync::LazyLock;

const GROUP: &str = "rbac.authorization.k8s.io";
/// Annotation of a role or binding. `false` disables reconciliation.
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// ClusterRoleBindings that were split, and the new ones (`clusterRoleBindingsToSplit`).
pub const CLUSTER_ROLE_BINDINGS_TO_SPLIT: &[(&str, &str)] = &[("system:discovery", "system:public-info-viewer")];

/// Returns the new binding of a split: with the subjects, labels and annotations of the old one.
pub fn split_cluster_role_binding(old: &Value, new_name: &str) -> Value {
    let meta = &old["metadata"];
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": new_name, "labels": meta["labels"], "annotations": meta["annotations"]},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": new_name},
        "subjects": old["subjects"],
    })
}

/// A default role or binding.
pub struct BootstrapObject {
    /// Its resource, for example `clusterroles`.
    pub resource: &'static str,
    /// Empty for a cluster-scoped object.
    pub namespace: &'static str,
    /// Its name.
    pub name: String,
    /// The whole object.
    pub object: Value,
}

/// Returns the rules of `system:node` (`NodeRules`).
pub fn node_rules() -> &'static [PolicyRule] {
    static RULES: LazyLock<Vec<PolicyRule>> = LazyLock::new(|| {
        let role = cluster_roles::COMPONENT_ROLES.iter().find(|role| role.name == "system:node");
        role.map(|role| rules(role.rules)).unwrap_or_default()
    });
    &RULES
}

/// Returns all default objects, roles before their bindings.
pub fn objects() -> Vec<BootstrapObject> {
    let mut all: Vec<BootstrapObject> = Vec::new();
    let plain = cluster_roles::USER_ROLES.iter().chain(cluster_roles::COMPONENT_ROLES);
    all.extend(plain.map(|role| cluster_role(role.name, &rules(role.rules), role.aggregate_to)));
    all.extend(aggregated_roles());
    for (name, templates) in controller_roles::CONTROLLER_ROLES {
        all.push(cluster_role(&format!("system:controller:{name}"), &rules(templates), ""));
    }
    for role in namespace_roles::NAMESPACE_ROLES {
        let object = object("Role", role.role, &json!({"rules": rules(role.rules)}));
        all.push(BootstrapObject { resource: "roles", namespace: role.namespace, name: role.role.to_owned(), object });
    }
    all.extend(cluster_roles::CLUSTER_ROLE_BINDINGS.iter().map(|(role, subjects)| binding("", role, role, subjects)));
    for (name, _) in controller_roles::CONTROLLER_ROLES {
        let role = format!("system:controller:{name}");
        all.push(binding("", &role, &role, &[Subject::ServiceAccount("kube-system", name)]));
    }
    all.extend(namespace_roles::NAMESPACE_ROLES.iter().map(|r| binding(r.namespace, r.binding, r.role, r.subjects)));
    all
}

fn rules(templates: &[RuleTemplate]) -> Vec<PolicyRule> {
    templates.iter().map(RuleTemplate::rule).collect()
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

fn cluster_role(name: &str, rules: &[PolicyRule], aggregate_to: &str) -> BootstrapObject {
    let mut object = object("ClusterRole", name, &json!({"rules": rules}));
    for role in aggregate_to.split_whitespace() {
        object["metadata"]["labels"][aggregation_label(role)] = json!("true");
    }
    BootstrapObject { resource: "clusterroles", namespace: "", name: name.to_owned(), object }
}

/// Returns the label of roles that are aggregated to a role.
fn aggregation_label(role: &str) -> String {
    format!("{GROUP}/aggregate-to-{role}")
}

/// Returns the aggregated roles `view`, `edit` and `admin`. Their rules are those that the ClusterRole aggregation
/// controller computes in a new cluster, so that it has nothing to update.
fn aggregated_roles() -> Vec<BootstrapObject> {
    let rules_of = |name: &str| -> Vec<PolicyRule> {
        let parts = cluster_roles::USER_ROLES
            .iter()
            .filter(|role: &&Role| role.aggregate_to.split_whitespace().any(|l| l == name));
        parts.flat_map(|role| rules(role.rules)).collect()
    };
    let join = |first: Vec<PolicyRule>, second: Vec<PolicyRule>| {
        let mut all = first;
        for rule in second {
            if !all.contains(&rule) {
                all.push(rule);
            }
        }
        all
    };
    // In the order of the aggregated roles' names.
    let view = rules_of("view");
    let edit = join(rules_of("edit"), view.clone());
    let admin = join(edit.clone(), rules_of("admin"));
    let aggregated = |name: &str, rules: &[PolicyRule], aggregate_to: &str| {
        let mut role = cluster_role(name, rules, aggregate_to);
        let selector = json!({"matchLabels": {aggregation_label(name): "true"}});
        role.object["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        role
    };
    vec![aggregated("view", &view, "edit"), aggregated("edit", &edit, "admin"), aggregated("admin", &admin, "")]
}

fn binding(namespace: &'static str, name: &str, role: &str, subjects: &[Subject]) -> BootstrapObject {
    let (kind, role_kind, resource) = if namespace.is_empty() {
        ("ClusterRoleBinding", "ClusterRole", "clusterrolebindings")
    } else {
        ("RoleBinding", "Role", "rolebindings")
    };
    let mut rest = json!({"roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role}});
    if !subjects.is_empty() {
        rest["subjects"] = subjects.iter().map(Subject::json).collect();
    }
    BootstrapObject { resource, namespace, name: name.to_owned(), object: object(kind, name, &rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn objects_are_unique_and_bindings_reference_default_roles() {
        let all = objects();
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
    fn admin_includes_edit_and_edit_includes_view() {
        let all = objects();
        let rules = |name: &str| {
            let role = all.iter().find(|d| d.name == name).unwrap();
            serde_json::from_value::<Vec<PolicyRule>>(role.object["rules"].clone()).unwrap()
        };
        let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
        assert_eq!((view.len(), edit.len(), admin.len()), (13, 28, 30));
        assert!(view.iter().all(|r| edit.contains(r)) && edit.iter().all(|r| admin.contains(r)));
        let secrets = |rules: &[PolicyRule]| rules.iter().any(|r| r.resources.contains(&"secrets".to_owned()));
        assert!(!secrets(&view) && secrets(&edit));
    }
}
