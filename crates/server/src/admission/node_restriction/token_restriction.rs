//! NodeRestriction for service account tokens: a node may request tokens bound to its own Pods, for audiences that
//! these reference (`plugin/pkg/admission/noderestriction`, KEP-4193 and `ServiceAccountNodeAudienceRestriction`).

use crate::{admission::admission_control::AdmissionControl, objects::request_scope::RequestScope};
use api::feature_gates::Gate;
use auth::{
    authorization::{Authorizer, node::node_identity},
    stored_object,
};
use errors::ApiError;
use request::{Attributes, Decision, ResourceAttributes, UserInfo};
use serde_json::Value;
use store::Store;

/// Returns a Forbidden error unless a node's TokenRequest is for one of its Pods and for an audience that the Pod
/// references. Allows all other users.
pub(crate) fn restrict_token(
    control: &AdmissionControl,
    user: &UserInfo,
    resource: &RequestScope,
    request: &Value,
) -> Result<(), ApiError> {
    let Some(node) = node_identity(user) else { return Ok(()) };
    let store = &control.store;
    let (account, bound) = (resource.name.as_deref().unwrap_or(""), &request["boundObjectRef"]);
    let text = |field: &str| bound[field].as_str().unwrap_or("");
    let forbidden = |message: &str| Err(ApiError::forbidden(resource.kind.info(), account, message));
    if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || text("name").is_empty() {
        return forbidden("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return forbidden("node requested token with a pod binding without a uid");
    }
    let pod = stored_object::get(store, "pods", &resource.namespace, text("name")).unwrap_or_default();
    if pod.is_null() {
        return Err(ApiError::new(404, "NotFound", format!("pod {:?} not found", text("name"))));
    }
    if pod["metadata"]["uid"] != text("uid") {
        return forbidden(&format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            text("uid")
        ));
    }
    if pod["spec"]["nodeName"] != node {
        return forbidden("node requested token bound to a pod scheduled on a different node");
    }
    if !control.gates.enabled(Gate::ServiceAccountNodeAudienceRestriction) {
        return Ok(());
    }
    let audience = match request["audiences"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => "",
        [one] => one.as_str().unwrap_or(""),
        _ => return forbidden("node may only request 0 or 1 audiences"),
    };
    if pod_references_audience(store, &resource.namespace, &pod, audience)
        || is_authorized_for_audience(&control.authorizer, user, &resource.namespace, account, audience)
    {
        return Ok(());
    }
    let user = &user.name;
    forbidden(&format!(
        "audience {audience:?} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
    ))
}

/// Whether the node is authorized for an audience by RBAC, for example for image credential providers.
fn is_authorized_for_audience(
    authorizer: &Authorizer,
    user: &UserInfo,
    namespace: &str,
    account: &str,
    audience: &str,
) -> bool {
    let [namespace, name, resource] = [namespace, account, audience].map(str::to_owned);
    let resource_attributes = ResourceAttributes { namespace, name, resource, ..ResourceAttributes::default() };
    let attributes = Attributes::for_resource("request-serviceaccounts-token-audience", resource_attributes);
    matches!(authorizer.authorize(user, &attributes), Decision::Allowed(_))
}

/// Whether a projected volume of the Pod or the CSI driver of a volume requests tokens for the audience.
fn pod_references_audience(store: &Store, namespace: &str, pod: &Value, audience: &str) -> bool {
    let list = |parent: &Value, field: &str| parent[field].as_array().cloned().unwrap_or_default();
    let name = pod["metadata"]["name"].as_str().unwrap_or("");
    list(&pod["spec"], "volumes").iter().any(|volume| {
        let sources = list(&volume["projected"], "sources");
        let is_for = |source: &Value| source["audience"].as_str().unwrap_or("") == audience;
        if sources.iter().map(|s| &s["serviceAccountToken"]).any(|token| !token.is_null() && is_for(token)) {
            return true;
        }
        let driver = match volume {
            _ if !volume["ephemeral"]["volumeClaimTemplate"].is_null() => {
                let claim = format!("{name}-{}", volume["name"].as_str().unwrap_or(""));
                csi_driver_of_claim(store, namespace, &claim)
            }
            _ if volume["persistentVolumeClaim"].is_object() => {
                let claim = volume["persistentVolumeClaim"]["claimName"].as_str().unwrap_or("");
                csi_driver_of_claim(store, namespace, claim)
            }
            _ => volume["csi"]["driver"].as_str().map(str::to_owned),
        };
        let driver = driver.and_then(|driver| stored_object::get(store, "csidrivers", "", &driver)).unwrap_or_default();
        list(&driver["spec"], "tokenRequests").iter().any(is_for)
    })
}

/// Returns the CSI driver of the volume to which a claim is bound.
fn csi_driver_of_claim(store: &Store, namespace: &str, claim: &str) -> Option<String> {
    let claim = stored_object::get(store, "persistentvolumeclaims", namespace, claim)?;
    let volume = stored_object::get(store, "persistentvolumes", "", claim["spec"]["volumeName"].as_str()?)?;
    volume["spec"]["csi"]["driver"].as_str().map(str::to_owned)
}
