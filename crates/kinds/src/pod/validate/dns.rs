//! Validation of the DNS config of a Pod (`validatePodDNSConfig`).

use crate::{FieldErrors, field_cursor::FieldCursor, field_validation::validate_ip};
use serde_json::json;

/// Maximum length of the search list in bytes, including spaces (`MaxDNSSearchListChars`).
const MAX_DNS_SEARCH_LIST_CHARS: usize = 2048;

pub(super) fn validate_dns_config(spec: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let config = spec.at("dnsConfig");
    let (servers, searches) = (config.at("nameservers"), config.at("searches"));
    if spec.at("dnsPolicy").text() == "None" {
        if config.is_null() {
            return config.required("must provide `dnsConfig` when `dnsPolicy` is None", errors);
        }
        if servers.count() == 0 {
            return servers.required("must provide at least one DNS nameserver when `dnsPolicy` is None", errors);
        }
    }
    if servers.count() > 3 {
        servers.invalid("must not have more than 3 nameservers", errors);
    }
    servers.items().for_each(|server| validate_ip(&server, errors));
    if searches.count() > 32 {
        searches.invalid("must not have more than 32 search paths", errors);
    }
    let total: usize = searches.items().map(|search| search.text().len() + 1).sum();
    if total > MAX_DNS_SEARCH_LIST_CHARS + 1 {
        let detail = format!(
            "must not have more than {MAX_DNS_SEARCH_LIST_CHARS} characters (including spaces) in the search list"
        );
        searches.invalid(&detail, errors);
    }
    for search in searches.items().filter(|search| search.text() != ".") {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        let wrong = api::names::dns1123_subdomain_with_underscore(name);
        wrong.iter().for_each(|e| errors.invalid(&search.path(), &json!(name), e));
    }
    for option in config.at("options").items().filter(|option| option.at("name").text().is_empty()) {
        option.required("must not be empty", errors);
    }
}
