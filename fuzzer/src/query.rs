//! Generates query parameters.

use crate::{rng::SeededRng, values};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

/// Parameters that may be missing in the documents, and an unknown one.
const OTHER_PARAMETERS: [&str; 9] = [
    "pretty",
    "timeout",
    "sendInitialEvents",
    "includeObject",
    "orphanDependents",
    "dryRun",
    "gracePeriodSeconds",
    "limit",
    "unknown",
];
const SELECTORS: [&str; 18] = [
    "a=b",
    "a==b",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "a",
    "!a",
    "a>1",
    "a<x",
    "a=",
    "=b",
    "a in ()",
    "a in (b",
    "a,,b",
    "a=b,",
    "é=ü",
    "x/y/z=1",
    "!a=b",
];
const FIELDS: [&str; 16] = [
    "metadata.name=fuzz-0",
    "metadata.namespace!=a",
    "status.phase=Running",
    "spec.nodeName=",
    "type=Opaque",
    "involvedObject.name=a",
    "spec.mode=a",
    "metadata.name",
    "metadata.name==a==b",
    "a=b",
    "metadata.name=a\\,b",
    "metadata.name=a\\",
    "=",
    ",",
    "spec.unschedulable=true",
    "reason=a,reason=b",
];
const VERSIONS: [&str; 9] = ["", "0", "1", "2", "40", "999999999", "18446744073709551616", "-1", "abc"];

/// Returns the query of a request: a few documented parameters, and sometimes others.
pub(crate) fn random_query(rng: &mut SeededRng, known: &[String]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for name in known {
        if rng.chance(14) {
            let value = value(rng, name);
            pairs.push((name.clone(), value));
        }
    }
    if rng.chance(10) {
        let name = rng.pick(&OTHER_PARAMETERS);
        let value = value(rng, name);
        pairs.push((name.to_owned(), value));
    }
    // A duplicate parameter.
    if rng.chance(4)
        && let Some((name, _)) = pairs.first().cloned()
    {
        let value = value(rng, &name);
        pairs.push((name, value));
    }
    pairs
}

fn value(rng: &mut SeededRng, name: &str) -> String {
    if rng.chance(6) {
        return values::odd(rng);
    }
    match name {
        "labelSelector" => rng.pick(&SELECTORS).to_owned(),
        "fieldSelector" => rng.pick(&FIELDS).to_owned(),
        "resourceVersion" => rng.pick(&VERSIONS).to_owned(),
        "resourceVersionMatch" => rng.pick(&["Exact", "NotOlderThan", "NotOlderThan", "Sometimes"]).to_owned(),
        "continue" => token(rng),
        "fieldManager" => rng.pick(&["fuzz", "fuzz", "other", "a b", "\u{7f}"]).to_owned(),
        "fieldValidation" => rng.pick(&["Strict", "Warn", "Ignore", "strict"]).to_owned(),
        "dryRun" => rng.pick(&["All", "All", "Some"]).to_owned(),
        "propagationPolicy" => rng.pick(&["Background", "Foreground", "Orphan", "Never"]).to_owned(),
        "timeoutSeconds" => rng.pick(&["1", "1", "1", "0", "-1", "1e3", "9999999999999999999"]).to_owned(),
        "timeout" => rng.pick(&["1s", "5s", "0s", "-1s", "1h", "x"]).to_owned(),
        "limit" => rng.pick(&["1", "2", "500", "0", "-1", "9223372036854775807", "x"]).to_owned(),
        "gracePeriodSeconds" => rng.pick(&["0", "1", "30", "-1", "9223372036854775807"]).to_owned(),
        "includeObject" => rng.pick(&["None", "Metadata", "Object", "All"]).to_owned(),
        _ => rng.pick(&["true", "true", "false", "1", "t", "yes"]).to_owned(),
    }
}

/// Returns a valid or invalid continue token.
fn token(rng: &mut SeededRng) -> String {
    let version = rng.pick(&["meta.k8s.io/v1", "meta.k8s.io/v2"]);
    let revision = values::number(rng);
    let start = rng.pick(&["fuzz/fuzz-0\\u0000", "fuzz/", "../etc", "", "/", "\\u0000"]);
    let token = URL_SAFE_NO_PAD.encode(format!(r#"{{"v":"{version}","rv":{revision},"start":"{start}"}}"#));
    match rng.below(5) {
        0 => token[..rng.below(token.len())].to_owned(),
        1 => URL_SAFE_NO_PAD.encode(values::odd(rng)),
        _ => token,
    }
}

/// Encodes the query for a URL, with the question mark.
pub(crate) fn text(pairs: &[(String, String)]) -> String {
    if pairs.is_empty() {
        return String::new();
    }
    let mut text = form_urlencoded::Serializer::new("?".to_owned());
    // The serializer appends `&` to a non-empty prefix.
    text.extend_pairs(pairs);
    text.finish().replacen("?&", "?", 1)
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn query_is_escaped() {
        assert_eq!(text(&[]), "");
        let pairs = [("a".to_owned(), "b c&".to_owned()), ("d".to_owned(), String::new())];
        assert_eq!(text(&pairs), "?a=b+c%26&d=");
    }
}
