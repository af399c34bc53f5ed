//! Decoding of YAML, with limits of depth, size and alias expansion.

mod document;

use super::{DecodedBody, PathTooLong, check_paths};
use api::go_quote::quoted;
use document::Document;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Spanned, options::DuplicateKeyPolicy};
use std::{collections::HashSet, fmt, str::Utf8Error};

/// Maximal number of nodes that aliases of a document expand to.
const MAX_ALIAS_NODES: usize = 50_000;
/// Prefix of upstream's message of duplicate keys.
const UNMARSHAL_ERRORS: &str = "yaml: unmarshal errors:";

/// Error of decoding YAML.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeYamlError {
    #[error(transparent)]
    Utf8(#[from] Utf8Error),
    #[error("{}", first_line(.0))]
    Syntax(Box<serde_saphyr::Error>),
    #[error(transparent)]
    PathTooLong(#[from] PathTooLong),
}

impl From<serde_saphyr::Error> for DecodeYamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        Self::Syntax(Box::new(error))
    }
}

/// Decodes a document.
pub(super) fn decode(text: &str) -> Result<DecodedBody, DecodeYamlError> {
    match serde_saphyr::from_str_with_options::<Document>(text, options(DuplicateKeyPolicy::Error)) {
        Ok(Document(value)) => {
            check_paths(&value)?;
            Ok(DecodedBody { value, duplicates: Vec::new() })
        }
        Err(serde_saphyr::Error::DuplicateMappingKey { key, location }) => {
            let Document(value) = decode_last_wins(text)?;
            check_paths(&value)?;
            // If the second pass fails, the key that was found first is reported.
            let mut lines = decode_last_wins(text).map_or_else(|_| Vec::new(), |DuplicateKeys(lines)| lines);
            if lines.is_empty() {
                lines.push(already_set(location.line(), &key.unwrap_or_default()));
            }
            Ok(DecodedBody { value, duplicates: vec![format!("{UNMARSHAL_ERRORS}\n  {}", lines.join("\n  "))] })
        }
        Err(other) => Err(other.into()),
    }
}

/// Splits the message of duplicate keys into one warning for each key (`parseYAMLWarnings`).
pub(crate) fn split_warnings(message: &str) -> Vec<String> {
    match message.strip_prefix(UNMARSHAL_ERRORS) {
        Some(lines) => lines.trim_start().lines().map(|line| line.trim().to_owned()).collect(),
        None => vec![message.to_owned()],
    }
}

/// Whether this is YAML's message of duplicate keys.
pub(crate) fn is_yaml_error(message: &str) -> bool {
    message.starts_with(UNMARSHAL_ERRORS)
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> serde_saphyr::Options {
    // Upstream's parser follows YAML 1.1: `0644` is octal, and `yes` is true.
    let mut options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys, with_snippet: false, legacy_octal_numbers: true, strict_booleans: false,
    };
    options.alias_limits.max_total_replayed_events = MAX_ALIAS_NODES;
    options
}

/// Decodes a document with duplicate keys; the last one wins.
fn decode_last_wins<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, DecodeYamlError> {
    Ok(serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins))?)
}

fn already_set(line: u64, key: &str) -> String {
    format!("line {line}: key {} already set in map", quoted(key))
}

fn first_line(error: &serde_saphyr::Error) -> String {
    error.to_string().lines().next().unwrap_or("").to_owned()
}

/// Upstream's messages of the duplicate keys of a document, with their lines.
struct DuplicateKeys(Vec<String>);

impl<'de> Deserialize<'de> for DuplicateKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = Vec::new();
        DuplicateKeysSeed(&mut found).deserialize(deserializer)?;
        Ok(Self(found))
    }
}

/// Collects the duplicate keys of a node.
struct DuplicateKeysSeed<'a>(&'a mut Vec<String>);

impl<'de> DeserializeSeed<'de> for DuplicateKeysSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DuplicateKeysSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(DuplicateKeysSeed(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(Spanned { value: key, referenced: at, .. }) = map.next_key::<Spanned<String>>()? {
            if seen.contains(&key) {
                self.0.push(already_set(at.line(), &key));
            }
            seen.insert(key);
            map.next_value_seed(DuplicateKeysSeed(&mut *self.0))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(text: &str, expected: &Value, lines: &[&str]) {
        let DecodedBody { value, duplicates } = decode(text).unwrap();
        let warnings: Vec<String> = duplicates.iter().flat_map(|message| split_warnings(message)).collect();
        assert_eq!((&value, warnings.iter().map(String::as_str).collect::<Vec<_>>()), (expected, lines.to_vec()));
    }

    #[test]
    fn yaml_scalars_and_keys_are_decoded_as_upstream() {
        for (text, expected) in [
            (
                "0x10: a\n010: b\nn: c\nyes: d\n1.50: e\n1e6: f\n",
                json!({"16": "a", "8": "b", "false": "c", "true": "d", "1.5": "e", "1e+06": "f"}),
            ),
            ("'0x10': a\n\"yes\": b\n'010': c\n!!str n: d\n", json!({"0x10": "a", "yes": "b", "010": "c", "n": "d"})),
            ("a: 400.0\nb: 1e3\nc: 1.5\nd: -0.0\n", json!({"a": 400, "b": 1000, "c": 1.5, "d": 0})),
            (
                "a: 0644\nb: 0o17\nc: 0x1F\nd: 0b11\ne: 1_000\nf: -010\n",
                json!({"a": 420, "b": 15, "c": 31, "d": 3, "e": 1000, "f": -8}),
            ),
            (
                "a: yes\nb: Off\nc: y\nd: 'no'\ne: ~\nf:\n",
                json!({"a": true, "b": false, "c": true, "d": "no", "e": null, "f": null}),
            ),
            ("a: 2026-01-02\nb: 10.0.0.1\nc: 1.2.3\n", json!({"a": "2026-01-02", "b": "10.0.0.1", "c": "1.2.3"})),
            ("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})),
        ] {
            assert_eq!(decode(text).unwrap().value, expected, "{text}");
        }
        assert!(decode("~: a\n").is_err() && decode("[a]: b\n").is_err());
    }

    #[test]
    fn duplicate_yaml_keys_are_reported_with_lines() {
        check("a: 1\nb: {c: 2}\n", &json!({"a": 1, "b": {"c": 2}}), &[]);
        let duplicates = "a: 1\nb:\n- {c: 2, c: 3}\n- d: x\n  d: [true]\n1: 2\na: ~\n";
        let lines = [
            "line 3: key \"c\" already set in map",
            "line 5: key \"d\" already set in map",
            "line 7: key \"a\" already set in map",
        ];
        check(duplicates, &json!({"a": null, "b": [{"c": 3}, {"d": [true]}], "1": 2}), &lines);
        let huge = "a: 1\na: 123456789012345678901234567890123456789012345\n";
        check(huge, &decode(&huge["a: 1\n".len()..]).unwrap().value, &["line 2: key \"a\" already set in map"]);
        let whole = decode("a: 1\na: 1\na: 2\n").unwrap().duplicates;
        let lines = "  line 2: key \"a\" already set in map\n  line 3: key \"a\" already set in map";
        assert_eq!(whole, [format!("{UNMARSHAL_ERRORS}\n{lines}")]);
    }
}
