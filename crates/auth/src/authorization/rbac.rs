//! RBAC authorizer: decides by roles and bindings whether a user may make a request
//! (`plugin/pkg/auth/authorizer/rbac/rbac.go`). Pure.
//!
//! [`super::rule_resolver`] finds the rules of the user, and [`super::PolicyRule::allows`] compares a rule with the
//! request.

use super::rule_resolver::{RuleResolver, aggregate};
use request::{Attributes, Decision, UserInfo};

/// Decides whether RBAC allows a request (`RBACAuthorizer.Authorize`): allowed by the first of the user's rules that
/// allows it.
pub(crate) fn authorize(resolver: &RuleResolver, user: &UserInfo, attributes: &Attributes) -> Decision {
    let mut errors = Vec::new();
    for binding in resolver.applicable_bindings(user, attributes.namespace()) {
        match &binding.rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                return Decision::Allowed(format!("RBAC: allowed by {}", binding.describe()));
            }
            Ok(_) => {}
            Err(error) => errors.push(error.clone()),
        }
    }
    Decision::NoOpinion(aggregate(errors).map_or_else(String::new, |errors| format!("RBAC: {errors}")))
}
