//! The paths of a kind, and what may be done there.

use super::schemas::{name, reference};
use crate::kinds::KindInfo;
use serde_json::{Map, Value, json};

/// Query parameters: name, type, and what it is for.
type Parameter = (&'static str, &'static str, &'static str);

const LIST: [Parameter; 9] = [
    ("labelSelector", "string", "Only objects whose labels match."),
    ("fieldSelector", "string", "Only objects whose fields match."),
    ("limit", "integer", "How many objects one answer holds at most."),
    ("continue", "string", "Where an earlier answer ended."),
    ("resourceVersion", "string", "Which state to show, as resourceVersionMatch says."),
    ("resourceVersionMatch", "string", "Exact or NotOlderThan."),
    ("watch", "boolean", "Send changes as they come."),
    ("allowWatchBookmarks", "boolean", "Send events that only carry a resourceVersion."),
    ("timeoutSeconds", "integer", "How long to watch."),
];
const WRITE: [Parameter; 3] = [
    ("dryRun", "string", "All: do everything but store."),
    ("fieldManager", "string", "Who makes the change."),
    ("fieldValidation", "string", "What to do about unknown fields: Ignore, Warn or Strict."),
];
const PATCH_WRITE: [Parameter; 4] =
    [WRITE[0], WRITE[1], WRITE[2], ("force", "boolean", "Apply over conflicts: the fields become this manager's.")];
const DELETE: [Parameter; 3] = [
    ("dryRun", "string", "All: do everything but store."),
    ("gracePeriodSeconds", "integer", "How long the object may take to end."),
    ("propagationPolicy", "string", "Orphan, Background or Foreground."),
];
/// What a PATCH may hold.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// `api/v1`, `apis/policy/v1`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// An operation of a kind at one path.
struct Operation<'a> {
    info: &'a KindInfo,
    /// Upstream's name for it: `list`, `create`, ...
    action: &'a str,
    parameters: &'a [Parameter],
    /// Media types and schema of the body.
    body: Option<(&'a [&'a str], Value)>,
    answer: Value,
    /// Group, version and kind that it is about.
    about: (&'a str, &'a str, &'a str),
    /// What ends its id: the scope, the kind, the subresource.
    id: String,
}

impl Operation<'_> {
    fn value(&self) -> Value {
        let parameters: Vec<Value> = self
            .parameters
            .iter()
            .map(|(name, kind, text)| json!({"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": true}}))
            .collect();
        let first = self.info.group.split('.').next().unwrap_or_default();
        let tag = if first.is_empty() { "core" } else { first };
        let camel = |text: &str| {
            text.chars().next().map(|c| c.to_uppercase().to_string() + &text[c.len_utf8()..]).unwrap_or_default()
        };
        let (group, version, kind) = self.about;
        let mut value = json!({
            "tags": [format!("{tag}_{}", self.info.version)],
            "operationId": format!("{}{}{}{}", self.action, camel(tag), camel(self.info.version), self.id),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": self.answer}}}},
            "x-kubernetes-action": match self.action { "create" => "post", "replace" => "put", "read" => "get", other => other },
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if let Some((media, schema)) = &self.body {
            let content: Map<String, Value> =
                media.iter().map(|m| ((*m).to_owned(), json!({"schema": schema}))).collect();
            value["requestBody"] = json!({"content": content});
        }
        value
    }
}

/// All paths of a kind.
pub(super) fn of(info: &KindInfo, schema: &str) -> Vec<(String, Value)> {
    // Only built-in kinds have a table of how their lists are merged.
    let patches = if name(info.group, info.version, info.kind).is_some() { &PATCHES[..] } else { &PATCHES[..3] };
    let root = root(info.group, info.version);
    let base = if info.namespaced {
        format!("/{root}/namespaces/{{namespace}}/{}", info.plural)
    } else {
        format!("/{root}/{}", info.plural)
    };
    let scope = if info.namespaced { "Namespaced" } else { "" };
    let (object, all) = (reference(schema), reference(&format!("{schema}List")));
    let status = reference("io.k8s.apimachinery.pkg.apis.meta.v1.Status");
    let options = reference("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    let at = |action, parameters, body, answer: &Value, id: String| {
        let about = (info.group, info.version, info.kind);
        Operation { info, action, parameters, body, answer: answer.clone(), about, id }.value()
    };
    let create = |id: String| at("create", &WRITE, Some((&["*/*"], object.clone())), &object, id);
    if info.question {
        let path = json!({"parameters": path_parameters(info, false), "post": create(format!("{scope}{}", info.kind))});
        return vec![(base, path)];
    }
    let one = |sub: &str| {
        let id = format!("{scope}{}{sub}", info.kind);
        json!({
            "get": at("read", &[], None, &object, id.clone()),
            "put": at("replace", &WRITE, Some((&["*/*"], object.clone())), &object, id.clone()),
            "patch": at("patch", &PATCH_WRITE, Some((patches, reference(PATCH))), &object, id),
        })
    };
    let id = format!("{scope}{}", info.kind);
    let collection = json!({
        "parameters": path_parameters(info, false),
        "get": at("list", &LIST, None, &all, id.clone()),
        "post": create(id.clone()),
        "delete": at("deletecollection", &LIST, Some((&["*/*"], options.clone())), &status, format!("Collection{id}")),
    });
    let mut named = one("");
    named["delete"] = at("delete", &DELETE, Some((&["*/*"], options)), &status, id);
    named["parameters"] = path_parameters(info, true);
    let mut paths = vec![(base.clone(), collection), (format!("{base}/{{name}}"), named)];
    if info.namespaced {
        let list = at("list", &LIST, None, &all, format!("{}ForAllNamespaces", info.kind));
        paths.push((format!("/{root}/{}", info.plural), json!({"get": list})));
    }
    if info.computed {
        let paths = paths.iter_mut().filter_map(|(_, path)| path.as_object_mut());
        paths.for_each(|path| path.retain(|verb, _| matches!(verb.as_str(), "get" | "parameters")));
    }
    if info.status {
        let mut value = one("Status");
        value["parameters"] = path_parameters(info, true);
        paths.push((format!("{base}/{{name}}/status"), value));
    }
    paths.extend(subresources(info, &base, scope));
    paths
}

/// The schema of a patch's body.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

fn path_parameters(info: &KindInfo, named: bool) -> Value {
    let parameter = |name: &str, text: String| json!({"name": name, "in": "path", "required": true, "description": text, "schema": {"type": "string", "uniqueItems": true}});
    let mut all = Vec::new();
    if named {
        all.push(parameter("name", format!("name of the {}", info.kind)));
    }
    if info.namespaced {
        all.push(parameter("namespace", "object name and auth scope, such as for teams and projects".to_owned()));
    }
    json!(all)
}

/// Subresources with a body of a kind that has a schema; streams have none, and `log` is named after its Pod.
fn subresources(info: &KindInfo, base: &str, scope: &str) -> Vec<(String, Value)> {
    let mut paths = Vec::new();
    for sub in info.subresources.iter().filter(|s| s.name != "log") {
        let Some(schema) = name(sub.group, sub.version, sub.kind).map(|n| reference(&n)) else { continue };
        let mut value = json!({"parameters": path_parameters(info, true)});
        for verb in sub.verbs {
            let (method, action) = match *verb {
                "get" => ("get", "read"),
                "create" => ("post", "create"),
                "update" => ("put", "replace"),
                "patch" => ("patch", "patch"),
                _ => continue,
            };
            let body: Option<(&[&str], Value)> = match method {
                "get" => None,
                "patch" => Some((&PATCHES, reference(PATCH))),
                _ => Some((&["*/*"], schema.clone())),
            };
            let id = format!("{scope}{}{}", info.kind, capitalized(sub.name));
            let parameters: &[Parameter] = match method {
                "get" => &[],
                "patch" => &PATCH_WRITE,
                _ => &WRITE,
            };
            let about = (sub.group, sub.version, sub.kind);
            value[method] = Operation { info, action, parameters, body, answer: schema.clone(), about, id }.value();
        }
        paths.push((format!("{base}/{{name}}/{}", sub.name), value));
    }
    paths
}

/// With a capital first letter, as upstream names operations on subresources.
fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
