//! RBAC escalation check: a user who writes or binds a role must hold all its permissions
//! (`pkg/registry/rbac/{clusterrole,role,clusterrolebinding,rolebinding}/policybased`).

use crate::objects::request_scope::RequestScope;
use auth::authorization::{Authorizer, PolicyRule, RoleRef, policy_comparator};
use errors::{ApiError, GroupResource};
use request::{Attributes, Decision, ResourceAttributes, UserInfo};
use serde_json::Value;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Returns a Forbidden error for a role or a binding that grants permissions which the user does not hold. `old` is set
/// for an update.
pub(crate) fn check(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &RequestScope,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let info = resource.kind.info();
    if info.group != GROUP || old.is_some_and(|old| is_only_mutating_gc_fields(new, old)) {
        return Ok(());
    }
    let write = RbacWrite { authorizer, user, resource, name: new["metadata"]["name"].as_str().unwrap_or("") };
    if new.get("roleRef").is_some() { write.check_binding(new) } else { write.check_role(new, old) }
}

/// Whether an update changes only owner references and finalizers, as the garbage collector does
/// (`IsOnlyMutatingGCFields`).
fn is_only_mutating_gc_fields(new: &Value, old: &Value) -> bool {
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

/// Error of a user who would grant permissions that it does not hold.
#[derive(Debug, thiserror::Error)]
#[error(
    "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}{resolution_errors}"
)]
struct MissingPermissions {
    user: String,
    groups: String,
    missing: String,
    resolution_errors: String,
}

/// A write of a role or a binding.
struct RbacWrite<'a> {
    authorizer: &'a Authorizer,
    user: &'a UserInfo,
    resource: &'a RequestScope,
    /// Name of the written object.
    name: &'a str,
}

impl RbacWrite<'_> {
    fn check_role(&self, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let name = self.resource.name.clone().unwrap_or_default();
        if self.is_authorized("escalate", self.resource.kind.info().plural, name) {
            return Ok(());
        }
        let rules: Option<Vec<PolicyRule>> = serde_json::from_value(new["rules"].clone()).unwrap_or_default();
        self.confirm_no_escalation(&rules.unwrap_or_default()).map_err(|error| self.forbidden(&error.to_string()))?;
        // An aggregated role can get any rule.
        let is_aggregated = |role: &Value| !role["aggregationRule"].is_null();
        if (is_aggregated(new) || old.is_some_and(is_aggregated))
            && self.confirm_no_escalation(&PolicyRule::full_authority()).is_err()
        {
            return Err(self.forbidden("must have cluster-admin privileges to use the aggregationRule"));
        }
        Ok(())
    }

    fn check_binding(&self, binding: &Value) -> Result<(), ApiError> {
        let role: RoleRef = serde_json::from_value(binding["roleRef"].clone()).unwrap_or_default();
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" if !self.resource.namespace.is_empty() => "roles",
            // Validation rejects other kinds.
            _ => return Ok(()),
        };
        if self.is_authorized("bind", plural, role.name.clone()) {
            return Ok(());
        }
        let namespace = &self.resource.namespace;
        let rules = self
            .authorizer
            .rbac()
            .with_resolver(|resolver| resolver.role_reference_rules(&role, namespace).map(<[PolicyRule]>::to_vec));
        let rules = rules.map_err(|_| ApiError::not_found(GroupResource::new(GROUP, plural), &role.name))?;
        self.confirm_no_escalation(&rules).map_err(|error| self.forbidden(&error.to_string()))
    }

    fn is_authorized(&self, verb: &str, plural: &str, name: String) -> bool {
        let (group, resource, namespace) = (GROUP.to_owned(), plural.to_owned(), self.resource.namespace.clone());
        let attributes = ResourceAttributes { group, resource, namespace, name, ..ResourceAttributes::default() };
        matches!(
            self.authorizer.authorize(self.user, &Attributes::for_resource(verb, attributes)),
            Decision::Allowed(_)
        )
    }

    /// Requires the user to hold all permissions of the rules (`ConfirmNoEscalation`).
    fn confirm_no_escalation(&self, rules: &[PolicyRule]) -> Result<(), MissingPermissions> {
        let (missing, errors) = self.authorizer.rbac().with_resolver(|resolver| {
            let (owner, errors) = resolver.rules_for(self.user, &self.resource.namespace);
            (policy_comparator::uncovered_rules(&owner, rules), errors)
        });
        if missing.is_empty() {
            return Ok(());
        }
        let mut missing: Vec<String> =
            policy_comparator::compact_rules(missing).iter().map(policy_comparator::compact_string).collect();
        missing.sort();
        missing.dedup();
        let resolution_errors = errors.map_or_else(String::new, |errors| format!("; resolution errors: [{errors}]"));
        Err(MissingPermissions {
            user: self.user.name.clone(),
            groups: policy_comparator::go_quoted_list(&self.user.groups),
            missing: missing.join("\n"),
            resolution_errors,
        })
    }

    fn forbidden(&self, message: &str) -> ApiError {
        ApiError::forbidden(self.resource.kind.info(), self.name, message)
    }
}
