//! Validation of names, labels and their values, with the messages of `k8s.io/apimachinery/pkg/util/validation`.

const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
/// Message for a label that is a valid subdomain.
const LABEL_WITH_DOTS: &str = "must not contain dots";
const SUBDOMAIN_1123: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const SUBDOMAIN_UNDERSCORE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const WILDCARD_1123: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED_NAME: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_MAP_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
const ENV_VAR: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn max_length(n: usize) -> String {
    format!("must be no more than {n} bytes")
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label_1123(s: &str) -> bool {
    let b = s.as_bytes();
    matches!((b.first(), b.last()), (Some(f), Some(l)) if is_lower_alphanumeric(*f) && is_lower_alphanumeric(*l))
        && b.iter().all(|c| is_lower_alphanumeric(*c) || *c == b'-')
}

/// Matches `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`.
fn is_qualified_part(s: &str) -> bool {
    let b = s.as_bytes();
    matches!((b.first(), b.last()), (Some(f), Some(l)) if f.is_ascii_alphanumeric() && l.is_ascii_alphanumeric())
        && b.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
}

/// Validates a lowercase RFC 1123 label and returns the errors (`IsDNS1123Label`).
#[must_use]
pub fn dns1123_label(s: &str) -> Vec<String> {
    let label_error = || {
        let is_subdomain = s.split('.').all(is_label_1123);
        if is_subdomain { LABEL_WITH_DOTS } else { LABEL_1123 }.to_owned()
    };
    collect([(s.len() > LABEL_MAX).then(|| max_length(LABEL_MAX)), (!is_label_1123(s)).then(label_error)])
}

/// Validates a lowercase RFC 1123 subdomain and returns the errors (`IsDNS1123Subdomain`).
#[must_use]
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    let ok = s.split('.').all(is_label_1123);
    collect([(s.len() > SUBDOMAIN_MAX).then(|| max_length(SUBDOMAIN_MAX)), (!ok).then(|| SUBDOMAIN_1123.to_owned())])
}

/// Validates a subdomain that may contain underscores, as DNS search paths may (`IsDNS1123SubdomainWithUnderscore`).
#[must_use]
pub fn dns1123_subdomain_with_underscore(s: &str) -> Vec<String> {
    let part = |part: &str| {
        let b = part.strip_prefix('_').unwrap_or(part).as_bytes();
        matches!((b.first(), b.last()), (Some(f), Some(l)) if is_lower_alphanumeric(*f) && is_lower_alphanumeric(*l))
            && b.iter().all(|c| is_lower_alphanumeric(*c) || matches!(c, b'-' | b'_'))
    };
    let ok = s.split('.').all(part);
    collect([
        (s.len() > SUBDOMAIN_MAX).then(|| max_length(SUBDOMAIN_MAX)),
        (!ok).then(|| SUBDOMAIN_UNDERSCORE.to_owned()),
    ])
}

/// Validates a wildcard subdomain such as `*.example.com` (`IsWildcardDNS1123Subdomain`).
#[must_use]
pub fn wildcard_dns1123_subdomain(s: &str) -> Vec<String> {
    let ok = s.strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_label_1123));
    collect([(s.len() > SUBDOMAIN_MAX).then(|| max_length(SUBDOMAIN_MAX)), (!ok).then(|| WILDCARD_1123.to_owned())])
}

/// Validates an RFC 1035 label and returns the errors (`IsDNS1035Label`).
#[must_use]
pub fn dns1035_label(s: &str) -> Vec<String> {
    let ok = is_label_1123(s) && s.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    collect([(s.len() > LABEL_MAX).then(|| max_length(LABEL_MAX)), (!ok).then(|| LABEL_1035.to_owned())])
}

/// Validates the key of a label or annotation, or a finalizer (`IsQualifiedName`).
#[must_use]
pub fn qualified_name(s: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match s.split_once('/') {
        None => s,
        Some((_, name)) if name.contains('/') => return vec![QUALIFIED_NAME.to_owned()],
        Some((prefix, name)) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(dns1123_subdomain(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", max_length(LABEL_MAX)));
    }
    if !is_qualified_part(name) {
        errors.push(QUALIFIED_NAME_PART.to_owned());
    }
    errors
}

/// Validates the value of a label (`IsValidLabelValue`).
#[must_use]
pub fn label_value(s: &str) -> Vec<String> {
    collect([
        (s.len() > LABEL_MAX).then(|| max_length(LABEL_MAX)),
        (!s.is_empty() && !is_qualified_part(s)).then(|| LABEL_VALUE.to_owned()),
    ])
}

/// Validates a key of a ConfigMap or Secret (`IsConfigMapKey`).
#[must_use]
pub fn config_map_key(s: &str) -> Vec<String> {
    let shape = !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    collect([
        (s.len() > SUBDOMAIN_MAX).then(|| max_length(SUBDOMAIN_MAX)),
        (!shape).then(|| CONFIG_MAP_KEY.to_owned()),
        match s {
            "." => Some("must not be '.'".to_owned()),
            ".." => Some("must not be '..'".to_owned()),
            _ if s.starts_with("..") => Some("must not start with '..'".to_owned()),
            _ => None,
        },
    ])
}

/// Validates a C identifier (`IsCIdentifier`).
#[must_use]
pub fn c_identifier(s: &str) -> Vec<String> {
    let ok = s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !s.starts_with(|c: char| c.is_ascii_digit());
    collect([(s.is_empty() || !ok).then(|| C_IDENTIFIER.to_owned())])
}

/// Validates the name of an environment variable by the relaxed rule of 1.34 (`IsRelaxedEnvVarName`).
#[must_use]
pub fn env_var(s: &str) -> Vec<String> {
    let ok = !s.is_empty() && s.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=');
    collect([(!ok).then(|| ENV_VAR.to_owned())])
}

/// Validates the name of a port (`IsValidPortName`, `IANA_SVC_NAME`).
#[must_use]
pub fn port_name(s: &str) -> Vec<String> {
    let b = s.as_bytes();
    collect([
        (s.len() > 15).then(|| "must be no more than 15 characters".to_owned()),
        (!b.iter().all(|c| is_lower_alphanumeric(*c) || *c == b'-'))
            .then(|| "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned()),
        (!b.iter().any(u8::is_ascii_lowercase)).then(|| "must contain at least one letter (a-z)".to_owned()),
        s.contains("--").then(|| "must not contain consecutive hyphens".to_owned()),
        (s.starts_with('-') || s.ends_with('-')).then(|| "must not begin or end with a hyphen".to_owned()),
    ])
}

fn collect<const N: usize>(errors: [Option<String>; N]) -> Vec<String> {
    errors.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&str) -> Vec<String>, good: &[&str], bad: &[&str]) {
        for s in good {
            assert_eq!(rule(s), Vec::<String>::new(), "{s:?} is valid");
        }
        for s in bad {
            assert!(!rule(s).is_empty(), "{s:?} is not valid");
        }
    }

    #[test]
    fn subdomain_is_not_a_label_because_of_its_dots() {
        let long = format!("{}.b", "a".repeat(63));
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label(&long), ["must be no more than 63 bytes", "must not contain dots"]);
        for other in ["A.b", "a..b", "a.", "a_b"] {
            assert_eq!(dns1123_label(other), [LABEL_1123], "{other}");
        }
    }

    #[test]
    fn names_are_validated_as_upstream() {
        let (long64, long254) = ("a".repeat(64), "a".repeat(254));
        check(dns1123_label, &["a", "0", "a-b", "123"], &["", "A", "-a", "a-", "a.b", "a_b", &long64]);
        check(dns1123_subdomain, &["a", "a.b", "a-b.c0"], &["", ".a", "a.", "a..b", "A.b", &long254]);
        check(wildcard_dns1123_subdomain, &["*.a", "*.a.b"], &["*", "*.", "a.b", "*.*.a", "*a.b", "a.*.b"]);
        check(c_identifier, &["a", "_", "A1_b"], &["", "1a", "a-b", "é"]);
        check(dns1035_label, &["a", "a1"], &["1a", "", "a-"]);
        check(qualified_name, &["a", "A_b.c", "x.io/Name"], &["", "/a", "x.io/", "a/b/c", "X/a", "-a", &long64]);
        check(label_value, &["", "A", "a.b_c-d"], &["-a", "a b", "é", &long64]);
        check(config_map_key, &["a", "A.b-c_d"], &["", ".", "..", "..a", "a/b"]);
        check(env_var, &["A", "a b", "x.y-z"], &["", "A=B", "\n", "é"]);
        check(port_name, &["http", "a1"], &["1", "a--b", "-a", "averyveryverylongname", "A"]);
    }
}
