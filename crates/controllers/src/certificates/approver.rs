//! Approves client certificate requests of kubelets that are allowed to have them
//! (`pkg/controller/certificates/approver`).

use super::{
    affected_requests, certificate_of, condition,
    csr::{KUBELET_CLIENT, ParsedCsr},
    has,
};
use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use informer::{CacheEvent, SharedInformer};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::{Api, Client, api::PostParams};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval of access reviews of a request that is not allowed.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

struct CsrApprover {
    client: Client,
    requests: SharedInformer<CertificateSigningRequest>,
}

/// Returns whether the request is an undecided one of the kubelet client signer.
fn is_approvable(request: &CertificateSigningRequest) -> bool {
    request.spec.signer_name == KUBELET_CLIENT
        && certificate_of(request).is_none()
        && !has(request, "Approved")
        && !has(request, "Denied")
}

/// Subresource to review access to, and message of the approval. The one for the own certificate comes first.
const RECOGNIZERS: [(&str, &str); 2] = [
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
];

impl CsrApprover {
    async fn is_allowed(&self, spec: &CertificateSigningRequestSpec, right: &str) -> Result<bool, kube::Error> {
        let attributes = ResourceAttributes {
            group: Some("certificates.k8s.io".to_owned()),
            resource: Some("certificatesigningrequests".to_owned()),
            verb: Some("create".to_owned()),
            subresource: Some(right.to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: spec.username.clone(),
                uid: spec.uid.clone(),
                groups: spec.groups.clone(),
                extra: spec.extra.clone(),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let reviewed = api.create(&PostParams::default(), &review).await?;
        Ok(reviewed.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, request: &CertificateSigningRequest, message: &str) -> Result<(), kube::Error> {
        let mut new = request.clone();
        let conditions = new.status.get_or_insert_default().conditions.get_or_insert_default();
        conditions.push(condition("Approved", "AutoApproved", message.to_owned()));
        let name = request.metadata.name.as_deref().unwrap_or_default();
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_subresource("approval", name, &PostParams::default(), &new).await)
    }
}

impl Controller for CsrApprover {
    type Event = CacheEvent<CertificateSigningRequest>;

    const NAME: &'static str = names::CERTIFICATE_SIGNING_REQUEST_APPROVING;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        affected_requests(&self.requests, event, is_approvable)
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(request) = self.requests.get_by_key(key).filter(|request| is_approvable(request)) else {
            return Ok(None);
        };
        let requested = ParsedCsr::parse(&request.spec.request.0);
        let Some(requested) = requested.ok().filter(|requested| requested.validate(&request.spec).is_ok()) else {
            return Ok(None);
        };
        let is_own_certificate = request.spec.username.as_deref() == Some(&requested.common_name);
        for (right, message) in
            RECOGNIZERS.into_iter().filter(|(right, _)| is_own_certificate || *right != "selfnodeclient")
        {
            if self.is_allowed(&request.spec, right).await? {
                self.approve(&request, message).await?;
                return Ok(None);
            }
        }
        // No event tells when access is granted.
        Ok(Some(RETRY_INTERVAL))
    }
}

/// Subscribes to the informer when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    requests: SharedInformer<CertificateSigningRequest>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = requests.subscribe();
    worker::run(CsrApprover { client: clients.for_service_account("certificate-controller"), requests }, events, stop)
}
