//! Kinds of `rbac.authorization.k8s.io/v1`. `authorization` evaluates them.

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME, NAME_AND_CREATION, defaulting,
    field_validation::{items, text as text_of},
    generic_kind::{GenericKind, validate_path_segment_name},
    text,
};
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) static ROLE: GenericKind = GenericKind {
    columns: NAME_AND_CREATION,
    name: validate_path_segment_name,
    validate: |role, errors| validate_rules(role, true, errors),
    ..GenericKind::new(&KindInfo {
        allow_create_on_update: true,
        ..KindInfo::namespaced(GROUP, "Role", "roles", "role")
    })
};
pub(super) static CLUSTER_ROLE: GenericKind = GenericKind {
    columns: NAME_AND_CREATION,
    name: validate_path_segment_name,
    validate: |role, errors| {
        validate_rules(role, false, errors);
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
    ..GenericKind::new(&KindInfo {
        allow_create_on_update: true,
        ..KindInfo::cluster_scoped(GROUP, "ClusterRole", "clusterroles", "clusterrole")
    })
};
pub(super) static ROLE_BINDING: GenericKind = GenericKind {
    columns: BINDING_COLUMNS,
    name: validate_path_segment_name,
    default: set_binding_defaults,
    validate: |object, errors| validate_binding(object, &["Role", "ClusterRole"], errors),
    validate_change: validate_role_ref_unchanged,
    ..GenericKind::new(&KindInfo {
        allow_create_on_update: true,
        ..KindInfo::namespaced(GROUP, "RoleBinding", "rolebindings", "rolebinding")
    })
};
pub(super) static CLUSTER_ROLE_BINDING: GenericKind = GenericKind {
    columns: BINDING_COLUMNS,
    name: validate_path_segment_name,
    default: set_binding_defaults,
    validate: |object, errors| validate_binding(object, &["ClusterRole"], errors),
    validate_change: validate_role_ref_unchanged,
    ..GenericKind::new(&KindInfo {
        allow_create_on_update: true,
        ..KindInfo::cluster_scoped(GROUP, "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding")
    })
};

const BINDING_COLUMNS: &[Column] = &[
    NAME,
    text(
        "Role",
        Cell::Computed(|b, _| json!(format!("{}/{}", text_of(&b["roleRef"], "kind"), text_of(&b["roleRef"], "name")))),
    ),
    AGE,
    text("Users", Cell::Computed(|b, _| json!(subjects_cell(b, "User")))).wide(),
    text("Groups", Cell::Computed(|b, _| json!(subjects_cell(b, "Group")))).wide(),
    text("ServiceAccounts", Cell::Computed(|b, _| json!(subjects_cell(b, "ServiceAccount")))).wide(),
];

/// Returns the names of a binding's subjects of a kind.
fn subjects_cell(binding: &Value, kind: &str) -> String {
    let name = |s: &Value| match kind {
        "ServiceAccount" => format!("{}/{}", text_of(s, "namespace"), text_of(s, "name")),
        _ => text_of(s, "name").to_owned(),
    };
    items(binding, "subjects").filter(|s| s["kind"] == kind).map(name).collect::<Vec<_>>().join(", ")
}

/// Validates the rules (`ValidatePolicyRule`).
fn validate_rules(role: &Value, namespaced: bool, errors: &mut FieldErrors) {
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
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&at, &rule["nonResourceURLs"], detail);
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

/// Sets the default API group of the role and of users and groups.
fn set_binding_defaults(object: &mut Value) {
    defaulting::set_defaults_at(object, "/roleRef", &[("apiGroup", json!(GROUP))]);
    for i in 0..items(object, "subjects").count() {
        if matches!(text_of(&object["subjects"][i], "kind"), "User" | "Group") {
            defaulting::set_defaults_at(object, &format!("/subjects/{i}"), &[("apiGroup", json!(GROUP))]);
        }
    }
}

/// Validates a binding (`ValidateRoleBinding`, `ValidateRoleBindingSubject`).
fn validate_binding(object: &Value, kinds: &[&str], errors: &mut FieldErrors) {
    let (path, role) = (FieldPath::new("roleRef"), &object["roleRef"]);
    if role["apiGroup"] != GROUP {
        errors.not_supported(&path.child("apiGroup"), &json!(text_of(role, "apiGroup")), &[GROUP]);
    }
    if !kinds.contains(&text_of(role, "kind")) {
        errors.not_supported(&path.child("kind"), &json!(text_of(role, "kind")), kinds);
    }
    match text_of(role, "name") {
        "" => errors.required(&path.child("name"), ""),
        name => {
            validate_path_segment_name(name).iter().for_each(|e| errors.invalid(&path.child("name"), &role["name"], e));
        }
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
                // The namespace defaults to that of a RoleBinding.
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

/// Validates that the role does not change: permission to change subjects must not allow other roles.
fn validate_role_ref_unchanged(object: &Value, old: &Value, errors: &mut FieldErrors) {
    if object["roleRef"] != old["roleRef"] {
        // Upstream shows its internal type, with Go's field names.
        let role_ref = &object["roleRef"];
        let shown = json!({"APIGroup": role_ref["apiGroup"], "Kind": role_ref["kind"], "Name": role_ref["name"]});
        errors.invalid(&FieldPath::new("roleRef"), &shown, "cannot change roleRef");
    }
}
