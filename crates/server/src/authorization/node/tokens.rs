//! Which tokens a node gets: those of the Pods on it, for those whom they talk to
//! (`plugin/pkg/admission/noderestriction`, KEP-4193 and `ServiceAccountNodeAudienceRestriction`).

use super::{name as node_of, restriction::stored};
use crate::{
    ApiServer, UserInfo,
    authorization::{Attributes, Decision, ResourceAbout, decide},
    request::RequestInfo,
    status::ApiError,
};
use api::feature_gates::Gate;
use serde_json::Value;

/// Refuses a node a token that is not for a Pod of its own, or not for somebody whom that talks to.
pub(crate) fn restrict_token(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    request: &Value,
) -> Result<(), ApiError> {
    let Some(node) = node_of(user) else { return Ok(()) };
    let (account, bound) = (resource.name.as_deref().unwrap_or(""), &request["boundObjectRef"]);
    let text = |field: &str| bound[field].as_str().unwrap_or("");
    let refused = |why: &str| Err(ApiError::forbidden(resource.kind.info(), account, why));
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || text("name").is_empty() {
        return refused("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return refused("node requested token with a pod binding without a uid");
    }
    let pod = stored(server, "pods", &resource.namespace, text("name"));
    if pod.is_null() {
        return Err(ApiError::new(404, "NotFound", format!("pod {:?} not found", text("name"))));
    }
    if pod["metadata"]["uid"] != text("uid") {
        return refused(&format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            text("uid")
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return refused("node requested token bound to a pod scheduled on a different node");
    }
    if !server.gates.enabled(Gate::ServiceAccountNodeAudienceRestriction) {
        return Ok(());
    }
    let audience = match request["audiences"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => "",
        [one] => one.as_str().unwrap_or(""),
        _ => return refused("node may only request 0 or 1 audiences"),
    };
    if talks_to(server, &resource.namespace, &pod, audience)
        || may(server, user, &resource.namespace, account, audience)
    {
        return Ok(());
    }
    let user = &user.name;
    refused(&format!(
        "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    ))
}

/// Whether a role lets the node ask for this audience, for what Pods do not say (credential providers of images).
fn may(server: &ApiServer, user: &UserInfo, namespace: &str, account: &str, audience: &str) -> bool {
    let [namespace, name, resource] = [namespace, account, audience].map(str::to_owned);
    let about = ResourceAbout { namespace, name, resource, ..ResourceAbout::default() };
    let wanted = Attributes::to("request-serviceaccounts-token-audience", about);
    matches!(decide(server, user, &wanted), Decision::Allowed(_))
}

/// Whether a volume of the Pod has tokens for this audience: itself, or the driver that it comes from.
fn talks_to(server: &ApiServer, namespace: &str, pod: &Value, audience: &str) -> bool {
    let list = |of: &Value, field: &str| of[field].as_array().cloned().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or("");
    list(&pod["spec"], "volumes").iter().any(|volume| {
        let tokens = list(&volume["projected"], "sources");
        let is_for = |source: &Value| source["audience"].as_str().unwrap_or("") == audience;
        if tokens.iter().map(|s| &s["serviceAccountToken"]).any(|token| !token.is_null() && is_for(token)) {
            return true;
        }
        let driver = match volume {
            _ if !volume["ephemeral"]["volumeClaimTemplate"].is_null() => {
                let claim = format!("{name}-{}", volume["name"].as_str().unwrap_or(""));
                driver_of_claim(server, namespace, &claim)
            }
            _ if volume["persistentVolumeClaim"].is_object() => {
                let claim = volume["persistentVolumeClaim"]["claimName"].as_str().unwrap_or("");
                driver_of_claim(server, namespace, claim)
            }
            _ => volume["csi"]["driver"].as_str().map(str::to_owned),
        };
        let driver = driver.map(|driver| stored(server, "csidrivers", "", &driver)).unwrap_or_default();
        list(&driver["spec"], "tokenRequests").iter().any(is_for)
    })
}

/// The driver of the volume to which a claim is bound.
fn driver_of_claim(server: &ApiServer, namespace: &str, claim: &str) -> Option<String> {
    let claim = stored(server, "persistentvolumeclaims", namespace, claim);
    let volume = stored(server, "persistentvolumes", "", claim["spec"]["volumeName"].as_str()?);
    volume["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}
