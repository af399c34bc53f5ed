//! Authorization of requests in the handler chain (`WithAuthorization`), and of what depends on the written object.

use crate::{
    ApiServer,
    admission::{certificates, node_restriction},
    http::upgrade,
    objects::{call::Call, request_scope::RequestScope},
    rest::escalation,
};
use audit::AuditContext;
use auth::authorization::{Authorizer, forbidden};
use errors::ApiError;
use http::HeaderMap;
use request::{Attributes, Decision, RequestTarget, ResourceAttributes, UserInfo};
use serde_json::Value;

/// Authorizes a request of the handler chain (`WithAuthorization`).
pub(crate) async fn authorize_request(
    authorizer: &Authorizer,
    user: &UserInfo,
    attributes: &Attributes,
    headers: &HeaderMap,
    audit: &AuditContext,
) -> Result<(), ApiError> {
    let decision = authorizer.authorize_bootstrapped(user, attributes).await;
    audit.log_authorization_decision(&decision);
    if let Decision::NoOpinion(message) = decision {
        return Err(forbidden(user, attributes, &message));
    }
    // A stream needs the verb `create`, also when it is opened with a GET
    // (`AuthorizePodWebsocketUpgradeCreatePermission`).
    if attributes.verb != "create" && opens_pod_stream(attributes, headers) {
        return authorizer.require(user, &Attributes { verb: "create".to_owned(), ..attributes.clone() });
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
            "nodes/proxy" => upgrade::is_upgrade(headers),
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
    let operation =
        old.map_or(node_restriction::Operation::Create(new), |old| node_restriction::Operation::Update(new, old));
    node_restriction::restrict(&server.store, user, resource, operation)?;
    escalation::check(&server.authorizer, user, resource, new, old)?;
    old.map_or(Ok(()), |old| certificates::check(&server.authorizer, user, resource, new, old))
}

/// Requires the verb `create` for an update or an apply that would create the object.
pub(crate) fn require_create(authorizer: &Authorizer, resource: &RequestScope, call: &Call) -> Result<(), ApiError> {
    let info = resource.kind.info();
    let (group, plural) = (info.group.to_owned(), info.plural.to_owned());
    let name = resource.name.clone().unwrap_or_default();
    // The attributes of a Namespace have its own name as the namespace.
    let namespace = if plural == "namespaces" { name.clone() } else { resource.namespace.clone() };
    let resource = ResourceAttributes { group, resource: plural, namespace, name, ..ResourceAttributes::default() };
    authorizer.require(&call.user, &Attributes::for_resource("create", resource))
}
