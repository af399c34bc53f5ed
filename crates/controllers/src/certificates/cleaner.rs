//! Deletes old CertificateSigningRequests (`pkg/controller/certificates/cleaner`).
//!
//! Upstream checks hourly; here each request is requeued for its expiry.

use super::{affected_requests, certificate_of, conditions, has};
use crate::{
    clients::Clients,
    names,
    worker::{self, Controller, ignore_not_found_or_conflict},
};
use informer::{CacheEvent, SharedInformer};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use x509_parser::pem::parse_x509_pem;

/// Time after which approved, denied and failed requests are deleted.
const SETTLED_EXPIRATION: SignedDuration = SignedDuration::from_hours(1);
/// Time after which pending requests are deleted.
const PENDING_EXPIRATION: SignedDuration = SignedDuration::from_hours(24);

struct CsrCleaner {
    client: Client,
    requests: SharedInformer<CertificateSigningRequest>,
}

/// Returns the end of the certificate's validity.
fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Returns when the request is to be deleted, `None` if it is kept.
fn expires_at(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let after = |time: Timestamp, lasts: SignedDuration| time.checked_add(lasts).ok();
    if conditions(request).next().is_none() {
        return after(request.metadata.creation_timestamp.as_ref()?.0, PENDING_EXPIRATION);
    }
    let certificate = certificate_of(request);
    let settles = |kind: &str| matches!(kind, "Denied" | "Failed") || (kind == "Approved" && certificate.is_some());
    let settled = conditions(request).filter(|c| settles(&c.type_));
    let settled = settled.filter_map(|c| after(c.last_update_time.as_ref()?.0, SETTLED_EXPIRATION));
    let ended = certificate.filter(|_| has(request, "Approved")).and_then(not_after);
    settled.chain(ended).min()
}

impl Controller for CsrCleaner {
    type Event = CacheEvent<CertificateSigningRequest>;

    const NAME: &'static str = names::CERTIFICATE_SIGNING_REQUEST_CLEANER;

    fn observe(&self, event: Self::Event, _: Instant) -> Vec<String> {
        affected_requests(&self.requests, event, |request| expires_at(request).is_some())
    }

    async fn reconcile(&self, key: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(request) = self.requests.get_by_key(key) else { return Ok(None) };
        let Some(due) = expires_at(&request) else { return Ok(None) };
        let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        if !left.is_zero() {
            return Ok(Some(left));
        }
        let preconditions = Preconditions {
            uid: request.metadata.uid.clone(),
            resource_version: request.metadata.resource_version.clone(),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        ignore_not_found_or_conflict(
            Api::<CertificateSigningRequest>::all(self.client.clone()).delete(key, &params).await,
        )?;
        Ok(None)
    }
}

/// Subscribes to the informer when called, not when first polled.
pub(crate) fn run(
    clients: Clients,
    requests: SharedInformer<CertificateSigningRequest>,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send {
    let events = requests.subscribe();
    worker::run(CsrCleaner { client: clients.for_service_account("certificate-controller"), requests }, events, stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(conditions: &[(&str, &str)], certificate: Option<&str>, expected: Option<&str>) {
        let one = |(kind, at): &(&str, &str)| json!({"type": kind, "status": "True", "lastUpdateTime": format!("2026-01-01T{at}:00Z")});
        let conditions: Vec<Value> = conditions.iter().map(one).collect();
        let request = json!({"metadata": {"name": "r", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "", "signerName": "s"},
            "status": {"conditions": conditions, "certificate": certificate}});
        let due = expires_at(&serde_json::from_value(request).unwrap());
        assert_eq!(due.map(|due| due.to_string()).as_deref(), expected);
    }

    #[test]
    fn csr_expires_an_hour_after_settling_or_a_day_if_pending() {
        check(&[], None, Some("2026-01-02T00:00:00Z"));
        check(&[("Approved", "03:00")], None, None);
        check(&[("Approved", "03:00")], Some("eA=="), Some("2026-01-01T04:00:00Z"));
        check(&[("Denied", "05:00")], None, Some("2026-01-01T06:00:00Z"));
        check(&[("Approved", "03:00"), ("Failed", "04:30")], None, Some("2026-01-01T05:30:00Z"));
    }
}
