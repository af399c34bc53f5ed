//! Validation of iSCSI volumes (`validateISCSIVolumeSource`, `validateISCSIPersistentVolumeSource`).

use super::{Owner, is_unset_or_byte};
use crate::{FieldErrors, field_cursor::FieldCursor};
use serde_json::json;

/// Maximum length of volume name and target portal, which form a directory's name.
const MAX_NAME_AND_PORTAL_LENGTH: usize = 64;

pub(super) fn validate_iscsi<'v>(
    source: &FieldCursor<'v, '_>,
    owner: Owner<'_>,
    volume: &FieldCursor<'v, '_>,
    errors: &mut FieldErrors,
) {
    validate_portal(source, owner, volume, errors);
    let (iqn, lun, secret, initiator) =
        (source.at("iqn"), source.at("lun"), source.at("secretRef"), source.at("initiatorName"));
    if !iqn.text().is_empty() {
        validate_name(&iqn, owner, errors);
    }
    if !is_unset_or_byte(&lun) {
        lun.invalid("must be between 0 and 255, inclusive", errors);
    }
    let uses_chap = source.at("chapAuthDiscovery").is_true() || source.at("chapAuthSession").is_true();
    if secret.is_null() && uses_chap {
        secret.required("", errors);
    }
    if matches!(owner, Owner::PersistentVolume(_)) && secret.is_set() && secret.at("name").text().is_empty() {
        secret.at("name").required("", errors);
    }
    if initiator.is_set() {
        // Upstream's path.
        validate_name(&initiator.shown_as("initiatorname"), owner, errors);
    }
}

fn validate_portal(
    source: &FieldCursor<'_, '_>,
    owner: Owner<'_>,
    volume: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    let portal = source.at("targetPortal");
    let (Owner::Pod(name) | Owner::PersistentVolume(name)) = owner;
    if source.at("initiatorName").is_set() && format!("{name}:{}", portal.text()).len() > MAX_NAME_AND_PORTAL_LENGTH {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        match owner {
            Owner::Pod(name) => errors.invalid(&volume.at("name").path(), &json!(name), detail),
            // Upstream's path.
            Owner::PersistentVolume(_) => portal.shown_as("targetportal").invalid(detail, errors),
        }
    }
}

fn validate_name(field: &FieldCursor<'_, '_>, owner: Owner<'_>, errors: &mut FieldErrors) {
    let name = field.text();
    let is_valid = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_prefixed_number(name, 16),
        Some("naa") => is_prefixed_number(name, 32),
        _ if matches!(owner, Owner::Pod(_)) => {
            return field.invalid("must be valid format starting with iqn, eui, or naa", errors);
        }
        _ => false,
    };
    if !is_valid {
        field.invalid("must be valid format", errors);
    }
}

/// Whether a name ends with an IQN such as `iqn.2001-04.com.example:disk`.
fn is_iqn(name: &str) -> bool {
    let date = |text: &str| {
        let digits = |part: &str, many: usize| part.len() == many && part.bytes().all(|b| b.is_ascii_digit());
        text.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2))
    };
    name.match_indices("iqn.").any(|(at, _)| {
        let Some((when, rest)) = name.get(at.saturating_add(4)..).and_then(|rest| rest.split_once('.')) else {
            return false;
        };
        let Some((authority, disk)) = rest.split_once(':') else { return false };
        let is_authority = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
        let is_disk = |c: char| !",;*&$| \t\n\u{c}\r".contains(c);
        date(when)
            && !authority.is_empty()
            && authority.bytes().all(is_authority)
            && !disk.is_empty()
            && disk.chars().all(is_disk)
    })
}

/// Whether a name has a format such as `eui.02004567A425678D`. Like upstream's regular expression, any character matches the
/// point.
fn is_prefixed_number(name: &str, digits: usize) -> bool {
    let mut rest = name.chars().skip(3);
    let number: String = if rest.next().is_some_and(|point| point != '\n') { rest.collect() } else { String::new() };
    number.len() == digits && number.bytes().all(|b| b.is_ascii_alphanumeric())
}
