//! `ListOptions`: the query of a list or watch (upstream's `internalversion/validation.ValidateListOptions`).

use crate::objects::object;
use base64::{DecodeError, Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use errors::ApiError;
use kinds::{FieldErrors, FieldPath};
use request::Query;
use serde_json::{Value, json};
use store::{Key, Revision};

/// `resourceVersionMatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    Exact,
    NotOlderThan,
}

/// Options of a list or watch, without its selectors.
#[derive(Debug)]
pub(crate) struct ListOptions {
    pub(crate) limit: Option<usize>,
    pub(crate) revision: Option<Revision>,
    pub(crate) revision_match: Option<ResourceVersionMatch>,
    pub(crate) continue_token: Option<ContinueToken>,
    pub(crate) allow_bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
    /// Seconds; 0 is unset, as upstream.
    pub(crate) timeout: Option<u64>,
}

impl ListOptions {
    pub(crate) fn parse(query: &Query, watch: bool) -> Result<Self, ApiError> {
        let initial = query.get("sendInitialEvents").is_some();
        let (text, continue_token) = (query.get("resourceVersionMatch"), query.get("continue"));
        let errors = validate(query, watch);
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", &errors));
        }
        let revision = parse_resource_version(query)?;
        let continue_token = if watch { None } else { continue_token.map(ContinueToken::decode).transpose()? };
        if continue_token.is_some() && revision.is_some_and(|r| r > 0) {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(Self {
            // As upstream, a limit below 1 is unlimited.
            limit: query.number::<i64>("limit")?.and_then(|l| usize::try_from(l).ok()).filter(|l| *l > 0),
            revision,
            revision_match: match text {
                Some("Exact") => Some(ResourceVersionMatch::Exact),
                Some(_) => Some(ResourceVersionMatch::NotOlderThan),
                None => None,
            },
            continue_token,
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: initial.then(|| query.flag("sendInitialEvents")),
            timeout: query.number("timeoutSeconds")?.filter(|t| *t > 0),
        })
    }

    /// Returns the page size; `resourceVersion=0` is not paginated (`computeListLimit` of upstream's watch cache).
    pub(crate) fn page_size(&self) -> Option<usize> {
        let is_unpaginated = self.continue_token.is_none() && self.revision == Some(0);
        self.limit.filter(|_| !is_unpaginated)
    }
}

/// Upstream's `ValidateListOptions`.
fn validate(query: &Query, watch: bool) -> FieldErrors {
    let initial = query.get("sendInitialEvents").is_some();
    let (text, continue_token) = (query.get("resourceVersionMatch"), query.get("continue"));
    let mut errors = FieldErrors::default();
    let path = FieldPath::new("resourceVersionMatch");
    let forbid = |errors: &mut FieldErrors, message: &str| errors.forbidden(&path, message);
    if watch {
        if initial && text != Some("NotOlderThan") {
            forbid(&mut errors, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if let Some(text) = text {
            if !initial {
                forbid(&mut errors, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            if text != "NotOlderThan" {
                errors.not_supported(&path, &json!(text), &["NotOlderThan"]);
            }
            if continue_token.is_some() {
                forbid(&mut errors, "resourceVersionMatch is forbidden when continue is provided");
            }
        }
    } else {
        if let Some(text) = text {
            if query.get("resourceVersion").is_none() {
                forbid(&mut errors, "resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if continue_token.is_some() {
                forbid(&mut errors, "resourceVersionMatch is forbidden when continue is provided");
            }
            if !matches!(text, "Exact" | "NotOlderThan") {
                errors.not_supported(&path, &json!(text), &["Exact", "NotOlderThan", ""]);
            }
            if text == "Exact" && query.get("resourceVersion") == Some("0") {
                forbid(&mut errors, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
        }
        if initial {
            errors.forbidden(&FieldPath::new("sendInitialEvents"), "sendInitialEvents is forbidden for list");
        }
    }
    errors
}

/// Parses `resourceVersion`.
pub(crate) fn parse_resource_version(query: &Query) -> Result<Option<Revision>, ApiError> {
    let error = |v: &str, message: &str| {
        ApiError::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {v:?}: strconv.ParseUint: parsing {v:?}: {message}"
        ))
    };
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let message = if digits { "value out of range" } else { "invalid syntax" };
    text.parse().ok().filter(|_| digits).map_or_else(|| Err(error(text, message)), |r| Ok(Some(r)))
}

/// A continue token: the revision of a paginated list, and its last key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// `None` lists the current revision, after the original one was compacted: upstream's inconsistent token.
    pub(crate) revision: Option<Revision>,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ContinueToken {
    pub(crate) fn after(revision: Option<Revision>, key: &Key) -> Self {
        Self { revision, namespace: key.namespace.to_string(), name: key.name.to_string() }
    }

    pub(crate) fn key(&self, kind: &dyn kinds::Kind) -> Key {
        object::key(kind, &self.namespace, &self.name)
    }

    pub(crate) fn encode(&self) -> String {
        let revision = self.revision.map_or(json!(-1), |r| json!(r));
        let start = format!("{}/{}\0", self.namespace, self.name);
        URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
    }

    fn decode(text: &str) -> Result<Self, ApiError> {
        let error = |message: &str| {
            ApiError::bad_request(format!("invalid continue token: continue key is not valid{message}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|e| error(&format!(": {}", go_base64_error(&e, text))))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| error(&format!(": {e}")))?;
        match value["v"].as_str() {
            Some("meta.k8s.io/v1") => {}
            other => {
                let message = format!(": server does not recognize this encoded version {}", other.unwrap_or(""));
                return Err(error(&message));
            }
        }
        let revision = match value["rv"].as_i64() {
            None | Some(0) => {
                return Err(error(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
            }
            Some(r) => Revision::try_from(r).ok(),
        };
        let start = value["start"].as_str().unwrap_or("");
        if start.is_empty() {
            return Err(error(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let is_dot_segment = |part: &str| matches!(part, "." | "..");
        if start.split('/').any(is_dot_segment) {
            return Err(error(&format!(": {start}")));
        }
        let (namespace, name) = start.trim_end_matches('\0').rsplit_once('/').unwrap_or(("", start));
        Ok(Self { revision, namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

/// Returns Go's error text for invalid base64.
fn go_base64_error(error: &DecodeError, text: &str) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, watch: bool, expected: &str) {
        let got = ListOptions::parse(&Query::parse(query), watch)
            .map_or_else(|e| format!("{} {e}", e.code), |_| "ok".to_owned());
        assert_eq!(got, expected, "{query}");
    }

    #[test]
    fn invalid_list_options_are_rejected() {
        let bad = |message: &str| format!("422 ListOptions.meta.k8s.io \"\" is invalid: {message}");
        let field = "resourceVersionMatch: Forbidden: ";
        check("resourceVersion=5&resourceVersionMatch=Exact&limit=3", false, "ok");
        check("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", true, "ok");
        check(
            "resourceVersionMatch=Exact",
            false,
            &bad(&format!("{field}resourceVersionMatch is forbidden unless resourceVersion is provided")),
        );
        check(
            "resourceVersion=0&resourceVersionMatch=Exact",
            false,
            &bad(&format!("{field}resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")),
        );
        check(
            "resourceVersion=1&resourceVersionMatch=x",
            false,
            &bad("resourceVersionMatch: Unsupported value: \"x\": supported values: \"Exact\", \"NotOlderThan\", \"\""),
        );
        check(
            "sendInitialEvents=true",
            false,
            &bad("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        );
        check(
            "sendInitialEvents=true",
            true,
            &bad(&format!("{field}sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")),
        );
        check(
            "resourceVersion=1&resourceVersionMatch=NotOlderThan",
            true,
            &bad(&format!("{field}resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")),
        );
        check(
            "resourceVersion=x",
            false,
            "400 invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        );
        check(
            "resourceVersion=99999999999999999999",
            false,
            "400 invalid resource version: resourceVersion: Invalid value: \"99999999999999999999\": strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
        );
        let invalid = "400 invalid continue token: continue key is not valid: illegal base64 data at input byte";
        check("continue=!", false, &format!("{invalid} 0"));
        check("continue=x", false, &format!("{invalid} 1"));
        let token =
            |start: &str| URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": 1, "start": start}).to_string());
        check(
            &format!("continue={}", token("../c1")),
            false,
            "400 invalid continue token: continue key is not valid: ../c1",
        );
    }

    #[test]
    fn continue_token_round_trips() {
        for token in [
            ContinueToken { revision: Some(7), namespace: "a".to_owned(), name: "b.c".to_owned() },
            ContinueToken { revision: None, namespace: String::new(), name: "n".to_owned() },
        ] {
            assert_eq!(ContinueToken::decode(&token.encode()).unwrap(), token);
        }
    }
}
