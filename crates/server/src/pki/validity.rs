//! For how long certificates are valid, and when they are renewed.

use super::PkiError;
use jiff::{SignedDuration, Timestamp};
use rcgen::CertificateParams;
use x509_parser::{prelude::X509Certificate, time::ASN1Time};

/// A certificate authority's: kubeadm's `CACertificateValidityPeriod`.
const AUTHORITY: SignedDuration = SignedDuration::from_hours(10 * 8760);
/// Every other certificate's: kubeadm's `CertificateValidityPeriod`.
const LEAF: SignedDuration = SignedDuration::from_hours(8760);
/// A certificate that is valid for less than this is renewed: a third of its life.
const RENEWAL: SignedDuration = SignedDuration::from_hours(8760 / 3);
/// An authority that is valid for less than this is reported: it shortens the certificates that it issues.
const AUTHORITY_WARNING: SignedDuration = LEAF;
/// Certificates are valid since a moment ago, for clocks that are behind (kubeadm's `CertificateBackdate`).
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// When a certificate is valid, to the second, as certificates have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

impl Validity {
    fn since(now: Timestamp, lasts: SignedDuration) -> Self {
        let end = now.saturating_add(lasts).unwrap_or(Timestamp::MAX);
        let not_before = whole_seconds(now.saturating_sub(BACKDATE).unwrap_or(now));
        Self { not_before, not_after: whole_seconds(end) }
    }

    /// Of an authority that is made now.
    pub(super) fn of_authority(now: Timestamp) -> Self {
        Self::since(now, AUTHORITY)
    }

    /// Of a certificate that this authority issues now. It ends with the authority at the latest.
    pub(super) fn of_leaf(now: Timestamp, authority: Self) -> Self {
        let leaf = Self::since(now, LEAF);
        let not_after = leaf.not_after.min(authority.not_after);
        Self { not_before: leaf.not_before.max(authority.not_before).min(not_after), not_after }
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

    fn left(self, now: Timestamp) -> SignedDuration {
        self.not_after.duration_since(now)
    }

    /// Whether a certificate should be replaced by one that this authority issues now: it ends soon, or is not valid yet
    /// because the clock was set back. A certificate that would not be better is not worth it.
    pub(super) fn is_due(self, now: Timestamp, authority: Self) -> bool {
        let next = Self::of_leaf(now, authority);
        let ends_soon = self.left(now) < RENEWAL && next.not_after > self.not_after;
        ends_soon || now < self.not_before && next.not_before < self.not_before
    }

    /// Whether an authority ends soon.
    pub(super) fn needs_warning(self, now: Timestamp) -> bool {
        self.left(now) < AUTHORITY_WARNING
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
    fn leaf_is_renewed_in_the_last_third_of_its_life() {
        let start = time("2026-01-01T00:00:00Z");
        let authority = Validity::of_authority(start);
        assert_eq!(authority.not_after, time("2035-12-30T00:00:00Z"));
        let leaf = Validity::of_leaf(start, authority);
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
            assert_eq!(leaf.is_due(time(now), authority), expected, "{now}");
        }
        // An authority of an older Podium holds since 1975: the clock may be set back.
        let older = Validity { not_before: time("1975-01-01T00:00:00Z"), not_after: time("4096-01-01T00:00:00Z") };
        assert!(leaf.is_due(time("2020-01-01T00:00:00Z"), older));
    }

    #[test]
    fn leaf_ends_with_its_authority_and_is_not_renewed_in_vain() {
        let start = time("2026-01-01T00:00:00Z");
        let authority = Validity::of_authority(start);
        let late = time("2035-12-01T00:00:00Z");
        let leaf = Validity::of_leaf(late, authority);
        assert_eq!(leaf.not_after, authority.not_after);
        assert!(!leaf.is_due(time("2035-12-29T00:00:00Z"), authority));
        let after = Validity::of_leaf(time("2040-01-01T00:00:00Z"), authority);
        assert!(after.not_before <= after.not_after && after.not_after == authority.not_after);
    }

    #[test]
    fn authority_is_reported_in_its_last_year() {
        let authority = Validity::of_authority(time("2026-01-01T00:00:00Z"));
        assert!(!authority.needs_warning(time("2034-12-01T00:00:00Z")));
        assert!(authority.needs_warning(time("2035-02-01T00:00:00Z")));
        assert!(authority.needs_warning(time("2036-02-01T00:00:00Z")));
    }
}
