//! Requests for certificates of Kubernetes' own signers are signed once they are approved, those of kubelets are approved,
//! and all go some time after they are settled (`pkg/controller/certificates`).
//!
//! Who holds the authority's key is no affair of the controllers: they are given a [`Signer`].

mod approver;
mod cleaner;
mod csr;
mod signer;

pub(crate) use approver::run as approver;
pub(crate) use cleaner::run as cleaner;
pub(crate) use signer::run as signer;

use crate::informer::{CacheEvent, SharedInformer, key};
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use std::fmt;
use std::sync::Arc;

/// A certificate that is asked for.
#[derive(Debug)]
pub struct Order<'a> {
    /// The request, in PEM.
    pub request: &'a [u8],
    /// What it is for, as `certificates.k8s.io` names it.
    pub uses: &'a [String],
    /// Before that it does not hold.
    pub from: Timestamp,
    /// Nor after that.
    pub until: Timestamp,
}

type Sign = dyn Fn(&Order<'_>) -> Result<String, String> + Send + Sync;

/// Whoever signs certificates. Clones are the same.
#[derive(Clone)]
pub struct Signer(Arc<Sign>);

impl Signer {
    /// One that gives a certificate in PEM, or says why there is none.
    pub fn new(sign: impl Fn(&Order<'_>) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(sign))
    }

    fn sign(&self, order: &Order<'_>) -> Result<String, String> {
        (self.0)(order)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// The keys of the requests with which something may be to be done now, of those that concern a controller.
fn affected_requests(
    requests: &SharedInformer<CertificateSigningRequest>,
    seen: CacheEvent<CertificateSigningRequest>,
    concerns: impl Fn(&CertificateSigningRequest) -> bool,
) -> Vec<String> {
    let changed = match seen {
        CacheEvent::Changed { after, .. } => after.into_iter().collect(),
        CacheEvent::Resync => requests.all(),
    };
    changed.iter().filter(|request| concerns(request)).map(|request| key(request.as_ref())).collect()
}

/// What a controller says of a request.
fn condition(kind: &str, reason: &str, message: String) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..CertificateSigningRequestCondition::default()
    }
}

fn conditions(request: &CertificateSigningRequest) -> impl Iterator<Item = &CertificateSigningRequestCondition> {
    request.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn has(request: &CertificateSigningRequest, condition: &str) -> bool {
    conditions(request).any(|c| c.type_ == condition)
}

/// What was issued, if anything was.
fn certificate_of(request: &CertificateSigningRequest) -> Option<&[u8]> {
    let certificate = request.status.as_ref()?.certificate.as_ref()?;
    Some(certificate.0.as_slice()).filter(|pem| !pem.is_empty())
}
