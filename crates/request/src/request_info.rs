//! Information about a request from its method, path and query (upstream's `RequestInfo`).

use crate::{
    Attributes, Query, RequestTarget, ResourceAttributes, field_requirements,
    path::{length_of_segments, rewrite_deprecated_watch, segments},
};
use http::{Method, Uri};
use percent_encoding::percent_decode_str;

/// Information about a request from its method, path and query. It is determined once for each request, so that routing,
/// authorization, audit and flow control see the same request.
///
/// It does not depend on the served resources, so that a denied caller does not learn whether a resource exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// Verb, and resource or path.
    pub attributes: Attributes,
    /// The path of a resource.
    pub resource_path: Option<ResourcePath>,
    /// Query parameters.
    pub query: Query,
    /// The URI. A deprecated watch path is rewritten, so that all readers of the URI see the same path.
    pub uri: Uri,
}

/// The path of a resource request, without the parts that [`ResourceAttributes`] has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// Version of the API group, for example `v1`.
    pub api_version: String,
    /// Namespace of the path; empty without one. The path of a Namespace itself has none.
    pub namespace: String,
    /// Decoded segments after the namespace: resource, name, subresource, and the path behind it (upstream's `Parts`).
    pub parts: Vec<String>,
}

impl RequestInfo {
    /// Reads method and URI of a request (`RequestInfoFactory.NewRequestInfo`).
    #[must_use]
    pub fn new(method: &Method, uri: &Uri) -> Self {
        let mut uri = uri.clone();
        rewrite_deprecated_watch(&mut uri);
        let info = Self::parse(method, uri.path(), uri.query().unwrap_or_default());
        Self { uri, ..info }
    }

    /// Returns where in the URI's path the path behind a subresource begins, which is that of a proxied request.
    #[must_use]
    pub fn backend_path_start(&self) -> usize {
        let path = self.uri.path();
        let parts = self.resource_path.as_ref().map_or(0, |resource| resource.parts.len());
        // Behind group, version and namespace are resource, name and subresource.
        length_of_segments(path, segments(path).len().saturating_sub(parts) + 3)
    }

    fn parse(method: &Method, path: &str, query: &str) -> Self {
        let query = Query::parse(query);
        let parts = segments(path);
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => {
                let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
                let verb = method.as_str().to_lowercase();
                let attributes = Attributes { verb, target: RequestTarget::NonResource(path) };
                return Self { attributes, query, ..Self::default() };
            }
        };
        // `namespaces/NAME` is the Namespace itself. Further segments name resources in it, except for its own
        // subresources.
        let (namespace, path_namespace, rest) = match rest {
            ["namespaces", namespace] | ["namespaces", namespace, "status" | "finalize", ..] => (*namespace, "", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, *namespace, rest),
            _ => ("", "", rest),
        };
        let part = |i: usize| rest.get(i).map_or_else(String::new, |p| (*p).to_owned());
        let has_name = rest.len() > 1;
        let field_requirements =
            if has_name { Vec::new() } else { field_requirements(query.get("fieldSelector").unwrap_or("")) };
        let name = if has_name || !is_read(method) { part(1) } else { name_of_field_selector(&field_requirements) };
        let resource = ResourceAttributes {
            group: group.to_owned(),
            resource: part(0),
            subresource: part(2),
            namespace: namespace.to_owned(),
            name,
            field_requirements,
        };
        let resource_path = ResourcePath {
            api_version: version.to_owned(),
            namespace: path_namespace.to_owned(),
            parts: rest.iter().map(|part| (*part).to_owned()).collect(),
        };
        let attributes = Attributes::for_resource(verb(method, has_name, &query), resource);
        Self { attributes, resource_path: Some(resource_path), query, uri: Uri::default() }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn verb(method: &Method, has_name: bool, query: &Query) -> &'static str {
    match method.as_str() {
        // A path with a name is a `get`, even with `watch` in the query.
        "GET" | "HEAD" if has_name => "get",
        "GET" | "HEAD" if query.flag("watch") => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if has_name => "delete",
        "DELETE" => "deletecollection",
        _ => "",
    }
}

/// Returns the name that a field selector requires. An invalid name counts as none.
fn name_of_field_selector(requirements: &[(String, String)]) -> String {
    let name = requirements.iter().find(|(field, _)| field == "metadata.name").map_or("", |(_, name)| name);
    if matches!(name, "." | "..") || name.contains(['/', '%']) { String::new() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let got = RequestInfo::parse(&method, path, query).attributes;
        let target = match got.target {
            RequestTarget::NonResource(path) => path,
            RequestTarget::Resource(a) => {
                format!("{:?} {} in {:?} named {:?}", a.group, a.combined_resource(), a.namespace, a.name)
            }
        };
        assert_eq!(format!("{} {target}", got.verb), expected);
    }

    #[test]
    fn backend_path_begins_after_proxy_subresource() {
        for (path, expected) in [
            ("/api/v1/nodes/n/proxy", ""),
            ("/api/v1/nodes/n/proxy/", "/"),
            ("/api/v1/namespaces/a/pods/p/proxy/x%2Fy//z/", "/x%2Fy//z/"),
            ("//api/v1//namespaces/a/pods/p/proxy/x", "/x"),
            ("/api/v1/namespaces/a/services/s:80/proxy/proxy/namespaces/b", "/proxy/namespaces/b"),
        ] {
            let info = RequestInfo::new(&Method::GET, &path.parse().unwrap());
            assert_eq!(&path[info.backend_path_start()..], expected, "{path}");
        }
    }

    #[test]
    fn resource_request_has_verb_group_resource_and_name() {
        check(Method::GET, "/api/v1/pods", r#"list "" pods in "" named """#);
        check(Method::GET, "/api/v1/pods?watch=1", r#"watch "" pods in "" named """#);
        check(Method::GET, "/api/v1/namespaces/a/pods/b?watch=1", r#"get "" pods in "a" named "b""#);
        check(Method::HEAD, "/api/v1/namespaces/a/pods/b", r#"get "" pods in "a" named "b""#);
        check(Method::POST, "/api/v1/namespaces/a/pods/b/eviction", r#"create "" pods/eviction in "a" named "b""#);
        check(
            Method::PATCH,
            "/apis/apps/v1/namespaces/a/deployments/d",
            r#"patch "apps" deployments in "a" named "d""#,
        );
        check(Method::DELETE, "/api/v1/namespaces/a/pods", r#"deletecollection "" pods in "a" named """#);
        check(Method::DELETE, "/api/v1/nodes/n", r#"delete "" nodes in "" named "n""#);
        check(Method::GET, "/api/v1/nodes/n/proxy/x?watch=1", r#"get "" nodes/proxy in "" named "n""#);
        check(Method::OPTIONS, "/api/v1/nodes/n", r#" "" nodes in "" named "n""#);
    }

    #[test]
    fn namespace_request_has_its_own_name_as_namespace() {
        check(Method::GET, "/api/v1/namespaces", r#"list "" namespaces in "" named """#);
        check(Method::GET, "/api/v1/namespaces/a", r#"get "" namespaces in "a" named "a""#);
        check(Method::PUT, "/api/v1/namespaces/a/finalize", r#"update "" namespaces/finalize in "a" named "a""#);
    }

    #[test]
    fn other_paths_are_non_resource_requests() {
        for path in ["/", "/metrics", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v3/apis/apps/v1"] {
            check(Method::GET, path, &format!("get {path}"));
        }
        check(Method::POST, "/a%2Fb", "post /a/b");
    }

    #[test]
    fn list_by_name_selector_has_that_name() {
        check(Method::GET, "/api/v1/pods?fieldSelector=metadata.name%3Da", r#"list "" pods in "" named "a""#);
        check(Method::GET, "/api/v1/pods?fieldSelector=metadata.name!%3Da", r#"list "" pods in "" named """#);
        check(Method::GET, "/api/v1/pods?watch=1&fieldSelector=metadata.name=a", r#"watch "" pods in "" named "a""#);
        check(
            Method::DELETE,
            "/api/v1/namespaces/b/pods?fieldSelector=metadata.name=a",
            r#"deletecollection "" pods in "b" named """#,
        );
        check(Method::GET, "/api/v1/pods?fieldSelector=metadata.name=a%252F", r#"list "" pods in "" named """#);
    }
}
