//! Authorization of requests in the handler chain (`WithAuthorization`).

use crate::http::upgrade;
use audit::AuditContext;
use auth::authorization::{Authorizer, forbidden};
use errors::ApiError;
use http::HeaderMap;
use request::{Attributes, Decision, RequestTarget, UserInfo};

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
