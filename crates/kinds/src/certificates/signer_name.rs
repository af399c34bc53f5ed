//! Validation of signer names such as `example.com/name` (`ValidateSignerName`).

use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};

const MAX_DOMAIN_LENGTH: usize = 253;
/// Maximum length of the path: a namespace, a dot and a name.
const MAX_PATH_LENGTH: usize = 253 + 1 + 63;

pub(crate) fn validate(name: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let text = name.as_str().unwrap_or("");
    if text.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = text.split('/').collect();
    let [domain, signer_path] = parts[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, name, detail);
    };
    if domain.len() > MAX_DOMAIN_LENGTH {
        errors.too_long(path, MAX_DOMAIN_LENGTH);
    }
    validate_labels(domain, api::names::dns1123_label, path, errors);
    if !domain.contains('.') {
        errors.invalid(path, &json!(domain), "should be a domain with at least two segments separated by dots");
    }
    validate_labels(signer_path, api::names::dns1123_subdomain, path, errors);
    if signer_path.len() > MAX_PATH_LENGTH {
        errors.too_long(path, MAX_PATH_LENGTH);
    }
}

/// Reports the errors of the first invalid label.
fn validate_labels(name: &str, rule: fn(&str) -> Vec<String>, path: &FieldPath, errors: &mut FieldErrors) {
    let wrong = name.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, wrong)) = wrong {
        let errors_found =
            |detail: &String| errors.invalid(path, &json!(name), &format!("validating label {label:?}: {detail}"));
        wrong.iter().for_each(errors_found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the beginnings of the errors.
    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate(&json!(name), &FieldPath::new("signerName"), &mut errors);
        let errors_found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(errors_found.len(), expected.len(), "{name}: {errors_found:#?}");
        for (errors_found, expected) in errors_found.iter().zip(expected) {
            assert!(errors_found.starts_with(&format!("signerName: {expected}")), "{name}: {errors_found}");
        }
    }

    #[test]
    fn signer_name_has_domain_and_path() {
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
