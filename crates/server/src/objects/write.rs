//! Helpers of all writes: dry runs, warnings, and the response with the written object.

use crate::{
    objects::{call::Call, conversion, object},
    proxy::webhook::WebhookClient,
};
use errors::ApiError;
use http::{HeaderValue, Response};
use kinds::{FieldErrors, FieldPath, Kind};
use request::Query;
use response::{Body, HandlerResult};
use serde_json::{Value, json};
use std::collections::HashSet;
use store::Object;

/// Maximum characters of all warnings of one response, as upstream.
const MAX_WARNINGS: usize = 4096;
/// Characters to which each warning is truncated beyond [`MAX_WARNINGS`].
const MAX_WARNING: usize = 256;

/// Parses `dryRun`; `options` is for example `CreateOptions`.
pub(crate) fn dry_run(query: &Query, options: &str) -> Result<bool, ApiError> {
    match query.get("dryRun") {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => {
            let mut errors = FieldErrors::default();
            errors.not_supported(&FieldPath::new("dryRun"), &json!([other]), &["All"]);
            Err(ApiError::invalid_options(options, &errors))
        }
    }
}

/// Adds `Warning` headers, without duplicates.
pub(crate) fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in truncate_warnings(warnings) {
        let text: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append("warning", value);
        }
    }
    response
}

/// Removes duplicate warnings, and truncates each when all together are too long (upstream's `recorder.AddWarning`).
fn truncate_warnings(warnings: &[String]) -> Vec<&str> {
    let (mut result, mut length, mut truncates): (Vec<&str>, usize, bool) = (Vec::new(), 0, false);
    let mut seen = HashSet::new();
    for warning in warnings.iter().filter(|warning| !warning.is_empty() && seen.insert(warning.as_str())) {
        if truncates && length >= MAX_WARNINGS {
            break;
        }
        let text = if truncates { truncate_warning(warning) } else { warning };
        result.push(text);
        length += text.chars().count();
        if !truncates && length > MAX_WARNINGS {
            truncates = true;
            result.iter_mut().for_each(|text| *text = truncate_warning(text));
            length = result.iter().map(|text| text.chars().count()).sum();
        }
    }
    result
}

fn truncate_warning(text: &str) -> &str {
    text.char_indices().nth(MAX_WARNING).map_or(text, |(at, _)| &text[..at])
}

/// Responds with a stored object, in the representation that the client accepts.
pub(crate) async fn respond_with_object(
    webhooks: &WebhookClient,
    kind: &dyn Kind,
    code: u16,
    object: &Object,
    call: &Call,
) -> HandlerResult {
    let is_stored_form = kind.conversion().is_none() || kind.is_stored_form(object.revision);
    match object::negotiate_object(&call.accept, kind.info())? {
        object::Representation::Object if is_stored_form => Ok(response::bytes(code, object::encoded(kind, object))),
        object::Representation::Metadata if is_stored_form => {
            Ok(response::bytes(code, object::metadata_bytes(kind, object)))
        }
        _ => respond_with_value(kind, code, conversion::decode(webhooks, kind, object).await?, call),
    }
}

/// Responds with an object that is not stored (dry run, computed or virtual), in the representation that the client
/// accepts.
pub(crate) fn respond_with_value(kind: &dyn Kind, code: u16, value: Value, call: &Call) -> HandlerResult {
    Ok(response::json(
        code,
        &match object::negotiate_object(&call.accept, kind.info())? {
            object::Representation::Object => value,
            object::Representation::Metadata => object::metadata_only(&value),
            object::Representation::Table => {
                let metadata = match &value["metadata"]["resourceVersion"] {
                    Value::Null => json!({}),
                    revision => json!({"resourceVersion": revision}),
                };
                object::table(kind, &[value], &metadata, true, object::IncludeObjectPolicy::parse(&call.query)?)
            }
        },
    ))
}

/// Whether a value is a list with elements.
fn is_nonempty_list(list: &Value) -> bool {
    list.as_array().is_some_and(|f| !f.is_empty())
}

/// Whether an update removed the last finalizer of an object that is being deleted, so that it must be deleted now
/// (upstream's `ShouldDeleteDuringUpdate`).
pub(crate) fn should_delete_during_update(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let ending =
        !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let held_by_content = value["kind"] == "Namespace" && is_nonempty_list(&value["spec"]["finalizers"]);
    ending && !held_by_content && !is_nonempty_list(&metadata["finalizers"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_beyond_limit_are_truncated() {
        let check = |lengths: &[usize], expected: &[usize]| {
            let letters = ('a'..='z').chain('A'..='Z');
            let all: Vec<String> = lengths.iter().zip(letters).map(|(n, c)| c.to_string().repeat(*n)).collect();
            let actual: Vec<usize> = truncate_warnings(&all).iter().map(|text| text.len()).collect();
            assert_eq!(actual, expected, "{lengths:?}");
        };
        check(&[], &[]);
        check(&[0, 1], &[1]);
        check(&[4096], &[4096]);
        check(&[4097], &[256]);
        check(&[2000, 2000, 2000], &[256, 256, 256]);
        check(&[2000, 100, 2000], &[256, 100, 256]);
        check(&[5000; 20], &[256; 16]);
        let same = ["w".to_owned(), "w".to_owned()];
        assert_eq!(truncate_warnings(&same), ["w"]);
        assert_eq!(truncate_warning(&"é".repeat(300)).chars().count(), MAX_WARNING);
    }
}
