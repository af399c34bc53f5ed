//! `rbac.authorization.k8s.io/v1`. What these allow is decided in `authz`.

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME, NAME_AND_CREATION,
    checks::{items, text as text_of},
    fill,
    plain::{Plain, path_segment},
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) static ROLE: Plain = Plain {
    columns: NAME_AND_CREATION,
    name: path_segment,
    validate: |role, errors| rules(role, true, errors),
    ..Plain::of(&KindInfo { created_by_update: true, ..KindInfo::of(GROUP, "Role", "roles", "role") })
};
pub(super) static CLUSTER_ROLE: Plain = Plain {
    columns: NAME_AND_CREATION,
    name: path_segment,
    validate: |role, errors| {
        rules(role, false, errors);
        let at = FieldPath::new("aggregationRule").child("clusterRoleSelectors");
        if !role["aggregationRule"].is_null()
            && items(&role["aggregationRule"], "clusterRoleSelectors").next().is_none()
        {
            errors.required(&at, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (i, selector) in items(&role["aggregationRule"], "clusterRoleSelectors").enumerate() {
            super::selector::validate(selector, &at.index(i), errors);
        }
    },
    ..Plain::of(&KindInfo {
        created_by_update: true,
        ..KindInfo::of_cluster(GROUP, "ClusterRole", "clusterroles", "clusterrole")
    })
};
pub(super) static ROLE_BINDING: Plain = Plain {
    columns: BINDING,
    name: path_segment,
    default: default_binding,
    validate: |object, errors| binding(object, &["Role", "ClusterRole"], errors),
    validate_change: same_role,
    ..Plain::of(&KindInfo {
        created_by_update: true,
        ..KindInfo::of(GROUP, "RoleBinding", "rolebindings", "rolebinding")
    })
};
pub(super) static CLUSTER_ROLE_BINDING: Plain = Plain {
    columns: BINDING,
    name: path_segment,
    default: default_binding,
    validate: |object, errors| binding(object, &["ClusterRole"], errors),
    validate_change: same_role,
    ..Plain::of(&KindInfo {
        created_by_update: true,
        ..KindInfo::of_cluster(GROUP, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
    })
};

const BINDING: &[Column] = &[
    NAME,
    text(
        "Role",
        Cell::Of(|b, _| json!(format!("{}/{}", text_of(&b["roleRef"], "kind"), text_of(&b["roleRef"], "name")))),
    ),
    AGE,
    text("Users", Cell::Of(|b, _| json!(subjects(b, "User")))).wide(),
    text("Groups", Cell::Of(|b, _| json!(subjects(b, "Group")))).wide(),
    text("ServiceAccounts", Cell::Of(|b, _| json!(subjects(b, "ServiceAccount")))).wide(),
];

/// The names of a binding's subjects of a kind.
fn subjects(binding: &Value, kind: &str) -> String {
    let name = |s: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text_of(s, "namespace"), text_of(s, "name")),
        _ => text_of(s, "name").to_owned(),
    };
    items(binding, "subjects").filter(|s| s["kind"] == kind).map(name).collect::<Vec<_>>().join(", ")
}

/// `ValidatePolicyRule`.
fn rules(role: &Value, namespaced: bool, errors: &mut FieldErrors) {
    for (i, rule) in items(role, "rules").enumerate() {
        let path = FieldPath::new("rules").index(i);
        let has = |list: &str| items(rule, list).next().is_some();
        if !has("verbs") {
            errors.required(&path.child("verbs"), "verbs must contain at least one value");
        }
        if has("nonResourceURLs") {
            let at = path.child("nonResourceURLs");
            if namespaced {
                errors.invalid(&at, &rule["nonResourceURLs"], "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].into_iter().any(has) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&at, &rule["nonResourceURLs"], why);
            }
            continue;
        }
        if !has("apiGroups") {
            errors.required(&path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if !has("resources") {
            errors.required(&path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

/// Users and groups, and the role, are of this group where nothing else is said.
fn default_binding(object: &mut Value) {
    fill::at(object, "/roleRef", &[("apiGroup", json!(GROUP))]);
    for i in 0..items(object, "subjects").count() {
        if matches!(text_of(&object["subjects"][i], "kind"), "User" | "Group") {
            fill::at(object, &format!("/subjects/{i}"), &[("apiGroup", json!(GROUP))]);
        }
    }
}

/// `ValidateRoleBinding`, `ValidateRoleBindingSubject`.
fn binding(object: &Value, kinds: &[&str], errors: &mut FieldErrors) {
    let (path, role) = (FieldPath::new("roleRef"), &object["roleRef"]);
    if role["apiGroup"] != GROUP {
        errors.not_supported(&path.child("apiGroup"), &json!(text_of(role, "apiGroup")), &[GROUP]);
    }
    if !kinds.contains(&text_of(role, "kind")) {
        errors.not_supported(&path.child("kind"), &json!(text_of(role, "kind")), kinds);
    }
    match text_of(role, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => path_segment(name).iter().for_each(|e| errors.invalid(&path.child("name"), &role["name"], e)),
    }
    for (i, subject) in items(object, "subjects").enumerate() {
        let path = FieldPath::new("subjects").index(i);
        if text_of(subject, "name").is_empty() {
            errors.required(&path.child("name"), "");
        }
        let group = text_of(subject, "apiGroup");
        match text_of(subject, "kind") {
            "ServiceAccount" => {
                let (at, name) = (path.child("name"), text_of(subject, "name"));
                if !name.is_empty() {
                    let wrong = api::names::dns1123_subdomain(name);
                    wrong.iter().for_each(|e| errors.invalid(&at, &subject["name"], e));
                }
                if !group.is_empty() {
                    errors.not_supported(&path.child("apiGroup"), &subject["apiGroup"], &[""]);
                }
                // Else it is the binding's own.
                if kinds == ["ClusterRole"] && text_of(subject, "namespace").is_empty() {
                    errors.required(&path.child("namespace"), "");
                }
            }
            "User" | "Group" if group != GROUP => {
                errors.not_supported(&path.child("apiGroup"), &subject["apiGroup"], &[GROUP]);
            }
            "User" | "Group" => {}
            _ => errors.not_supported(&path.child("kind"), &subject["kind"], &["ServiceAccount", "User", "Group"]),
        }
    }
}

/// Whoever may change subjects may not change what they may do.
fn same_role(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object["roleRef"] != old["roleRef"] {
        // Upstream shows its internal form, which has no names of JSON.
        let of = &object["roleRef"];
        let shown = json!({"APIGroup": of["apiGroup"], "Kind": of["kind"], "Name": of["name"]});
        errors.invalid(&FieldPath::new("roleRef"), &shown, "cannot change roleRef");
    }
}
