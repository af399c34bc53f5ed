//! Strict decoding: unknown and duplicate fields are errors, warnings or ignored (`fieldValidation`).

use crate::objects::{
    decode::{DecodedBody, is_yaml_error, split_warnings},
    kind_check, patch,
};
use errors::{ApiError, GroupKind};
use kinds::{FieldErrors, FieldPath, Kind};
use request::Query;
use serde_json::{Value, json};
use std::collections::HashSet;
use wire::typed::{self, ConverterError, DecodeFieldError};

/// `fieldValidation`: how unknown and duplicate fields are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

impl Validation {
    /// Parses `fieldValidation`; `options` is for example `CreateOptions`.
    pub(crate) fn parse(query: &Query, options: &str) -> Result<Self, ApiError> {
        match query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let mut errors = FieldErrors::default();
                let supported = ["", "Ignore", "Strict", "Warn"];
                errors.not_supported(&FieldPath::new("fieldValidation"), &json!(other), &supported);
                Err(ApiError::invalid_options(options, &errors))
            }
        }
    }
}

/// Decodes the object of a create or update without unknown fields; returns warnings about the removed fields, too.
pub(crate) fn check(
    kind: &dyn Kind,
    parsed: DecodedBody,
    validation: Validation,
) -> Result<(Value, Vec<String>), ApiError> {
    let info = kind.info();
    let handled = |message: &str| {
        ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {message}",
            info.kind, info.version, info.kind
        ))
    };
    let DecodedBody { value: mut object, duplicates } = parsed;
    kind_check::check(kind, &object)?;
    let unknown = kind.decode(&mut object).map_err(|error| handled(&error.to_string()))?;
    let wrong = in_order(kind, unknown, duplicates);
    match validation {
        Validation::Strict if !wrong.is_empty() => {
            Err(handled(&format!("strict decoding error: {}", wrong.join(", "))))
        }
        Validation::Warn => Ok((object, wrong.iter().flat_map(|wrong| split_warnings(wrong)).collect())),
        _ => Ok((object, Vec::new())),
    }
}

/// Orders unknown and duplicate fields as upstream, and reports a field that is both only once. YAML and custom resources
/// have another order.
fn in_order(kind: &dyn Kind, unknown: Vec<String>, duplicates: Vec<String>) -> Vec<String> {
    if kind.is_custom() || duplicates.iter().any(|duplicate| is_yaml_error(duplicate)) {
        return duplicates.into_iter().chain(unknown).collect();
    }
    let reported: HashSet<Option<&str>> = unknown.iter().map(|unknown| unknown.strip_prefix("unknown")).collect();
    let is_known = |duplicate: &String| !reported.contains(&duplicate.strip_prefix("duplicate"));
    let unreported: Vec<String> = duplicates.into_iter().filter(is_known).collect();
    unknown.into_iter().chain(unreported).collect()
}

/// A patched object cannot be decoded.
#[derive(Debug, thiserror::Error)]
enum PatchedObjectError {
    #[error(transparent)]
    Decoder(#[from] DecodeFieldError),
    #[error(transparent)]
    Converter(#[from] ConverterError),
}

/// Converts an object that cannot be decoded, as upstream's unstructured converter; returns its error or the decoder's.
fn convert(kind: &dyn Kind, object: &mut Value, decoder: DecodeFieldError) -> Result<Vec<String>, PatchedObjectError> {
    let info = kind.info();
    match typed::convert(&info.api_version(), info.kind, object) {
        Ok(()) => Ok(kind.decode(object)?),
        Err(typed::ConversionError::Converter(error)) => Err(error.into()),
        Err(typed::ConversionError::Decoder) => Err(decoder.into()),
    }
}

/// Decodes a patched object. As upstream, its errors are those of an invalid `patch` field, with the patch's text.
pub(crate) fn check_patched(
    kind: &dyn Kind,
    parsed: DecodedBody,
    content_type: &str,
    shown: impl Fn() -> String,
    validation: Validation,
) -> Result<(Value, Vec<String>), ApiError> {
    let invalid = |message: &str| {
        let mut errors = FieldErrors::default();
        errors.invalid(&FieldPath::new("patch"), &json!(shown()), message);
        ApiError::invalid(GroupKind::new("", ""), "", &errors)
    };
    let DecodedBody { value: mut object, duplicates } = parsed;
    if !object.is_object() {
        return Err(invalid("the result of the patch is no object"));
    }
    kind_check::check_patched(kind, &object, invalid)?;
    let unknown = match kind.decode(&mut object) {
        Err(error) if content_type == patch::STRATEGIC => convert(kind, &mut object, error),
        decoded => decoded.map_err(Into::into),
    };
    let unknown = unknown.map_err(|error| invalid(&error.to_string()))?;
    let wrong: Vec<String> = duplicates.into_iter().chain(unknown).collect();
    match validation {
        Validation::Strict if !wrong.is_empty() => {
            Err(invalid(&format!("strict decoding error: {}", wrong.join(", "))))
        }
        Validation::Warn => Ok((object, wrong.iter().flat_map(|wrong| split_warnings(wrong)).collect())),
        _ => Ok((object, Vec::new())),
    }
}
