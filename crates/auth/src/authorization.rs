//! Authorization: members of `system:masters` may do everything, nodes what the node authorizer allows, and all users
//! what RBAC allows.

pub mod bootstrap_policy;
pub mod node;
pub mod policy_comparator;
mod policy_rule;
mod rbac;
mod rbac_informer;
mod rule_resolver;

pub use policy_comparator::go_quoted_list;
pub use policy_rule::PolicyRule;
pub use rbac_informer::RbacInformer;
pub use rule_resolver::{RoleRef, RuleResolver};

use errors::{ApiError, GroupResource};
use request::{Attributes, Decision, RequestTarget, UserInfo};
use store::Store;

/// Authorizes requests: the node authorizer first, then RBAC (upstream's `union` of authorizers).
pub struct Authorizer {
    store: Store,
    rbac: RbacInformer,
}

impl Authorizer {
    /// Creates an authorizer by the roles, bindings and Pods of a store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { rbac: RbacInformer::new(store.clone()), store }
    }

    /// Roles and bindings.
    #[must_use]
    pub fn rbac(&self) -> &RbacInformer {
        &self.rbac
    }

    /// Decides whether the user may make a request.
    #[must_use]
    pub fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.is_master() {
            return Decision::Allowed(String::new());
        }
        let denial = match self.authorize_node(user, attributes) {
            Decision::NoOpinion(message) => message,
            allowed @ Decision::Allowed(_) => return allowed,
        };
        match self.rbac.with_resolver(|resolver| rbac::authorize(resolver, user, attributes)) {
            // The reasons of all authorizers, a line each.
            Decision::NoOpinion(reason) if !denial.is_empty() && !reason.is_empty() => {
                Decision::NoOpinion(format!("{denial}\n{reason}"))
            }
            Decision::NoOpinion(reason) if reason.is_empty() => Decision::NoOpinion(denial),
            decision => decision,
        }
    }

    /// Decides whether the user may make a request, once the default roles exist.
    pub async fn authorize_bootstrapped(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        if user.is_master() {
            return Decision::Allowed(String::new());
        }
        // The node authorizer does not need the default roles.
        match self.authorize_node(user, attributes) {
            allowed @ Decision::Allowed(_) => allowed,
            Decision::NoOpinion(_) => {
                self.rbac.wait_until_bootstrapped().await;
                self.authorize(user, attributes)
            }
        }
    }

    /// Runs the node authorizer, which has no opinion about users that are not nodes.
    fn authorize_node(&self, user: &UserInfo, attributes: &Attributes) -> Decision {
        match node::node_identity(user) {
            None => Decision::NoOpinion(String::new()),
            Some("") => Decision::NoOpinion(format!("unknown node for user {:?}", user.name)),
            Some(name) => {
                node::authorize(name, attributes, bootstrap_policy::node_rules(), &|resource, namespace, object| {
                    node::has_path_from(&self.store, name, resource, namespace, object)
                })
            }
        }
    }

    /// Requires that the user may make a request.
    ///
    /// # Errors
    /// A Forbidden error otherwise.
    pub fn require(&self, user: &UserInfo, attributes: &Attributes) -> Result<(), ApiError> {
        match self.authorize(user, attributes) {
            Decision::Allowed(_) => Ok(()),
            Decision::NoOpinion(message) => Err(forbidden(user, attributes, &message)),
        }
    }
}

/// Returns a Forbidden error with upstream's text (`responsewriters.ForbiddenStatusError`), which does not depend on
/// the object's existence.
#[must_use]
pub fn forbidden(user: &UserInfo, attributes: &Attributes, text: &str) -> ApiError {
    let verb = &attributes.verb;
    let text = if text.is_empty() { String::new() } else { format!(": {text}") };
    match &attributes.target {
        RequestTarget::NonResource(path) => {
            let message = sanitize_html(&format!("User {:?} cannot {verb} path {path:?}", user.name));
            ApiError::new(403, "Forbidden", format!("forbidden: {message}{text}"))
        }
        RequestTarget::Resource(resource) => {
            let scope = match resource.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let message = format!(
                "User {:?} cannot {verb} resource {:?} in API group {:?} {scope}",
                user.name,
                resource.combined_resource(),
                resource.group
            );
            let message = format!("{}{text}", sanitize_html(&message));
            ApiError::forbidden(GroupResource::new(&resource.group, &resource.resource), &resource.name, &message)
        }
    }
}

/// Escapes HTML, in case a browser shows the error as a page.
fn sanitize_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
