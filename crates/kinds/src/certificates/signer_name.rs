//! Validation of signer names such as `example.com/name` (`ValidateSignerName`).

use crate::{FieldErrors, field_cursor::FieldCursor};
use serde_json::json;

const MAX_DOMAIN_LENGTH: usize = 253;
/// Maximum length of the path: a namespace, a dot and a name.
const MAX_PATH_LENGTH: usize = 253 + 1 + 63;

pub(crate) fn validate(name: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    if name.text().is_empty() {
        return name.required("", errors);
    }
    let parts: Vec<&str> = name.text().split('/').collect();
    let [domain, signer_path] = parts[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return name.invalid(detail, errors);
    };
    if domain.len() > MAX_DOMAIN_LENGTH {
        name.too_long(MAX_DOMAIN_LENGTH, errors);
    }
    validate_labels(domain, api::names::dns1123_label, name, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(&name.path(), &json!(domain), detail);
    }
    validate_labels(signer_path, api::names::dns1123_subdomain, name, errors);
    if signer_path.len() > MAX_PATH_LENGTH {
        name.too_long(MAX_PATH_LENGTH, errors);
    }
}

/// Reports the errors of the first invalid label of a part of the name.
fn validate_labels(part: &str, rule: fn(&str) -> Vec<String>, name: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let wrong = part.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, wrong)) = wrong {
        for detail in wrong {
            errors.invalid(&name.path(), &json!(part), &format!("validating label {label:?}: {detail}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the beginnings of the errors.
    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let mut errors = FieldErrors::default();
        validate(&FieldCursor::object(&json!({"signerName": name})).at("signerName"), &mut errors);
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
