//! The kind and object of a resource request (upstream's `RequestScope`).

use crate::objects::kind_registry::ServedKinds;
use errors::ApiError;
use kinds::{Kind, KindRef, WriteTarget};
use request::{RequestInfo, RequestTarget};
use std::sync::Arc;

/// Kind, namespace, name and subresource that a request's path names (upstream's `RequestScope`).
#[derive(Clone)]
pub(crate) struct RequestScope {
    pub(crate) kind: KindRef,
    /// The kinds that were served when the request arrived.
    pub(crate) served: Arc<ServedKinds>,
    /// Empty for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl RequestScope {
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

/// Resolves the kind of a resource request.
///
/// # Errors
/// A 404 when no served kind has this path, and a 400 when a name of the path is invalid.
pub(crate) fn resolve(served: &Arc<ServedKinds>, info: &RequestInfo) -> Result<RequestScope, ApiError> {
    let (RequestTarget::Resource(resource), Some(path)) = (&info.attributes.target, &info.resource_path) else {
        return Err(ApiError::no_such_path());
    };
    let found = served.find(&resource.group, &path.api_version, &resource.resource);
    let kind = found.ok_or_else(ApiError::no_such_path)?;
    let (is_namespaced, parts) = (kind.info().namespaced, &path.parts);
    if !path.namespace.is_empty() && !is_namespaced {
        return Err(ApiError::no_such_path());
    }
    // Namespaced objects are addressed within their namespace, and only a proxy has a path behind its subresource.
    if (is_namespaced && path.namespace.is_empty() && parts.len() > 1) || (parts.len() > 3 && parts[2] != "proxy") {
        return Err(ApiError::no_such_path());
    }
    check_path_segment_name("Name", parts.get(1).map_or("", String::as_str))?;
    check_path_segment_name("Namespace", &path.namespace)?;
    let (name, subresource) = (parts.get(1).cloned(), parts.get(2).cloned());
    Ok(RequestScope { kind, served: Arc::clone(served), namespace: path.namespace.clone(), name, subresource })
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
    use http::{Method, Uri};
    use proptest::prelude::*;

    fn info(path: &str) -> RequestInfo {
        RequestInfo::new(&Method::GET, &path.parse().unwrap())
    }

    fn scope(path: &str) -> Result<RequestScope, ApiError> {
        resolve(&Arc::default(), &info(path))
    }

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let got = scope(path).map_or_else(
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
    fn old_watch_path_has_the_attributes_of_the_new_one() {
        for old in [
            "/api/v1/watch/namespaces/x/secrets",
            "//api/v1/watch/namespaces/x/secrets",
            "/api//v1/watch//namespaces/x/secrets/",
            "/api/v1/%77atch/namespaces/x/secrets",
            "/%61pi/v1/watch/%6eamespaces/%78/secret%73",
        ] {
            let uri: Uri = old.parse().unwrap();
            let got = RequestInfo::new(&Method::GET, &uri);
            let current: Uri = "/api/v1/namespaces/x/secrets?watch=true".parse().unwrap();
            let expected = RequestInfo::new(&Method::GET, &current);
            let meaning =
                |info: &RequestInfo| (info.attributes.clone(), info.resource_path.clone(), info.query.clone());
            assert_eq!(meaning(&got), meaning(&expected), "{old}");
            let routed = resolve(&Arc::default(), &got).ok().unwrap();
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
            let Ok(routed) = scope(path) else { continue };
            let target = info(path).attributes.target;
            let RequestTarget::Resource(resource) = target else { panic!("{path}") };
            let kind = routed.kind.info();
            let namespace = if kind.plural == "namespaces" { String::new() } else { resource.namespace };
            assert_eq!(
                (resource.group.as_str(), resource.resource.as_str(), namespace, resource.name, resource.subresource),
                (
                    kind.group,
                    kind.plural,
                    routed.namespace,
                    routed.name.unwrap_or_default(),
                    routed.subresource.unwrap_or_default()
                ),
                "{path}"
            );
        }
    }

    /// Segments of paths: names of groups, resources and subresources, odd ones, and encoded ones.
    const SEGMENTS: [&str; 32] = [
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "pods",
        "nodes",
        "deployments",
        "status",
        "finalize",
        "proxy",
        "log",
        "watch",
        "default",
        "a",
        "",
        ".",
        "..",
        "%2f",
        "%2F",
        "%2e%2e",
        "%25",
        "a%2Fb",
        "%70ods",
        "%6eamespaces",
        "%61pi",
        "PODS",
        "Api",
        "%zz",
        "%ff",
        "+",
        "a;b",
    ];

    proptest! {
        #[test]
        fn routed_object_is_the_authorized_one(segments in prop::collection::vec(prop::sample::select(&SEGMENTS[..]), 0..9), slash: bool) {
            let path = format!("/{}{}", segments.join("/"), if slash { "/" } else { "" });
            let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
            let info = RequestInfo::new(&Method::GET, &uri);
            // Proxies read the rewritten URI: it is the same request.
            prop_assert_eq!(&info, &RequestInfo::new(&Method::GET, &info.uri));
            let Ok(scope) = resolve(&Arc::default(), &info) else { return Ok(()) };
            let RequestTarget::Resource(resource) = &info.attributes.target else { return Err(TestCaseError::fail("no resource")) };
            let kind = scope.kind.info();
            prop_assert_eq!((resource.group.as_str(), resource.resource.as_str()), (kind.group, kind.plural));
            prop_assert_eq!(resource.subresource.as_str(), scope.subresource.as_deref().unwrap_or_default());
            if let Some(name) = scope.name.as_deref() {
                prop_assert_eq!(resource.name.as_str(), name);
                prop_assert!(!name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%']), "{}", name);
            }
            let of_itself = kind.plural == "namespaces" && Some(resource.namespace.as_str()) == scope.name.as_deref();
            prop_assert!(of_itself || resource.namespace == scope.namespace, "{:?} {}", resource, scope.namespace);
        }
    }
}
