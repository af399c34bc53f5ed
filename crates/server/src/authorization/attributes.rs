//! What a request is about, as authorization sees it: upstream's `RequestInfo`, from method, path and query alone.
//!
//! It does not know which resources there are: who may not do a thing does not learn whether it is there.

use crate::request::{self, Query};
use api::selector::FieldSelector;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// What somebody wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// For example `list`; of what is no resource, the method in small letters.
    pub(crate) verb: String,
    pub(crate) about: About,
}

/// With what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum About {
    Resource(ResourceAbout),
    /// A path that is no resource's.
    Path(String),
}

impl Default for About {
    fn default() -> Self {
        Self::Resource(ResourceAbout::default())
    }
}

/// What is not said is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceAbout {
    pub(crate) group: String,
    /// For example `pods`.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Values that a field selector leaves to fields.
    pub(crate) selects: Vec<(String, String)>,
}

impl ResourceAbout {
    /// Whether it is about objects only that have this value in a field.
    pub(crate) fn selects(&self, field: &str, value: &str) -> bool {
        self.selects.iter().any(|(f, v)| f == field && v == value)
    }

    /// `pods`, `pods/log`.
    pub(crate) fn combined(&self) -> Cow<'_, str> {
        if self.subresource.is_empty() {
            Cow::Borrowed(&self.resource)
        } else {
            Cow::Owned(format!("{}/{}", self.resource, self.subresource))
        }
    }
}

impl Attributes {
    /// The attributes of a request. An old path becomes its modern form in `uri` first, so that whoever reads `uri`
    /// later sees the request that was classified.
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
                return Self { verb: method.as_str().to_lowercase(), about: About::Path(path) };
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
        let selects = if named { Vec::new() } else { selected(query.get("fieldSelector").unwrap_or("")) };
        let name = if named || !reads_many(method) { part(1) } else { selected_name(&selects) };
        let verb = verb(method, named, &query).to_owned();
        let namespace = namespace.to_owned();
        let about = ResourceAbout {
            group: group.to_owned(),
            resource: part(0),
            subresource: part(2),
            namespace,
            name,
            selects,
        };
        Self { verb, about: About::Resource(about) }
    }

    /// Something that is done to a resource.
    pub(crate) fn to(verb: &str, about: ResourceAbout) -> Self {
        Self { verb: verb.to_owned(), about: About::Resource(about) }
    }

    /// Where it is done; empty for the whole cluster.
    pub(crate) fn namespace(&self) -> &str {
        match &self.about {
            About::Resource(about) => &about.namespace,
            About::Path(_) => "",
        }
    }
}

fn reads_many(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn verb(method: &Method, named: bool, query: &Query) -> &'static str {
    match method.as_str() {
        // Where a name stands in the path one object is read, whatever the query says.
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

/// The fields that a field selector leaves one value; one that makes no sense leaves none.
pub(crate) fn selected(selector: &str) -> Vec<(String, String)> {
    let selector = FieldSelector::parse(selector).unwrap_or_default();
    selector.terms.into_iter().filter(|(.., equal)| *equal).map(|(field, value, _)| (field, value)).collect()
}

/// The one name that is left, if there is one; what is no name of an object stands for none.
fn selected_name(selects: &[(String, String)]) -> String {
    let name = selects.iter().find(|(field, _)| field == "metadata.name").map_or("", |(_, name)| name);
    if matches!(name, "." | "..") || name.contains(['/', '%']) { String::new() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let got = Attributes::of(&method, path, query);
        let about = match got.about {
            About::Path(path) => path,
            About::Resource(a) => format!("{:?} {} in {:?} named {:?}", a.group, a.combined(), a.namespace, a.name),
        };
        assert_eq!(format!("{} {about}", got.verb), expected);
    }

    #[test]
    fn a_request_says_what_is_to_be_done_with_what() {
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
    fn a_namespace_is_in_itself() {
        check(Method::GET, "/api/v1/namespaces", r#"list "" namespaces in "" named """#);
        check(Method::GET, "/api/v1/namespaces/a", r#"get "" namespaces in "a" named "a""#);
        check(Method::PUT, "/api/v1/namespaces/a/finalize", r#"update "" namespaces/finalize in "a" named "a""#);
    }

    #[test]
    fn what_is_no_resource_is_a_path() {
        for path in ["/", "/metrics", "/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v3/apis/apps/v1"] {
            check(Method::GET, path, &format!("get {path}"));
        }
        check(Method::POST, "/a%2Fb", "post /a/b");
    }

    #[test]
    fn a_list_of_one_name_is_about_that_name() {
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
    fn what_is_authorized_is_what_is_done() {
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
            let Ok(done) = crate::request::parse_path(&Default::default(), path) else { continue };
            let About::Resource(asked) = Attributes::of(&Method::GET, path, "").about else { panic!("{path}") };
            let info = done.kind.info();
            let namespaced = if info.plural == "namespaces" { String::new() } else { asked.namespace };
            assert_eq!(
                (asked.group.as_str(), asked.resource.as_str(), namespaced, asked.name, asked.subresource),
                (
                    info.group,
                    info.plural,
                    done.namespace,
                    done.name.unwrap_or_default(),
                    done.subresource.unwrap_or_default()
                ),
                "{path}"
            );
        }
    }
}
