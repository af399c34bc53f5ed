//! Validation of the DNS config of a Pod (`validatePodDNSConfig`).

use super::{items, text, validate_ip};
use crate::{FieldErrors, FieldPath};
use serde_json::{Value, json};

/// Maximum length of the search list in bytes, including spaces (`MaxDNSSearchListChars`).
const MAX_DNS_SEARCH_LIST_CHARS: usize = 2048;

pub(super) fn validate_dns_config(spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let config = &spec["dnsConfig"];
    if spec["dnsPolicy"] == "None" {
        if config.is_null() {
            return errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if items(config, "nameservers").next().is_none() {
            let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return errors.required(&path.child("nameservers"), text);
        }
    }
    if items(config, "nameservers").count() > 3 {
        errors.invalid(&path.child("nameservers"), &config["nameservers"], "must not have more than 3 nameservers");
    }
    for (i, server) in items(config, "nameservers").enumerate() {
        validate_ip(server, &path.child("nameservers").index(i), errors);
    }
    if items(config, "searches").count() > 32 {
        errors.invalid(&path.child("searches"), &config["searches"], "must not have more than 32 search paths");
    }
    let searches: Vec<&str> = items(config, "searches").filter_map(Value::as_str).collect();
    if searches.join(" ").len() > MAX_DNS_SEARCH_LIST_CHARS {
        let detail = format!(
            "must not have more than {MAX_DNS_SEARCH_LIST_CHARS} characters (including spaces) in the search list"
        );
        errors.invalid(&path.child("searches"), &config["searches"], &detail);
    }
    for (i, search) in searches.into_iter().enumerate().filter(|(_, search)| *search != ".") {
        let name = search.strip_suffix('.').unwrap_or(search);
        let wrong = api::names::dns1123_subdomain_with_underscore(name);
        wrong.iter().for_each(|e| errors.invalid(&path.child("searches").index(i), &json!(name), e));
    }
    for (i, option) in items(config, "options").enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&path.child("options").index(i), "must not be empty");
        }
    }
}
