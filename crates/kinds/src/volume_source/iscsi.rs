//! Validation of iSCSI volumes (`validateISCSIVolumeSource`, `validateISCSIPersistentVolumeSource`).

use super::{Owner, is_unset_or_byte};
use crate::{FieldErrors, FieldPath, field_validation::text};
use serde_json::{Value, json};

/// Maximum length of volume name and target portal, which form a directory's name.
const MAX_NAME_AND_PORTAL_LENGTH: usize = 64;

pub(super) fn validate_iscsi(source: &Value, owner: Owner<'_>, at: &FieldPath, errors: &mut FieldErrors) {
    let path = at.child("iscsi");
    validate_portal(source, owner, at, errors);
    if !text(source, "iqn").is_empty() {
        validate_name(&source["iqn"], owner, &path.child("iqn"), errors);
    }
    if !is_unset_or_byte(&source["lun"]) {
        errors.invalid(&path.child("lun"), &source["lun"], "must be between 0 and 255, inclusive");
    }
    let secret = &source["secretRef"];
    if secret.is_null() && (source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true) {
        errors.required(&path.child("secretRef"), "");
    }
    if matches!(owner, Owner::PersistentVolume(_)) && !secret.is_null() && text(secret, "name").is_empty() {
        errors.required(&path.child("secretRef").child("name"), "");
    }
    if !source["initiatorName"].is_null() {
        // Upstream's path.
        validate_name(&source["initiatorName"], owner, &path.child("initiatorname"), errors);
    }
}

fn validate_portal(source: &Value, owner: Owner<'_>, at: &FieldPath, errors: &mut FieldErrors) {
    let portal = text(source, "targetPortal");
    let (volume, at, value) = match owner {
        Owner::Pod(volume) => (volume, at.child("name"), json!(volume)),
        Owner::PersistentVolume(volume) => (volume, at.child("iscsi").child("targetportal"), json!(portal)),
    };
    if !source["initiatorName"].is_null() && format!("{volume}:{portal}").len() > MAX_NAME_AND_PORTAL_LENGTH {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.invalid(&at, &value, detail);
    }
}

fn validate_name(value: &Value, owner: Owner<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let name = value.as_str().unwrap_or("");
    let is_valid = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => is_prefixed_number(name, 16),
        Some("naa") => is_prefixed_number(name, 32),
        _ if matches!(owner, Owner::Pod(_)) => {
            return errors.invalid(path, value, "must be valid format starting with iqn, eui, or naa");
        }
        _ => false,
    };
    if !is_valid {
        errors.invalid(path, value, "must be valid format");
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
