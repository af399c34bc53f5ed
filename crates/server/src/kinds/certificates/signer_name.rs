//! What signers of certificates are called: `example.com/name` (`ValidateSignerName`).

use crate::kinds::{FieldErrors, FieldPath};
use serde_json::{Value, json};

const LONGEST_DOMAIN: usize = 253;
/// The name of something in a namespace, and a dot between.
const LONGEST_NAME: usize = 253 + 1 + 63;

pub(in crate::kinds) fn validate(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    if text.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = text.split('/').collect();
    let [domain, own] = parts[..] else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, why);
    };
    if domain.len() > LONGEST_DOMAIN {
        errors.too_long(path, LONGEST_DOMAIN);
    }
    labels(domain, api::names::dns1123_label, path, errors);
    if !domain.contains('.') {
        errors.invalid(path, &json!(domain), "should be a domain with at least two segments separated by dots");
    }
    labels(own, api::names::dns1123_subdomain, path, errors);
    if own.len() > LONGEST_NAME {
        errors.too_long(path, LONGEST_NAME);
    }
}

/// What is wrong with the first part that is.
fn labels(of: &str, rule: fn(&str) -> Vec<String>, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = of.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, wrong)) = wrong {
        let told = |why: &String| errors.invalid(path, &json!(of), &format!("validating label {label:?}: {why}"));
        wrong.iter().for_each(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong starts so.
    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate(&json!(name), &FieldPath::new("signerName"), &mut errors);
        let told: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), expected.len(), "{name}: {told:#?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.starts_with(&format!("signerName: {expected}")), "{name}: {told}");
        }
    }

    #[test]
    fn a_signer_has_a_domain_and_a_name() {
        check("example.com/name", &[]);
        check("example.com/space.name-1", &[]);
        check("", &["Required value"]);
        for wrong in ["name", "example.com/a/b"] {
            check(wrong, &["Invalid value: \""]);
        }
        check("example/a", &["Invalid value: \"example\": should be a domain with at least two segments"]);
        check(
            "exaMple.com/a",
            &["Invalid value: \"exaMple.com\": validating label \"exaMple\": a lowercase RFC 1123 label"],
        );
        check(".com/a", &["Invalid value: \".com\": validating label \"\": a lowercase RFC 1123 label"]);
        check("example.com/", &["Invalid value: \"\": validating label \"\": a lowercase RFC 1123 subdomain"]);
        check("example.com/a..b", &["Invalid value: \"a..b\": validating label \"\": a lowercase RFC 1123 subdomain"]);
        check("example.com/_", &["Invalid value: \"_\": validating label \"_\": a lowercase RFC 1123 subdomain"]);
        check(&format!("{}.com/a", "a".repeat(70)), &["Invalid value: \"aaa"]);
        check(&format!("example.com/{}a", "a.".repeat(200)), &["Too long: may not be more than 317 bytes"]);
    }
}
