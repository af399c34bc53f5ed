//! Values of enum fields (`+enum`).

use serde_json::{Value, json};
use std::{collections::HashMap, fmt::Write, sync::LazyLock};

const TEXT: &str = include_str!("enums.txt");
/// The enum of apiextensions-apiserver, which is not in `kubernetes/api`.
const APIEXTENSIONS: &str = "[apiextensions/v1]
ValidationRule reason FieldValueDuplicate|FieldValueForbidden|FieldValueInvalid|FieldValueRequired";

type Fields = Vec<(&'static str, Vec<&'static str>)>;

/// By `core/v1.Container`.
static ENUMS: LazyLock<HashMap<String, Fields>> = LazyLock::new(|| {
    let (mut all, mut package) = (HashMap::<String, Fields>::new(), "");
    for line in TEXT.lines().chain(APIEXTENSIONS.lines()).filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            package = name;
        } else if let Some((object, (field, values))) =
            line.split_once(' ').and_then(|(object, rest)| Some((object, rest.split_once(' ')?)))
        {
            all.entry(format!("{package}.{object}")).or_default().push((field, values.split('|').collect()));
        }
    }
    all
});

/// Adds the values to a schema such as `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
    let mut parts = name.rsplit('.');
    let (Some(message), Some(version), Some(package)) = (parts.next(), parts.next(), parts.next()) else { return };
    for (field, values) in ENUMS.get(&format!("{package}/{version}.{message}")).into_iter().flatten() {
        let Some(property) = schema.pointer_mut(&format!("/properties/{field}")) else { continue };
        // The items of a list or a map have the values.
        let inner = ["items", "additionalProperties"].into_iter().find(|inner| property[*inner].is_object());
        match inner {
            Some(inner) => property[inner]["enum"] = json!(values),
            None => {
                property["enum"] = json!(values);
                describe(property, values);
            }
        }
    }
}

/// Adds the values to the description, as upstream, but without their explanations.
fn describe(property: &mut Value, values: &[&str]) {
    let mut text = property["description"].as_str().unwrap_or("").to_owned();
    text.push_str("\n\nPossible enum values:");
    for value in values {
        let _ = write!(text, "\n - `{value:?}`");
    }
    property["description"] = json!(text.trim_start());
}
