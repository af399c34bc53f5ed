//! Signs approved requests of Kubernetes' own signers (`pkg/controller/certificates/signer`).

use super::{
    CertificateOrder, Signer, SignerError, affected_requests, certificate_of, condition, conditions,
    csr::{ParsedCsr, SIGNERS},
    has,
};
use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use informer::{CacheEvent, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString, api::certificates::v1::CertificateSigningRequest, apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, api::PostParams};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Maximum validity (`--cluster-signing-duration`).
const MAX_DURATION: SignedDuration = SignedDuration::from_hours(8760);
const MIN_DURATION: SignedDuration = SignedDuration::from_mins(10);
/// Time by which certificates are backdated, for clocks that are behind.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Certificates with a shorter validity are extended by the backdating.
const SHORT_DURATION: SignedDuration = SignedDuration::from_hours(8);

struct CsrSigner {
    client: Client,
    signer: Signer,
    requests: SharedInformer<CertificateSigningRequest>,
}

/// Returns whether the request is approved and unsigned.
fn is_due(request: &CertificateSigningRequest) -> bool {
    let failed = conditions(request).any(|c| c.type_ == "Failed" && c.status == "True");
    SIGNERS.contains(&request.spec.signer_name.as_str())
        && certificate_of(request).is_none()
        && has(request, "Approved")
        && !has(request, "Denied")
        && !failed
}

/// Returns the validity for the requested duration in seconds.
fn validity(seconds: Option<i32>, now: Timestamp) -> (Timestamp, Timestamp) {
    let requested = seconds.map(|seconds| SignedDuration::from_secs(seconds.into()));
    let lasts = requested.unwrap_or(MAX_DURATION).clamp(MIN_DURATION, MAX_DURATION);
    let after_now = if lasts < SHORT_DURATION { lasts } else { lasts.saturating_sub(BACKDATE) };
    (now.saturating_sub(BACKDATE).unwrap_or(now), now.saturating_add(after_now).unwrap_or(now))
}

impl CsrSigner {
    /// Returns the request with its certificate, or with a `Failed` condition.
    fn signed(&self, request: &CertificateSigningRequest) -> Result<CertificateSigningRequest, SignerError> {
        let (spec, now) = (&request.spec, Timestamp::now());
        let mut new = request.clone();
        let status = new.status.get_or_insert_default();
        if let Err(error) = ParsedCsr::parse(&spec.request.0)?.validate(spec) {
            let mut failed = condition("Failed", "SignerValidationFailure", error.to_string());
            failed.last_update_time = Some(Time(now));
            status.conditions.get_or_insert_default().push(failed);
            return Ok(new);
        }
        let (from, until) = validity(spec.expiration_seconds, now);
        let uses = spec.usages.as_deref().unwrap_or_default();
        let pem = self.signer.sign(&CertificateOrder { request: &spec.request.0, uses, from, until })?;
        status.certificate = Some(ByteString(pem.into_bytes()));
        Ok(new)
    }
}

impl Controller for CsrSigner {
    type Event = CacheEvent<CertificateSigningRequest>;

    const NAME: &'static str = names::CERTIFICATE_SIGNING_REQUEST_SIGNING;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        affected_requests(&self.requests, event, is_due)
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(request) = self.requests.get_by_key(key).filter(|request| is_due(request)) else { return Ok(None) };
        let signed = self.signed(&request).map_err(kube::Error::Service)?;
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        // If the object has changed or is gone, the watch enqueues it again.
        ignore_not_found_or_conflict(api.replace_status(key, &PostParams::default(), &signed).await)?;
        Ok(None)
    }
}

/// Subscribes to the informer when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    signer: Signer,
    requests: SharedInformer<CertificateSigningRequest>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = requests.subscribe();
    worker::run(
        CsrSigner { client: clients.for_service_account("certificate-controller"), signer, requests },
        events,
        stop,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check_due(signer: &str, status: Value, expected: bool) {
        let spec = json!({"request": "", "signerName": signer});
        let request = json!({"metadata": {"name": "r"}, "spec": spec, "status": status});
        assert_eq!(is_due(&serde_json::from_value(request).unwrap()), expected, "{status}");
    }

    #[test]
    fn approved_unsettled_request_is_signed() {
        let conditions =
            |all: &[&str]| -> Value { all.iter().map(|kind| json!({"type": kind, "status": "True"})).collect() };
        let signer_name = "kubernetes.io/kube-apiserver-client";
        check_due(signer_name, json!({"conditions": conditions(&["Approved"])}), true);
        check_due("example.com/own", json!({"conditions": conditions(&["Approved"])}), false);
        check_due(signer_name, json!({}), false);
        check_due(signer_name, json!({"conditions": conditions(&["Approved", "Denied"])}), false);
        check_due(signer_name, json!({"conditions": conditions(&["Approved", "Failed"])}), false);
        check_due(signer_name, json!({"conditions": conditions(&["Approved"]), "certificate": "eA=="}), false);
    }

    #[track_caller]
    fn check_validity(seconds: Option<i32>, expected: &str) {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let (from, until) = validity(seconds, now);
        assert_eq!(from.to_string(), "2026-01-01T11:55:00Z");
        assert_eq!(until.to_string(), expected);
    }

    #[test]
    fn certificate_validity_is_clamped_to_bounds() {
        check_validity(None, "2027-01-01T11:55:00Z");
        check_validity(Some(i32::MAX), "2027-01-01T11:55:00Z");
        check_validity(Some(0), "2026-01-01T12:10:00Z");
        check_validity(Some(3600), "2026-01-01T13:00:00Z");
        check_validity(Some(8 * 3600), "2026-01-01T19:55:00Z");
    }
}
