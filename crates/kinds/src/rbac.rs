//! Kinds of `rbac.authorization.k8s.io/v1`. `authorization` evaluates them.

use super::{
    AGE, Cell, Column, FieldErrors, FieldPath, KindInfo, NAME, NAME_AND_CREATION, defaulting,
    field_cursor::FieldCursor,
    field_validation::{items, text as text_of},
    generic_kind::{GenericKind, validate_path_segment_name},
    selector, text,
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
        let role = FieldCursor::object(role);
        let rule = role.at("aggregationRule");
        let selectors = rule.at("clusterRoleSelectors");
        if rule.is_set() && selectors.count() == 0 {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil", errors);
        }
        selectors.items().for_each(|selector| selector::validate(&selector, errors));
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
    for rule in FieldCursor::object(role).at("rules").items() {
        let (verbs, urls) = (rule.at("verbs"), rule.at("nonResourceURLs"));
        let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
        if verbs.count() == 0 {
            verbs.required("verbs must contain at least one value", errors);
        }
        if urls.count() > 0 {
            if namespaced {
                urls.invalid("namespaced rules cannot apply to non-resource URLs", errors);
            }
            if [groups, resources, rule.at("resourceNames")].iter().any(|list| list.count() > 0) {
                urls.invalid("rules cannot apply to both regular resources and non-resource URLs", errors);
            }
            continue;
        }
        if groups.count() == 0 {
            groups.required("resource rules must supply at least one api group", errors);
        }
        if resources.count() == 0 {
            resources.required("resource rules must supply at least one resource", errors);
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
    let object = FieldCursor::object(object);
    let role = object.at("roleRef");
    role.at("apiGroup").supported(&[GROUP], errors);
    role.at("kind").supported(kinds, errors);
    role.at("name").validate_required_text(validate_path_segment_name, errors);
    for subject in object.at("subjects").items() {
        let (kind, name, group) = (subject.at("kind"), subject.at("name"), subject.at("apiGroup"));
        if name.text().is_empty() {
            name.required("", errors);
        }
        match kind.text() {
            "ServiceAccount" => {
                if !name.text().is_empty() {
                    name.validate_text(api::names::dns1123_subdomain, errors);
                }
                group.supported(&[""], errors);
                // The namespace defaults to that of a RoleBinding.
                let namespace = subject.at("namespace");
                if kinds == ["ClusterRole"] && namespace.text().is_empty() {
                    namespace.required("", errors);
                }
            }
            "User" | "Group" => group.supported(&[GROUP], errors),
            _ => kind.not_supported(&["ServiceAccount", "User", "Group"], errors),
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
