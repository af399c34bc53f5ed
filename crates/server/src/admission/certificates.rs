//! Certificate signing requests: requestor, restricted subjects, and authorization to approve and sign
//! (`plugin/pkg/admission/certificates/{approval,signing}`).

use crate::objects::request_scope::RequestScope;
use auth::authorization::Authorizer;
use errors::ApiError;
use kinds::certificates;
use request::{Attributes, Decision, ResourceAttributes, UserInfo};
use serde_json::{Value, json};

const GROUP: &str = "certificates.k8s.io";

fn is_certificate_signing_request(resource: &RequestScope) -> bool {
    let info = resource.kind.info();
    (info.group, info.plural) == (GROUP, "certificatesigningrequests")
}

/// Sets the requestor in the spec of a new CSR.
pub(crate) fn set_csr_requestor(user: &UserInfo, resource: &RequestScope, request: &mut Value) {
    if !is_certificate_signing_request(resource) {
        return;
    }
    let Some(spec) = request["spec"].as_object_mut() else { return };
    let fields = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, is_empty) in fields {
        if is_empty { drop(spec.remove(field)) } else { drop(spec.insert(field.to_owned(), value)) }
    }
}

/// Rejects CSRs for client certificates of `system:masters` (`CertificateSubjectRestriction`), and those whose subject
/// does not identify exactly one user.
pub(crate) fn restrict_certificate_subject(resource: &RequestScope, request: &Value) -> Result<(), ApiError> {
    const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
    const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
    let signer = request["spec"]["signerName"].as_str().unwrap_or("");
    if !is_certificate_signing_request(resource)
        || resource.subresource.is_some()
        || !matches!(signer, CLIENT | KUBELET)
    {
        return Ok(());
    }
    let encoded = request["spec"]["request"].as_str().unwrap_or("");
    if certificates::is_invalid_request(encoded) {
        // Validation reports the error.
        return Ok(());
    }
    let message = match certificates::requested_user(encoded) {
        Err(error) => error.to_string(),
        Ok(user) if signer == CLIENT && user.groups.iter().any(|group| group == "system:masters") => {
            format!("use of {CLIENT} signer with system:masters group is not allowed")
        }
        Ok(_) => return Ok(()),
    };
    let name = request["metadata"]["name"].as_str().unwrap_or("");
    Err(ApiError::forbidden(resource.kind.info(), name, &message))
}

/// Requires the verbs `approve` and `sign` for the signer (`CertificateApproval`, `CertificateSigning`).
pub(crate) fn check(
    authorizer: &Authorizer,
    user: &UserInfo,
    resource: &RequestScope,
    new: &Value,
    old: &Value,
) -> Result<(), ApiError> {
    let is_signing = ["certificate", "conditions"].iter().any(|field| new["status"][*field] != old["status"][*field]);
    let verb = match resource.subresource.as_deref() {
        Some("approval") => "approve",
        Some("status") if is_signing => "sign",
        _ => return Ok(()),
    };
    let signer = old["spec"]["signerName"].as_str().unwrap_or("");
    let domain = signer.split('/').next().unwrap_or("");
    let is_authorized = |name: &str| {
        let [group, resource, name] = [GROUP, "signers", name].map(str::to_owned);
        let attributes = ResourceAttributes { group, resource, name, ..ResourceAttributes::default() };
        matches!(authorizer.authorize(user, &Attributes::for_resource(verb, attributes)), Decision::Allowed(_))
    };
    if !is_certificate_signing_request(resource) || is_authorized(signer) || is_authorized(&format!("{domain}/*")) {
        return Ok(());
    }
    let name = old["metadata"]["name"].as_str().unwrap_or("");
    let message = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(ApiError::forbidden(resource.kind.info(), name, &message))
}
