//! The paths of a kind, and what may be done there.

mod operation;
mod streams;

use super::schemas::{name, reference};
use crate::{
    discovery,
    kinds::{KindInfo, Subresource},
};
use operation::{DELETE, LIST, Operation, PATCH_WRITE, Parameter, WRITE, capitalized};
use serde_json::{Value, json};

/// `api/v1`, `apis/policy/v1`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// All paths of a kind.
pub(super) fn of(info: &KindInfo, schema: &str) -> Vec<(String, Value)> {
    let built_in = name(info.group, info.version, info.kind).is_some();
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
    let swept: Vec<Parameter> =
        LIST.into_iter().filter(|p| !p.0.to_lowercase().contains("watch")).chain(DELETE).collect();
    let at = |action, parameters, body, answer: &Value, id: String| {
        let about = (info.group, info.version, info.kind);
        Operation { info, built_in, action, parameters, body, answer: answer.clone(), about, id }.value()
    };
    let create = |id: String| at("create", &WRITE, Some(object.clone()), &object, id);
    if info.question {
        let path = json!({"parameters": path_parameters(info, false), "post": create(format!("{scope}{}", info.kind))});
        return vec![(base, lean(path))];
    }
    let one = |sub: &str| {
        let id = format!("{scope}{}{sub}", info.kind);
        json!({
            "parameters": path_parameters(info, true),
            "get": at("read", &[], None, &object, id.clone()),
            "put": at("replace", &WRITE, Some(object.clone()), &object, id.clone()),
            "patch": at("patch", &PATCH_WRITE, Some(reference(PATCH)), &object, id),
        })
    };
    let id = format!("{scope}{}", info.kind);
    let mut collection = json!({
        "parameters": path_parameters(info, false),
        "get": at("list", &LIST, None, &all, id.clone()),
        "post": create(id.clone()),
    });
    if discovery::verbs(info).contains(&"deletecollection") {
        collection["delete"] =
            at("deletecollection", &swept, Some(options.clone()), &status, format!("Collection{id}"));
    }
    let mut named = one("");
    // That of Namespaces is wrapped, and documented with a Status all the same.
    let deleted = if info.returns_deleted_object() && info.kind != "Namespace" { &object } else { &status };
    named["delete"] = at("delete", &DELETE, Some(options), deleted, id);
    let mut paths = vec![(base.clone(), lean(collection)), (format!("{base}/{{name}}"), named)];
    if info.namespaced {
        let list = at("list", &LIST, None, &all, format!("{}ForAllNamespaces", info.kind));
        paths.push((format!("/{root}/{}", info.plural), json!({"get": list})));
    }
    if info.computed {
        let paths = paths.iter_mut().filter_map(|(_, path)| path.as_object_mut());
        paths.for_each(|path| path.retain(|verb, _| matches!(verb.as_str(), "get" | "parameters")));
    }
    if info.status {
        paths.push((format!("{base}/{{name}}/status"), one("Status")));
    }
    for sub in info.subresources {
        paths.extend(streams::of(info, sub, &base, scope));
        paths.extend(subresource(info, sub, built_in, &base, scope));
    }
    paths
}

/// The schema of a patch's body.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// A path without parameters has no list of them.
fn lean(mut path: Value) -> Value {
    if path["parameters"].as_array().is_some_and(Vec::is_empty) {
        path.as_object_mut().map(|path| path.remove("parameters"));
    }
    path
}

/// What stands in the paths of a kind.
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

/// A subresource with a body of a kind that has a schema.
fn subresource(info: &KindInfo, sub: &Subresource, built_in: bool, base: &str, scope: &str) -> Option<(String, Value)> {
    let schema = name(sub.group, sub.version, sub.kind).filter(|_| sub.name != "log").map(|n| reference(&n))?;
    let mut value = json!({"parameters": path_parameters(info, true)});
    for verb in sub.verbs {
        let (method, action): (_, &str) = match *verb {
            "get" => ("get", "read"),
            "create" => ("post", "create"),
            "update" => ("put", "replace"),
            "patch" => ("patch", "patch"),
            _ => continue,
        };
        let (parameters, body): (&[Parameter], _) = match method {
            "get" => (&[], None),
            "patch" => (&PATCH_WRITE, Some(reference(PATCH))),
            _ => (&WRITE, Some(schema.clone())),
        };
        let id = format!("{scope}{}{}", info.kind, capitalized(sub.name));
        let about = (sub.group, sub.version, sub.kind);
        let answer = schema.clone();
        value[method] = Operation { info, built_in, action, parameters, body, answer, about, id }.value();
    }
    Some((format!("{base}/{{name}}/{}", sub.name), value))
}
