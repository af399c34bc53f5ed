//! All roles and bindings, and what they decide (`plugin/pkg/auth/authorizer/rbac`). Pure: told what there is, asked who
//! may do what.

use super::{attributes::Attributes, rule::Rule};
use crate::{UserInfo, user};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// What the rules say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// With the reason, which is empty where it needs none.
    Allowed(String),
    /// Nothing allows it; what went wrong on the way, or nothing.
    NoOpinion(String),
}

/// A role as it is stored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoleObject {
    pub(crate) rules: Option<Vec<Rule>>,
}

/// What a binding names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// A binding as it is stored.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Binding {
    role_ref: RoleRef,
    subjects: Option<Vec<Subject>>,
}

/// The name by which a subject is found: of a user, or of a group.
enum Known {
    User(String),
    Group(String),
}

impl Subject {
    /// `None` for what is nobody. An account without a namespace is one of the binding's.
    fn known(&self, namespace: &str) -> Option<Known> {
        match self.kind.as_str() {
            "User" => Some(Known::User(self.name.clone())),
            "Group" => Some(Known::Group(self.name.clone())),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                (!namespace.is_empty()).then(|| Known::User(user::of_account(namespace, &self.name)))
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

type Names = BTreeSet<Arc<str>>;

/// The bindings of a namespace, or of the cluster.
#[derive(Debug, Default)]
struct Bindings {
    all: BTreeMap<Arc<str>, Binding>,
    users: HashMap<String, Names>,
    groups: HashMap<String, Names>,
}

impl Bindings {
    fn set(&mut self, namespace: &str, name: &str, binding: Option<Binding>) {
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

    fn index(&mut self, namespace: &str, binding: &Binding, mut change: impl FnMut(&mut Names)) {
        for subject in binding.subjects.iter().flatten() {
            let (map, key) = match subject.known(namespace) {
                Some(Known::User(name)) => (&mut self.users, name),
                Some(Known::Group(name)) => (&mut self.groups, name),
                None => continue,
            };
            let names = map.entry(key.clone()).or_default();
            change(names);
            if names.is_empty() {
                map.remove(&key);
            }
        }
    }

    /// Those that name the user or a group of theirs, and the subject by which they do.
    fn of<'a>(
        &'a self,
        namespace: &'a str,
        user: &'a UserInfo,
    ) -> impl Iterator<Item = (&'a str, &'a Binding, &'a Subject)> {
        let own = self.users.get(&user.name);
        let groups = user.groups.iter().filter_map(|g| self.groups.get(g));
        own.into_iter().chain(groups).flatten().filter_map(move |name| {
            let binding = self.all.get(name)?;
            let applies = |s: &&Subject| match s.known(namespace) {
                Some(Known::User(name)) => name == user.name,
                Some(Known::Group(group)) => user.is_in(&group),
                None => false,
            };
            Some((&**name, binding, binding.subjects.iter().flatten().find(applies)?))
        })
    }
}

type Roles = HashMap<Arc<str>, Arc<[Rule]>>;

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// By namespace; those of the cluster are in the empty one.
    roles: HashMap<Arc<str>, Roles>,
    bindings: HashMap<Arc<str>, Bindings>,
}

/// A binding that applies to a user, and its role's rules if that is there.
struct Grant<'a> {
    namespace: &'a str,
    binding: &'a str,
    role: &'a RoleRef,
    subject: &'a Subject,
    rules: Result<&'a [Rule], String>,
}

impl Policy {
    /// A role is so now, or is gone; one of the cluster has no namespace.
    pub(crate) fn set_role(&mut self, namespace: &str, name: &str, role: Option<RoleObject>) {
        let roles = self.roles.entry(namespace.into()).or_default();
        match role {
            Some(role) => drop(roles.insert(name.into(), role.rules.unwrap_or_default().into())),
            None => drop(roles.remove(name)),
        }
        if roles.is_empty() {
            self.roles.remove(namespace);
        }
    }

    /// A binding is so now, or is gone; one of the cluster has no namespace.
    pub(crate) fn set_binding(&mut self, namespace: &str, name: &str, binding: Option<Binding>) {
        let bindings = self.bindings.entry(namespace.into()).or_default();
        bindings.set(namespace, name, binding);
        if bindings.all.is_empty() {
            self.bindings.remove(namespace);
        }
    }

    /// The rules of the role that a binding in this namespace names.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], String> {
        let (kind, namespace) = match role.kind.as_str() {
            "Role" => ("role", namespace),
            "ClusterRole" => ("clusterrole", ""),
            other => return Err(format!("unsupported role reference kind: {other:?}")),
        };
        let found = self.roles.get(namespace).and_then(|roles| roles.get(role.name.as_str()));
        found.map(|rules| &**rules).ok_or_else(|| format!("{kind}.rbac.authorization.k8s.io {:?} not found", role.name))
    }

    /// What applies to a user in a namespace: the cluster's bindings, then the namespace's.
    fn grants<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> impl Iterator<Item = Grant<'a>> {
        let places = ["", namespace].into_iter().take(if namespace.is_empty() { 1 } else { 2 });
        places.filter_map(|place| Some((place, self.bindings.get(place)?))).flat_map(move |(place, bindings)| {
            bindings.of(place, user).map(move |(binding, found, subject)| {
                let role = &found.role_ref;
                Grant { namespace: place, binding, role, subject, rules: self.rules_of(role, place) }
            })
        })
    }

    /// Whether the bindings allow this.
    pub(crate) fn decide(&self, user: &UserInfo, wanted: &Attributes) -> Decision {
        let mut errors = Vec::new();
        for grant in self.grants(user, wanted.namespace()) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(wanted)) => {
                    return Decision::Allowed(format!("RBAC: allowed by {}", grant.describe()));
                }
                Ok(_) => {}
                Err(why) => errors.push(why.clone()),
            }
        }
        Decision::NoOpinion(aggregate(errors).map_or_else(String::new, |errors| format!("RBAC: {errors}")))
    }

    /// All rules that a user has in a namespace, and what could not be found.
    pub(crate) fn rules_for<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> (Vec<&'a Rule>, Option<String>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Ok(found) => rules.extend(found),
                Err(why) => errors.push(why),
            }
        }
        (rules, aggregate(errors))
    }
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let RoleRef { kind, name } = self.role;
        let (binding, subject) = (self.binding, self.subject.describe());
        match self.namespace {
            "" => format!("ClusterRoleBinding {binding:?} of {kind} {name:?} to {subject}"),
            namespace => format!("RoleBinding \"{binding}/{namespace}\" of {kind} {name:?} to {subject}"),
        }
    }
}

/// Several errors as upstream writes them, each once.
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut seen = Vec::new();
    for error in errors {
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
