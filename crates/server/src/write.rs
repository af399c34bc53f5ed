//! What every write shares: dry runs, warnings, and how the object that was written is shown.

use crate::{
    conversion,
    kinds::{FieldErrors, FieldPath, Kind},
    object,
    request::Query,
    response::{self, Body, Reply},
    service::{ApiServer, Call},
    status::ApiError,
};
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use std::collections::HashSet;
use store::Object;

/// Upstream sends no more characters of warnings than this with one answer.
const MAX_WARNINGS: usize = 4096;
/// What is left of each when they are more.
const MAX_WARNING: usize = 256;

/// Whether nothing is to be stored; `options` is for example `CreateOptions`.
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

/// Adds warnings, which kubectl shows; each one once.
pub(crate) fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in shortened(warnings) {
        let text: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append("warning", value);
        }
    }
    response
}

/// What is told of warnings, each of them once: all, or, when they are too long together, the beginning of each until
/// these are (`recorder.AddWarning`).
fn shortened(warnings: &[String]) -> Vec<&str> {
    let (mut told, mut length, mut cuts): (Vec<&str>, usize, bool) = (Vec::new(), 0, false);
    let mut seen = HashSet::new();
    for warning in warnings.iter().filter(|warning| !warning.is_empty() && seen.insert(warning.as_str())) {
        if cuts && length >= MAX_WARNINGS {
            break;
        }
        let text = if cuts { cut(warning) } else { warning };
        told.push(text);
        length += text.chars().count();
        if !cuts && length > MAX_WARNINGS {
            cuts = true;
            told.iter_mut().for_each(|text| *text = cut(text));
            length = told.iter().map(|text| text.chars().count()).sum();
        }
    }
    told
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(MAX_WARNING).map_or(text, |(at, _)| &text[..at])
}

/// A stored object, as the client wants to see it.
pub(crate) async fn show(server: &ApiServer, kind: &dyn Kind, code: u16, object: &Object, call: &Call) -> Reply {
    let is_at_hand = kind.conversion().is_none() || kind.is_stored_form(object.revision);
    match object::view(&call.accept, kind.info())? {
        object::View::Whole if is_at_hand => Ok(response::bytes(code, object::bytes(kind, object))),
        object::View::Metadata if is_at_hand => Ok(response::bytes(code, object::metadata_bytes(kind, object))),
        _ => show_value(kind, code, conversion::decode(&server.webhooks, kind, object).await?, call),
    }
}

/// An object that is not stored (of a dry run, or made when it is asked for), as the client wants to see it.
pub(crate) fn show_value(kind: &dyn Kind, code: u16, value: Value, call: &Call) -> Reply {
    Ok(response::json(
        code,
        &match object::view(&call.accept, kind.info())? {
            object::View::Whole => value,
            object::View::Metadata => object::metadata_only(&value),
            object::View::Table => {
                let metadata = match &value["metadata"]["resourceVersion"] {
                    Value::Null => json!({}),
                    revision => json!({"resourceVersion": revision}),
                };
                object::table(kind, &[value], &metadata, true, object::Include::parse(&call.query)?)
            }
        },
    ))
}

/// Now, to the second, as Kubernetes writes times.
pub(crate) fn now() -> jiff::Timestamp {
    whole_seconds(jiff::Timestamp::now())
}

/// To the second.
pub(crate) fn whole_seconds(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Whether a list has elements.
fn filled(list: &Value) -> bool {
    list.as_array().is_some_and(|f| !f.is_empty())
}

/// What was only kept by finalizers goes with the last of them.
pub(crate) fn removable(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let ending =
        !metadata["deletionTimestamp"].is_null() && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
    let held_by_content = value["kind"] == "Namespace" && filled(&value["spec"]["finalizers"]);
    ending && !held_by_content && !filled(&metadata["finalizers"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_that_are_too_long_together_are_cut() {
        let check = |lengths: &[usize], expected: &[usize]| {
            let letters = ('a'..='z').chain('A'..='Z');
            let all: Vec<String> = lengths.iter().zip(letters).map(|(n, c)| c.to_string().repeat(*n)).collect();
            let told: Vec<usize> = shortened(&all).iter().map(|text| text.len()).collect();
            assert_eq!(told, expected, "{lengths:?}");
        };
        check(&[], &[]);
        check(&[0, 1], &[1]);
        check(&[4096], &[4096]);
        check(&[4097], &[256]);
        check(&[2000, 2000, 2000], &[256, 256, 256]);
        check(&[2000, 100, 2000], &[256, 100, 256]);
        check(&[5000; 20], &[256; 16]);
        let same = ["w".to_owned(), "w".to_owned()];
        assert_eq!(shortened(&same), ["w"]);
        assert_eq!(cut(&"é".repeat(300)).chars().count(), MAX_WARNING);
    }
}
