//! Parsing of request paths and queries.

use crate::registry::ServedKinds;
use api::text::parse_query_bool;
use errors::ApiError;
use http::Uri;
use kinds::{Kind, KindRef, WriteTarget};
use percent_encoding::percent_decode_str;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// Kind, namespace, name and subresource that a request's path names (upstream's `RequestInfo`).
#[derive(Clone)]
pub(crate) struct RequestInfo {
    pub(crate) kind: KindRef,
    /// The kinds that were served when the request arrived.
    pub(crate) served: Arc<ServedKinds>,
    /// Empty for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl RequestInfo {
    /// Returns the info of a cluster-scoped object, or of a subresource of it.
    pub(crate) fn of_cluster_object(kind: &'static dyn Kind, name: &str, subresource: Option<&str>) -> Self {
        Self { subresource: subresource.map(str::to_owned), ..Self::of_object(&KindRef::BuiltIn(kind), "", name) }
    }

    /// Returns the info of an object.
    pub(crate) fn of_object(kind: &KindRef, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.clone(),
            served: Arc::default(),
            namespace: namespace.to_owned(),
            name: Some(name.to_owned()),
            subresource: None,
        }
    }

    /// Returns the part of the object that a write may change.
    pub(crate) fn target(&self) -> WriteTarget {
        match self.subresource.as_deref() {
            None => WriteTarget::Main,
            Some("status") => WriteTarget::Status,
            // An unknown subresource is rejected before anything is written.
            Some(name) => WriteTarget::Sub(self.kind.info().subresource(name).map_or("", |s| s.name)),
        }
    }
}

/// Query parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let mut all = BTreeMap::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()).into_owned() {
            // Of duplicate parameters, the first one is used.
            all.entry(key).or_insert(value);
        }
        Self(all)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// Whether the query contains a parameter, also without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns a boolean parameter, which is false by default.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|v| parse_query_bool(v))
    }

    /// Parses a numeric parameter.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, ApiError> {
        let error = |v: &str| match v.parse::<i64>() {
            Ok(_) => ApiError::bad_request(format!("{key}: Invalid value: {v:?}: must be a non-negative integer")),
            Err(_) => ApiError::bad_request(format!("strconv.ParseInt: parsing {v:?}: invalid syntax")),
        };
        self.get(key).map(|v| v.parse().map_err(|_| error(v))).transpose()
    }
}

/// Returns the segments of a path without decoding them. Empty segments are skipped.
fn raw_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Returns the decoded segments of a path. Audit, authorization and routing all use this function, so that they see the
/// same request. Bytes that are not UTF-8 become the replacement character.
pub(crate) fn segments(path: &str) -> Vec<Cow<'_, str>> {
    raw_segments(path).map(|segment| percent_decode_str(segment).decode_utf8_lossy()).collect()
}

/// Rewrites a deprecated watch path: `/api/v1/watch/pods` becomes `/api/v1/pods?watch=true`, and the watch of a single
/// object gets a field selector of its name.
pub(crate) fn rewrite_deprecated_watch(uri: &mut Uri) {
    let parts = segments(uri.path());
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let (watch_index, rest) = match parts.as_slice() {
        ["api", _, "watch", rest @ ..] => (2, rest),
        ["apis", _, _, "watch", rest @ ..] => (3, rest),
        _ => return,
    };
    let name = match rest {
        [resource] | ["namespaces", _, resource] if matches!(*resource, "status" | "finalize") => return,
        [_] | ["namespaces", _, _] => None,
        [_, name] | ["namespaces", _, _, name] => Some(*name),
        _ => return,
    };
    let mut raw: Vec<&str> = raw_segments(uri.path()).collect();
    raw.remove(watch_index);
    let mut query = "watch=true".to_owned();
    if let Some(name) = name {
        raw.pop();
        let escaped = name.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
        let selector =
            form_urlencoded::byte_serialize(format!("metadata.name={escaped}").as_bytes()).collect::<String>();
        query = format!("{query}&fieldSelector={selector}");
    }
    if let Some(rest_of_query) = uri.query().filter(|query| !query.is_empty()) {
        query = format!("{query}&{rest_of_query}");
    }
    if let Ok(rewritten) = format!("/{}?{query}", raw.join("/")).parse() {
        *uri = rewritten;
    }
}

/// Parses the path of a resource request.
pub(crate) fn parse_path(served: &Arc<ServedKinds>, path: &str) -> Result<RequestInfo, ApiError> {
    let parts = segments(path);
    let mut parts = parts.iter().map(AsRef::as_ref);
    let (group, version) = match parts.next() {
        Some("api") => ("", parts.next()),
        Some("apis") => (parts.next().unwrap_or(""), parts.next()),
        _ => return Err(ApiError::no_such_path()),
    };
    let mut rest: Vec<&str> = parts.collect();
    let mut namespace = String::new();
    // `namespaces/NAME` is the Namespace object. Further segments name resources in it, except for its own
    // subresources.
    if rest.first() == Some(&"namespaces") && rest.len() > 2 && !matches!(rest[2], "status" | "finalize") {
        rest[1].clone_into(&mut namespace);
        rest.drain(..2);
    }
    let plural = rest.first().copied().ok_or_else(ApiError::no_such_path)?;
    let kind = served.find(group, version.unwrap_or(""), plural).ok_or_else(ApiError::no_such_path)?;
    if !namespace.is_empty() && !kind.info().namespaced {
        return Err(ApiError::no_such_path());
    }
    let segment = |i: usize| rest.get(i).map(|s| (*s).to_owned());
    // Namespaced objects are addressed within their namespace, and only a proxy has a path behind its subresource.
    if (kind.info().namespaced && namespace.is_empty() && rest.len() > 1) || (rest.len() > 3 && rest[2] != "proxy") {
        return Err(ApiError::no_such_path());
    }
    check_path_segment_name("Name", rest.get(1).copied().unwrap_or(""))?;
    check_path_segment_name("Namespace", &namespace)?;
    Ok(RequestInfo { kind, served: Arc::clone(served), namespace, name: segment(1), subresource: segment(2) })
}

/// Checks a name that is a path segment (upstream's `IsValidPathSegmentName`).
fn check_path_segment_name(parameter: &str, name: &str) -> Result<(), ApiError> {
    let message = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('/') => "may not contain '/'".to_owned(),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return Ok(()),
    };
    Err(ApiError::bad_request(format!("{parameter} parameter invalid: {name:?}: {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let got = parse_path(&Arc::default(), path).map_or_else(
            |e| e.code.to_string(),
            |r| {
                format!(
                    "{} {} {} {}",
                    r.kind.info().group_resource(),
                    r.namespace,
                    r.name.unwrap_or_default(),
                    r.subresource.unwrap_or_default(),
                )
            },
        );
        assert_eq!(got.trim_end(), expected);
    }

    #[test]
    fn path_is_parsed_into_resource_and_subresource() {
        check("/api/v1/pods", "pods");
        check("/api/v1/namespaces/a/pods", "pods a");
        check("/api/v1/namespaces/a/pods/b/log", "pods a b log");
        check("/api/v1/namespaces/a", "namespaces  a");
        check("/api/v1/namespaces/a/finalize", "namespaces  a finalize");
        check("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "leases.coordination.k8s.io a b");
        check("/api/v1/nodes/n/proxy/logs/x", "nodes  n proxy");
        check("/api/v1/nothing", "404");
        check("/apis", "404");
        check("/api/v1/namespaces/a/nodes", "404");
        check("/api/v1/pods/b", "404");
        check("/api/v1/namespaces/a/pods/b/log/c", "404");
        check("/api/v1/namespaces/a/pods/b%2Fc", "400");
        check("/api/v1/namespaces/a/pods/..", "400");
        check("/api/v1/namespaces/a%25/pods", "400");
    }

    #[test]
    fn deprecated_watch_path_is_rewritten() {
        for (old, new) in [
            ("/api/v1/watch/pods", "/api/v1/pods?watch=true"),
            (
                "/api/v1/watch/namespaces/a/pods/b?timeoutSeconds=1",
                "/api/v1/namespaces/a/pods?watch=true&fieldSelector=metadata.name%3Db&timeoutSeconds=1",
            ),
            ("/api/v1/watch/nodes/n", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Dn"),
            ("/api/v1/watch/namespaces/a", "/api/v1/namespaces?watch=true&fieldSelector=metadata.name%3Da"),
            ("/api/v1/watch/nodes/a%2C", "/api/v1/nodes?watch=true&fieldSelector=metadata.name%3Da%5C%2C"),
            ("/api/v1/watch/namespaces/a/pods/b/log", "/api/v1/watch/namespaces/a/pods/b/log"),
            ("/api/v1/watch/namespaces/a/status", "/api/v1/watch/namespaces/a/status"),
            ("/apis/apps/v1/watch/deployments", "/apis/apps/v1/deployments?watch=true"),
            ("//api/v1/watch//pods/", "/api/v1/pods?watch=true"),
            ("/api/v1/%77atch/namespaces/a/pods", "/api/v1/namespaces/a/pods?watch=true"),
            ("/%61pi/v1/watch/%6eamespaces/a%2Fb/pods", "/%61pi/v1/%6eamespaces/a%2Fb/pods?watch=true"),
            ("/api/v1/watch", "/api/v1/watch"),
            ("/api/v1/namespaces/watch/pods", "/api/v1/namespaces/watch/pods"),
            ("/metrics", "/metrics"),
        ] {
            let mut uri: Uri = old.parse().unwrap();
            rewrite_deprecated_watch(&mut uri);
            assert_eq!(uri.to_string(), new);
        }
    }

    #[test]
    fn query_is_percent_decoded() {
        let q = Query::parse("labelSelector=a%3Db%2Cc&watch&x=%zz&y=1+2");
        assert_eq!(
            (q.get("labelSelector"), q.flag("watch"), q.get("x"), q.get("y")),
            (Some("a=b,c"), true, Some("%zz"), Some("1 2"))
        );
    }
}
