//! Requests for certificates: who made one, and who may approve and sign it
//! (`plugin/pkg/admission/certificates/{approval,signing}`).

use super::{Attributes, Decision, ResourceAbout, decide};
use crate::{ApiServer, UserInfo, kinds::certificates, request::RequestInfo, status::ApiError};
use serde_json::{Value, json};

const GROUP: &str = "certificates.k8s.io";

fn is_about_one(resource: &RequestInfo) -> bool {
    let info = resource.kind.info();
    (info.group, info.plural) == (GROUP, "certificatesigningrequests")
}

/// Notes in a new request who made it, whatever it says.
pub(crate) fn note_requestor(user: &UserInfo, resource: &RequestInfo, request: &mut Value) {
    if !is_about_one(resource) {
        return;
    }
    let Some(spec) = request["spec"].as_object_mut() else { return };
    let told = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, nothing) in told {
        if nothing { drop(spec.remove(field)) } else { drop(spec.insert(field.to_owned(), value)) }
    }
}

/// Refuses, whoever asks, requests of clients that would be masters (`CertificateSubjectRestriction`), and those whose
/// subject does not identify one user.
pub(crate) fn restrict_subject(resource: &RequestInfo, request: &Value) -> Result<(), ApiError> {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let signer = request["spec"]["signerName"].as_str().unwrap_or("");
    if !is_about_one(resource) || resource.subresource.is_some() || !matches!(signer, CLIENT | KUBELET) {
        return Ok(());
    }
    let encoded = request["spec"]["request"].as_str().unwrap_or("");
    if certificates::is_invalid_request(encoded) {
        // Validation says what is wrong with it.
        return Ok(());
    }
    let why = match certificates::requested_user(encoded) {
        Err(error) => error.to_string(),
        Ok(user) if signer == CLIENT && user.groups.iter().any(|group| group == "system:masters") => {
            format!("use of {CLIENT} signer with system:masters group is not allowed")
        }
        Ok(_) => return Ok(()),
    };
    let name = request["metadata"]["name"].as_str().unwrap_or("");
    Err(ApiError::forbidden(resource.kind.info(), name, &why))
}

/// Refuses to approve or sign for a signer that the user may not do that for.
pub(super) fn check(
    server: &ApiServer,
    user: &UserInfo,
    resource: &RequestInfo,
    new: &Value,
    old: &Value,
) -> Result<(), ApiError> {
    let signed = ["certificate", "conditions"].iter().any(|field| new["status"][*field] != old["status"][*field]);
    let verb = match resource.subresource.as_deref() {
        Some("approval") => "approve",
        Some("status") if signed => "sign",
        _ => return Ok(()),
    };
    let signer = old["spec"]["signerName"].as_str().unwrap_or("");
    let domain = signer.split('/').next().unwrap_or("");
    let may = |name: &str| {
        let [group, resource, name] = [GROUP, "signers", name].map(str::to_owned);
        let about = ResourceAbout { group, resource, name, ..ResourceAbout::default() };
        matches!(decide(server, user, &Attributes::to(verb, about)), Decision::Allowed(_))
    };
    if !is_about_one(resource) || may(signer) || may(&format!("{domain}/*")) {
        return Ok(());
    }
    let name = old["metadata"]["name"].as_str().unwrap_or("");
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::forbidden(resource.kind.info(), name, &why))
}
