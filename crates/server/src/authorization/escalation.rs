//! Nobody gives away more than they have: who writes a role must hold its rules, who binds one too
//! (`pkg/registry/rbac/{clusterrole,role,clusterrolebinding,rolebinding}/policybased`).

use super::{Attributes, Decision, ResourceAbout, Rule, cover, decide, policy::RoleRef};
use crate::{ApiServer, UserInfo, request::RequestInfo, status::ApiError};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role or a binding by which the user would give more than they have; `old` is there for a change.
pub(super) fn check(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let info = resource.kind.info();
    if info.group != GROUP || old.is_some_and(|old| is_for_the_collector(new, old)) {
        return Ok(());
    }
    let request = Request { server, user, resource, name: new["metadata"]["name"].as_str().unwrap_or("") };
    if new.get("roleRef").is_some() { request.binding(new) } else { request.role(new, old) }
}

/// Whether a change says only who owns the object and who holds it: that lets the garbage collector work.
fn is_for_the_collector(new: &Value, old: &Value) -> bool {
    let mut new = new.clone();
    if let Some(metadata) = new["metadata"].as_object_mut() {
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            match old["metadata"].get(field) {
                Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
                None => drop(metadata.remove(field)),
            }
        }
    }
    new == *old
}

struct Request<'a> {
    server: &'a ApiServer,
    user: &'a UserInfo,
    resource: &'a RequestInfo,
    /// Of the object that is written.
    name: &'a str,
}

impl Request<'_> {
    fn role(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let name = self.resource.name.clone().unwrap_or_default();
        if self.may("escalate", self.resource.kind.info().plural, name) {
            return Ok(());
        }
        let rules: Option<Vec<Rule>> = serde_json::from_value(new["rules"].clone()).unwrap_or_default();
        self.hold(&rules.unwrap_or_default()).map_err(|why| self.forbidden(&why))?;
        // It can gather anything, and take it away.
        let aggregates = |role: &Value| !role["aggregationRule"].is_null();
        if (aggregates(new) || old.is_some_and(aggregates)) && self.hold(&Rule::everything()).is_err() {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn binding(&self, binding: &Value) -> Result<(), ApiError> {
        let role: RoleRef = serde_json::from_value(binding["roleRef"].clone()).unwrap_or_default();
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" if !self.resource.namespace.is_empty() => "roles",
            // That is no role, which validation says.
            _ => return Ok(()),
        };
        if self.may("bind", plural, role.name.clone()) {
            return Ok(());
        }
        let namespace = &self.resource.namespace;
        let rules = self.server.authorizer.ask(|policy| policy.rules_of(&role, namespace).map(<[Rule]>::to_vec));
        let rules = rules.map_err(|_| ApiError::not_found_in(GROUP, plural, &role.name))?;
        self.hold(&rules).map_err(|why| self.forbidden(&why))
    }

    fn may(&self, verb: &str, plural: &str, name: String) -> bool {
        let (group, resource, namespace) = (GROUP.to_owned(), plural.to_owned(), self.resource.namespace.clone());
        let about = ResourceAbout { group, resource, namespace, name, ..ResourceAbout::default() };
        matches!(decide(self.server, self.user, &Attributes::to(verb, about)), Decision::Allowed(_))
    }

    /// Whether the user has what these rules give, else what they lack.
    fn hold(&self, rules: &[Rule]) -> Result<(), String> {
        let (missing, errors) = self.server.authorizer.ask(|policy| {
            let (owned, errors) = policy.rules_for(self.user, &self.resource.namespace);
            (cover::missing(&owned, rules), errors)
        });
        if missing.is_empty() {
            return Ok(());
        }
        let mut missing: Vec<String> = cover::compact(missing).iter().map(cover::describe).collect();
        missing.sort();
        missing.dedup();
        let errors = errors.map_or_else(String::new, |errors| format!("; resolution errors: [{errors}]"));
        Err(format!(
            "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
            self.user.name,
            cover::quoted(&self.user.groups),
            missing.join("\n")
        ))
    }

    fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.resource.kind.info(), self.name, why)
    }
}
