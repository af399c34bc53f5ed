//! RBAC rule resolver: an index of all roles and bindings by subject (`pkg/registry/rbac/validation/rule.go`). Pure.
//!
//! [`super::rbac`] decides about requests with it; [`super::rbac_informer`] keeps it up to date with the store.

use super::policy_rule::PolicyRule;
use request::{UserInfo, user};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// A stored Role or ClusterRole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Role {
    pub rules: Option<Vec<PolicyRule>>,
}

/// The role of a binding.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: String,
    /// Name of the role.
    pub name: String,
}

/// Error of a role reference.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RoleRefError {
    #[error("unsupported role reference kind: {0:?}")]
    UnsupportedKind(String),
    #[error("{resource}.rbac.authorization.k8s.io {name:?} not found")]
    NotFound { resource: &'static str, name: String },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// A stored RoleBinding or ClusterRoleBinding.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RoleBinding {
    role_ref: RoleRef,
    subjects: Option<Vec<Subject>>,
}

/// Key of a subject in the index.
enum SubjectKey {
    User(String),
    Group(String),
}

impl Subject {
    /// Returns the index key, or `None` for an unknown kind. A service account's namespace defaults to the binding's.
    fn index_key(&self, namespace: &str) -> Option<SubjectKey> {
        match self.kind.as_str() {
            "User" => Some(SubjectKey::User(self.name.clone())),
            "Group" => Some(SubjectKey::Group(self.name.clone())),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                (!namespace.is_empty())
                    .then(|| SubjectKey::User(user::service_account_user_name(namespace, &self.name)))
            }
            _ => None,
        }
    }

    fn describe(&self) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => format!("{} \"{}/{}\"", self.kind, self.name, self.namespace),
            _ => format!("{} {:?}", self.kind, self.name),
        }
    }
}

type BindingNames = BTreeSet<Arc<str>>;

/// The RoleBindings of a namespace, or the ClusterRoleBindings, by subject.
#[derive(Debug, Default)]
struct BindingIndex {
    all: BTreeMap<Arc<str>, RoleBinding>,
    users: HashMap<String, BindingNames>,
    groups: HashMap<String, BindingNames>,
}

impl BindingIndex {
    fn set(&mut self, namespace: &str, name: &str, binding: Option<RoleBinding>) {
        if let Some(old) = self.all.remove(name) {
            self.index(namespace, &old, |names| {
                names.remove(name);
            });
        }
        if let Some(binding) = binding {
            let name: Arc<str> = name.into();
            self.index(namespace, &binding, |names| {
                names.insert(name.clone());
            });
            self.all.insert(name, binding);
        }
    }

    fn index(&mut self, namespace: &str, binding: &RoleBinding, mut change: impl FnMut(&mut BindingNames)) {
        for subject in binding.subjects.iter().flatten() {
            let (map, key) = match subject.index_key(namespace) {
                Some(SubjectKey::User(name)) => (&mut self.users, name),
                Some(SubjectKey::Group(name)) => (&mut self.groups, name),
                None => continue,
            };
            let names = map.entry(key.clone()).or_default();
            change(names);
            if names.is_empty() {
                map.remove(&key);
            }
        }
    }

    /// Returns the name of each binding that applies to the user, the binding, and its first subject that matches.
    fn applicable_to<'a>(
        &'a self,
        namespace: &'a str,
        user: &'a UserInfo,
    ) -> impl Iterator<Item = (&'a str, &'a RoleBinding, &'a Subject)> {
        let by_user = self.users.get(&user.name);
        let by_group = user.groups.iter().filter_map(|g| self.groups.get(g));
        by_user.into_iter().chain(by_group).flatten().filter_map(move |name| {
            let binding = self.all.get(name)?;
            let applies = |s: &&Subject| match s.index_key(namespace) {
                Some(SubjectKey::User(name)) => name == user.name,
                Some(SubjectKey::Group(group)) => user.is_in(&group),
                None => false,
            };
            Some((&**name, binding, binding.subjects.iter().flatten().find(applies)?))
        })
    }
}

type Roles = HashMap<Arc<str>, Arc<[PolicyRule]>>;

/// All roles and bindings (`DefaultRuleResolver`).
#[derive(Debug, Default)]
pub struct RuleResolver {
    /// By namespace; cluster-scoped ones have the empty namespace.
    roles: HashMap<Arc<str>, Roles>,
    bindings: HashMap<Arc<str>, BindingIndex>,
}

/// A binding that applies to a user, and the rules of its role.
pub struct ApplicableBinding<'a> {
    namespace: &'a str,
    name: &'a str,
    role: &'a RoleRef,
    subject: &'a Subject,
    pub rules: Result<&'a [PolicyRule], RoleRefError>,
}

impl RuleResolver {
    /// Inserts or removes a role. The namespace of a ClusterRole is empty.
    pub fn set_role(&mut self, namespace: &str, name: &str, role: Option<Role>) {
        let roles = self.roles.entry(namespace.into()).or_default();
        match role {
            Some(role) => drop(roles.insert(name.into(), role.rules.unwrap_or_default().into())),
            None => drop(roles.remove(name)),
        }
        if roles.is_empty() {
            self.roles.remove(namespace);
        }
    }

    /// Inserts or removes a binding. The namespace of a ClusterRoleBinding is empty.
    pub fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<RoleBinding>) {
        let bindings = self.bindings.entry(namespace.into()).or_default();
        bindings.set(namespace, name, binding);
        if bindings.all.is_empty() {
            self.bindings.remove(namespace);
        }
    }

    /// Returns the rules of the role that a binding in this namespace references (`GetRoleReferenceRules`).
    pub fn role_reference_rules(&self, role: &RoleRef, namespace: &str) -> Result<&[PolicyRule], RoleRefError> {
        let (resource, namespace) = match role.kind.as_str() {
            "Role" => ("role", namespace),
            "ClusterRole" => ("clusterrole", ""),
            other => return Err(RoleRefError::UnsupportedKind(other.to_owned())),
        };
        let found = self.roles.get(namespace).and_then(|roles| roles.get(role.name.as_str()));
        found.map(|rules| &**rules).ok_or_else(|| RoleRefError::NotFound { resource, name: role.name.clone() })
    }

    /// Returns the bindings that apply to a user in a namespace, with the rules of their roles: ClusterRoleBindings
    /// first (`VisitRulesFor`).
    pub fn applicable_bindings<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
    ) -> impl Iterator<Item = ApplicableBinding<'a>> {
        let namespaces = ["", namespace].into_iter().take(if namespace.is_empty() { 1 } else { 2 });
        namespaces.filter_map(|namespace| Some((namespace, self.bindings.get(namespace)?))).flat_map(
            move |(namespace, bindings)| {
                bindings.applicable_to(namespace, user).map(move |(name, binding, subject)| {
                    let role = &binding.role_ref;
                    ApplicableBinding {
                        namespace,
                        name,
                        role,
                        subject,
                        rules: self.role_reference_rules(role, namespace),
                    }
                })
            },
        )
    }

    /// Returns the rules of a user in a namespace, and the errors of unresolved roles (`RulesFor`).
    pub fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> (Vec<&'a PolicyRule>, Option<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for binding in self.applicable_bindings(user, namespace) {
            match binding.rules {
                Ok(resolved) => rules.extend(resolved),
                Err(error) => errors.push(error),
            }
        }
        (rules, aggregate(errors))
    }
}

impl ApplicableBinding<'_> {
    /// Describes the binding in the reason of a decision.
    pub fn describe(&self) -> String {
        let RoleRef { kind, name: role } = self.role;
        let (name, subject) = (self.name, self.subject.describe());
        match self.namespace {
            "" => format!("ClusterRoleBinding {name:?} of {kind} {role:?} to {subject}"),
            namespace => format!("RoleBinding \"{name}/{namespace}\" of {kind} {role:?} to {subject}"),
        }
    }
}

/// Joins distinct errors as upstream's `NewAggregate`.
pub(super) fn aggregate(errors: Vec<RoleRefError>) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    for error in errors.iter().map(ToString::to_string) {
        if !seen.contains(&error) {
            seen.push(error);
        }
    }
    match seen.len() {
        0 => None,
        1 => seen.pop(),
        _ => Some(format!("[{}]", seen.join(", "))),
    }
}

#[cfg(test)]
mod tests;
