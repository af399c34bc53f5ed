//! Validity periods of certificates, and their renewal.

use super::PkiError;
use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;
use x509_parser::{prelude::X509Certificate, time::ASN1Time};

/// Validity of a CA: kubeadm's `CACertificateValidityPeriod`.
const CA: SignedDuration = SignedDuration::from_hours(10 * 8760);
/// Validity of other certificates: kubeadm's `CertificateValidityPeriod`.
const LEAF: SignedDuration = SignedDuration::from_hours(8760);
/// A certificate that expires within this time is renewed: a third of its validity.
const RENEWAL: SignedDuration = SignedDuration::from_hours(8760 / 3);
/// A CA that expires within this time is reported: it shortens the certificates that it issues.
const CA_WARNING: SignedDuration = LEAF;
/// Certificates are backdated by this time, for clocks that are behind (kubeadm's `CertificateBackdate`).
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// Validity period of a certificate, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    fn since(now: Timestamp, duration: SignedDuration) -> Self {
        let end = now.saturating_add(duration).unwrap_or(Timestamp::MAX);
        let not_before = whole_seconds(now.saturating_sub(BACKDATE).unwrap_or(now));
        Self { not_before, not_after: whole_seconds(end) }
    }

    /// Returns the period of a new CA.
    pub(super) fn of_ca(now: Timestamp) -> Self {
        Self::since(now, CA)
    }

    /// Returns the period of a new certificate. It ends with the CA's period at the latest.
    pub(super) fn of_leaf(now: Timestamp, ca: Self) -> Self {
        let leaf = Self::since(now, LEAF);
        let not_after = leaf.not_after.min(ca.not_after);
        Self { not_before: leaf.not_before.max(ca.not_before).min(not_after), not_after }
    }

    pub(super) fn of_certificate(certificate: &X509Certificate<'_>) -> Result<Self, PkiError> {
        let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).map_err(super::unusable);
        let validity = certificate.validity();
        Ok(Self { not_before: time(validity.not_before)?, not_after: time(validity.not_after)? })
    }

    pub(super) fn write(self, params: &mut CertificateParams) -> Result<(), PkiError> {
        let time = |time: Timestamp| ASN1Time::from_timestamp(time.as_second()).map_err(super::unusable);
        params.not_before = time(self.not_before)?.to_datetime();
        params.not_after = time(self.not_after)?.to_datetime();
        Ok(())
    }

    fn remaining(self, now: Timestamp) -> SignedDuration {
        self.not_after.duration_since(now)
    }

    /// Whether a certificate should be renewed: it expires soon, or is not valid yet because the clock was set back. It
    /// is not renewed if the new period would not be better.
    pub(super) fn is_due(self, now: Timestamp, ca: Self) -> bool {
        let next = Self::of_leaf(now, ca);
        let expires_soon = self.remaining(now) < RENEWAL && next.not_after > self.not_after;
        expires_soon || now < self.not_before && next.not_before < self.not_before
    }

    /// Whether a CA expires soon.
    pub(super) fn needs_warning(self, now: Timestamp) -> bool {
        self.remaining(now) < CA_WARNING
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn certificate_is_renewed_in_its_last_third() {
        let start = time("2026-01-01T00:00:00Z");
        let ca = Validity::of_ca(start);
        assert_eq!(ca.not_after, time("2035-12-30T00:00:00Z"));
        let leaf = Validity::of_leaf(start, ca);
        assert_eq!(
            leaf,
            Validity { not_before: time("2025-12-31T23:55:00Z"), not_after: time("2027-01-01T00:00:00Z") }
        );
        for (now, expected) in [
            ("2025-12-31T23:54:00Z", false),
            ("2026-01-01T00:00:00Z", false),
            ("2026-09-01T00:00:00Z", false),
            ("2026-09-02T00:00:00Z", true),
            ("2026-12-01T00:00:00Z", true),
            ("2030-01-01T00:00:00Z", true),
        ] {
            assert_eq!(leaf.is_due(time(now), ca), expected, "{now}");
        }
        // The CA of an older Podium is valid since 1975, so the clock may be set back.
        let older = Validity { not_before: time("1975-01-01T00:00:00Z"), not_after: time("4096-01-01T00:00:00Z") };
        assert!(leaf.is_due(time("2020-01-01T00:00:00Z"), older));
    }

    #[test]
    fn certificate_expires_with_its_ca_and_is_not_renewed() {
        let start = time("2026-01-01T00:00:00Z");
        let ca = Validity::of_ca(start);
        let late = time("2035-12-01T00:00:00Z");
        let leaf = Validity::of_leaf(late, ca);
        assert_eq!(leaf.not_after, ca.not_after);
        assert!(!leaf.is_due(time("2035-12-29T00:00:00Z"), ca));
        let after = Validity::of_leaf(time("2040-01-01T00:00:00Z"), ca);
        assert!(after.not_before <= after.not_after && after.not_after == ca.not_after);
    }

    #[test]
    fn ca_is_reported_in_its_last_year() {
        let ca = Validity::of_ca(time("2026-01-01T00:00:00Z"));
        assert!(!ca.needs_warning(time("2034-12-01T00:00:00Z")));
        assert!(ca.needs_warning(time("2035-02-01T00:00:00Z")));
        assert!(ca.needs_warning(time("2036-02-01T00:00:00Z")));
    }
}
