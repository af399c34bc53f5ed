//! Attributes of a request for authorization (upstream's `authorizer.Attributes`), from method, path and query alone.
//!
//! They do not depend on the served resources, so that a denied caller does not learn whether a resource exists.

use crate::request::{self, Query};
use api::selector::FieldSelector;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The attributes of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// For example `list`. The lower-case method for a non-resource path.
    pub(crate) verb: String,
    pub(crate) target: RequestTarget,
}

/// The resource or the path of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    Resource(ResourceAttributes),
    /// A path that is not a resource's, such as `/healthz`.
    NonResource(String),
}

impl Default for RequestTarget {
    fn default() -> Self {
        Self::Resource(ResourceAttributes::default())
    }
}

/// The resource of a request. Unset fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes {
    pub(crate) group: String,
    /// For example `pods`.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Fields and the one value to which the field selector restricts each.
    pub(crate) field_requirements: Vec<(String, String)>,
}

impl ResourceAttributes {
    /// Whether the field selector requires this value of a field.
    pub(crate) fn has_field_requirement(&self, field: &str, value: &str) -> bool {
        self.field_requirements.iter().any(|(f, v)| f == field && v == value)
    }

    /// Returns the resource with its subresource, such as `pods/log`.
    pub(crate) fn combined_resource(&self) -> Cow<'_, str> {
        if self.subresource.is_empty() {
            Cow::Borrowed(&self.resource)
        } else {
            Cow::Owned(format!("{}/{}", self.resource, self.subresource))
        }
    }
}

impl Attributes {
    /// Returns the attributes of a request. Rewrites a deprecated watch path in `uri` first, so that later filters read
    /// the same path.
    pub(crate) fn of_request(method: &Method, uri: &mut Uri) -> Self {
        request::rewrite_deprecated_watch(uri);
        Self::of(method, uri.path(), uri.query().unwrap_or_default())
    }

    fn of(method: &Method, path: &str, query: &str) -> Self {
        let parts = request::segments(path);
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => {
                let path = percent_decode_str(path).decode_utf8_lossy().into_owned();
                return Self { verb: method.as_str().to_lowercase(), target: RequestTarget::NonResource(path) };
            }
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, part, ..] if matches!(*part, "status" | "finalize") => (*namespace, rest),
            ["namespaces", namespace] => (*namespace, rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            _ => ("", rest),
        };
        let part = |i: usize| rest.get(i).map_or_else(String::new, |p| (*p).to_owned());
        let query = Query::parse(query);
        let named = rest.len() > 1;
        let field_requirements =
            if named { Vec::new() } else { field_requirements(query.get("fieldSelector").unwrap_or("")) };
        let name = if named || !is_read(method) { part(1) } else { name_of_field_selector(&field_requirements) };
        let verb = verb(method, named, &query).to_owned();
        let namespace = namespace.to_owned();
        let resource = ResourceAttributes {
            group: group.to_owned(),
            resource: part(0),
            subresource: part(2),
            namespace,
            name,
            field_requirements,
        };
        Self { verb, target: RequestTarget::Resource(resource) }
    }

    /// Returns the attributes of a request for a resource.
    pub(crate) fn for_resource(verb: &str, resource: ResourceAttributes) -> Self {
        Self { verb: verb.to_owned(), target: RequestTarget::Resource(resource) }
    }

    /// The namespace of the resource; empty for cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        match &self.target {
            RequestTarget::Resource(resource) => &resource.namespace,
            RequestTarget::NonResource(_) => "",
        }
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn verb(method: &Method, named: bool, query: &Query) -> &'static str {
    match method.as_str() {
        // A path with a name is a `get`, even with `watch` in the query.
        "GET" | "HEAD" if named => "get",
        "GET" | "HEAD" if query.flag("watch") => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if named => "delete",
        "DELETE" => "deletecollection",
        _ => "",
    }
}

/// Returns the fields for which a field selector requires one value. An invalid selector has none.
pub(crate) fn field_requirements(selector: &str) -> Vec<(String, String)> {
    let selector = FieldSelector::parse(selector).unwrap_or_default();
    selector.terms.into_iter().filter(|(.., equal)| *equal).map(|(field, value, _)| (field, value)).collect()
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
        let got = Attributes::of(&method, path, query);
        let target = match got.target {
            RequestTarget::NonResource(path) => path,
            RequestTarget::Resource(a) => {
                format!("{:?} {} in {:?} named {:?}", a.group, a.combined_resource(), a.namespace, a.name)
            }
        };
        assert_eq!(format!("{} {target}", got.verb), expected);
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

    #[test]
    fn old_watch_path_has_the_attributes_of_the_new_one() {
        for old in [
            "/api/v1/watch/namespaces/x/secrets",
            "//api/v1/watch/namespaces/x/secrets",
            "/api//v1/watch//namespaces/x/secrets/",
            "/api/v1/%77atch/namespaces/x/secrets",
            "/%61pi/v1/watch/%6eamespaces/%78/secret%73",
        ] {
            let mut uri: http::Uri = old.parse().unwrap();
            let got = Attributes::of_request(&Method::GET, &mut uri);
            let expected = Attributes::of(&Method::GET, "/api/v1/namespaces/x/secrets", "watch=true");
            assert_eq!(got, expected, "{old}");
            let routed = request::parse_path(&Default::default(), uri.path()).ok().unwrap();
            assert_eq!(
                (routed.kind.info().plural, routed.namespace.as_str(), routed.name),
                ("secrets", "x", None),
                "{old}"
            );
        }
    }

    #[test]
    fn authorized_resource_is_the_routed_resource() {
        for path in [
            "/api/v1/pods",
            "/api/v1/namespaces/a/pods/b",
            "/api/v1/namespaces/a%2Fpods/pods/b",
            "/api/v1/namespaces/a/pods%2Fb",
            "//api/v1//namespaces/a/pods/b/log",
            "/api/v1/namespaces/status/pods",
            "/api/v1/namespaces/a/status",
            "/api/v1/namespaces/a/finalize",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "/api/v1/nodes/n/proxy/a/b",
            "/api/v1/nodes/namespaces",
            "/api/v1/namespaces/namespaces/namespaces",
        ] {
            let Ok(routed) = crate::request::parse_path(&Default::default(), path) else { continue };
            let target = Attributes::of(&Method::GET, path, "").target;
            let RequestTarget::Resource(resource) = target else { panic!("{path}") };
            let info = routed.kind.info();
            let namespace = if info.plural == "namespaces" { String::new() } else { resource.namespace };
            assert_eq!(
                (resource.group.as_str(), resource.resource.as_str(), namespace, resource.name, resource.subresource),
                (
                    info.group,
                    info.plural,
                    routed.namespace,
                    routed.name.unwrap_or_default(),
                    routed.subresource.unwrap_or_default()
                ),
                "{path}"
            );
        }
    }
}
