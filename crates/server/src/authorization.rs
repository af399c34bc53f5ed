//! Authorization: members of `system:masters` may do everything, nodes what the node authorizer allows, and all users
//! what RBAC allows.

pub(crate) mod bootstrap_policy;
mod certificate_signing_requests;
mod escalation;
mod impersonation;
pub(crate) mod node;
mod policy_comparator;
mod policy_params;
mod policy_rule;
mod rbac;
mod rbac_informer;
mod rule_resolver;

pub(crate) use certificate_signing_requests::{restrict_certificate_subject, set_csr_requestor};
pub(crate) use impersonation::impersonate;
pub(crate) use policy_comparator::go_quoted_list;
pub(crate) use policy_params::check_policy_params;
pub(crate) use policy_rule::PolicyRule;
pub(crate) use rbac_informer::RbacInformer;

use crate::{ApiServer, api_server::Call, request_scope::RequestScope, reverse_proxy};
use audit::AuditContext;
use errors::{ApiError, GroupResource};
use http::HeaderMap;
use request::{Attributes, Decision, RequestTarget, ResourceAttributes, UserInfo};
use serde_json::Value;

/// Decides whether the user may make a request: the node authorizer first, then RBAC.
pub(crate) fn authorize(server: &ApiServer, user: &UserInfo, attributes: &Attributes) -> Decision {
    if user.is_master() {
        return Decision::Allowed(String::new());
    }
    let denial = match authorize_node(server, user, attributes) {
        Decision::NoOpinion(message) => message,
        allowed @ Decision::Allowed(_) => return allowed,
    };
    match server.rbac.with_resolver(|resolver| rbac::authorize(resolver, user, attributes)) {
        // The reasons of all authorizers, a line each.
        Decision::NoOpinion(reason) if !denial.is_empty() && !reason.is_empty() => {
            Decision::NoOpinion(format!("{denial}\n{reason}"))
        }
        Decision::NoOpinion(reason) if reason.is_empty() => Decision::NoOpinion(denial),
        decision => decision,
    }
}

/// Runs the node authorizer, which has no opinion about users that are not nodes.
fn authorize_node(server: &ApiServer, user: &UserInfo, attributes: &Attributes) -> Decision {
    match node::node_identity(user) {
        None => Decision::NoOpinion(String::new()),
        Some("") => Decision::NoOpinion(format!("unknown node for user {:?}", user.name)),
        Some(name) => {
            node::authorize(name, attributes, bootstrap_policy::node_rules(), &|resource, namespace, object| {
                node::has_path_from(server, name, resource, namespace, object)
            })
        }
    }
}

/// Returns a Forbidden error unless the user may make the request.
pub(crate) fn require(server: &ApiServer, user: &UserInfo, attributes: &Attributes) -> Result<(), ApiError> {
    match authorize(server, user, attributes) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(message) => Err(forbidden(user, attributes, &message)),
    }
}

/// Authorizes a request of the handler chain (`WithAuthorization`).
pub(crate) async fn authorize_request(
    server: &ApiServer,
    user: &UserInfo,
    attributes: &Attributes,
    headers: &HeaderMap,
    audit: &AuditContext,
) -> Result<(), ApiError> {
    if user.is_master() {
        audit.log_authorization_decision(&Decision::Allowed(String::new()));
        return Ok(());
    }
    // The node authorizer does not need the default roles.
    let decision = match authorize_node(server, user, attributes) {
        allowed @ Decision::Allowed(_) => allowed,
        Decision::NoOpinion(_) => {
            server.rbac.wait_until_bootstrapped().await;
            authorize(server, user, attributes)
        }
    };
    audit.log_authorization_decision(&decision);
    if let Decision::NoOpinion(message) = decision {
        return Err(forbidden(user, attributes, &message));
    }
    // A stream needs the verb `create`, also when it is opened with a GET
    // (`AuthorizePodWebsocketUpgradeCreatePermission`).
    if attributes.verb != "create" && opens_pod_stream(attributes, headers) {
        return require(server, user, &Attributes { verb: "create".to_owned(), ..attributes.clone() });
    }
    Ok(())
}

/// Whether a request opens a stream into a Pod. A kubelet only upgrades connections to `exec`, `attach` and
/// `portForward`, by any method, so the path behind `nodes/proxy`, which could be written in several ways, need not be
/// read.
fn opens_pod_stream(attributes: &Attributes, headers: &HeaderMap) -> bool {
    let RequestTarget::Resource(resource) = &attributes.target else { return false };
    resource.group.is_empty()
        && match &*resource.combined_resource() {
            "pods/attach" | "pods/exec" | "pods/portforward" => attributes.verb == "get",
            "nodes/proxy" => reverse_proxy::is_upgrade(headers),
            _ => false,
        }
}

/// Checks what depends on the written object: NodeRestriction, RBAC escalation, and approval of certificate signing
/// requests. `old` is set for an update.
pub(crate) fn check_write(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestScope,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    if user.is_master() {
        return Ok(());
    }
    let operation = old.map_or(node::Operation::Create(new), |old| node::Operation::Update(new, old));
    node::restrict(server, user, resource, operation)?;
    escalation::check(server, user, resource, new, old)?;
    old.map_or(Ok(()), |old| certificate_signing_requests::check(server, user, resource, new, old))
}

/// Requires the verb `create` for an update or an apply that would create the object.
pub(crate) fn require_create(server: &ApiServer, resource: &RequestScope, call: &Call) -> Result<(), ApiError> {
    let info = resource.kind.info();
    let (group, plural) = (info.group.to_owned(), info.plural.to_owned());
    let name = resource.name.clone().unwrap_or_default();
    // The attributes of a Namespace have its own name as the namespace.
    let namespace = if plural == "namespaces" { name.clone() } else { resource.namespace.clone() };
    let resource = ResourceAttributes { group, resource: plural, namespace, name, ..ResourceAttributes::default() };
    require(server, &call.user, &Attributes::for_resource("create", resource))
}

/// Returns a Forbidden error with upstream's text (`responsewriters.ForbiddenStatusError`), which does not depend on
/// the object's existence.
pub(crate) fn forbidden(user: &UserInfo, attributes: &Attributes, text: &str) -> ApiError {
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
