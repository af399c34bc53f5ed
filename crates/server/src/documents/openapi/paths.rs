//! Paths and operations of a kind.

mod connect;
mod operation;
mod watch;

use super::{
    parameters::{self, collect_shared},
    schemas::{name, reference},
};
use crate::documents::discovery;
use kinds::{KindInfo, Subresource};
use operation::{DELETE, LIST, Operation, PATCH_WRITE, WRITE, capitalized};
pub(super) use operation::{group_id, group_tag};
use serde_json::{Value, json};

/// `api/v1`, `apis/policy/v1`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns all paths of a kind.
pub(super) fn resource_paths(info: &KindInfo, schema: &str) -> Vec<(String, Value)> {
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
    let delete_collection_parameters: Vec<&str> =
        LIST.into_iter().filter(|p| !p.to_lowercase().contains("watch")).chain(DELETE).collect();
    let operation = |subresource, action, parameters, body, response: &Value, id: String| {
        let gvk = (info.group, info.version, info.kind);
        let response = response.clone();
        Operation { info, built_in, action, parameters, subresource, body, response, gvk, id }.value()
    };
    let at = |action, parameters, body, response: &Value, id| operation("", action, parameters, body, response, id);
    let create = |id: String| at("create", &WRITE, Some(object.clone()), &object, id);
    if info.create_only {
        let path = json!({"parameters": path_parameters(info, ""), "post": create(format!("{scope}{}", info.kind))});
        return vec![(base, collect_shared(path))];
    }
    let one = |sub: &'static str| {
        let id = format!("{scope}{}{}", info.kind, capitalized(sub));
        json!({
            "parameters": path_parameters(info, info.kind),
            "get": operation(sub, "read", &[], None, &object, id.clone()),
            "put": operation(sub, "replace", &WRITE, Some(object.clone()), &object, id.clone()),
            "patch": operation(sub, "patch", &PATCH_WRITE, Some(reference(PATCH)), &object, id),
        })
    };
    let id = format!("{scope}{}", info.kind);
    let mut collection = json!({
        "parameters": path_parameters(info, ""),
        "get": at("list", &LIST, None, &all, id.clone()),
        "post": create(id.clone()),
    });
    if discovery::verbs(info).contains(&"deletecollection") {
        collection["delete"] = at(
            "deletecollection",
            &delete_collection_parameters,
            Some(options.clone()),
            &status,
            format!("Collection{id}"),
        );
    }
    let mut named = one("");
    // The deletion of a Namespace returns the object, but upstream documents a Status.
    let deleted = if info.returns_deleted_object() && info.kind != "Namespace" { &object } else { &status };
    named["delete"] = at("delete", &DELETE, Some(options), deleted, id);
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
        paths.push((format!("{base}/{{name}}/status"), one("status")));
    }
    let mut paths: Vec<_> = paths.into_iter().map(|(path, item)| (path, collect_shared(item))).collect();
    if built_in && discovery::verbs(info).contains(&"watch") {
        paths.extend(watch::watch_paths(info, &root, scope));
    }
    for sub in info.subresources {
        paths.extend(connect::connect_paths(info, sub, &base, scope));
        paths.extend(subresource(info, sub, built_in, &base, scope));
    }
    paths
}

/// The schema of a patch's body.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Returns the path parameters of a kind; `named` is the kind of `{name}`, empty for collections.
fn path_parameters(info: &KindInfo, named: &str) -> Value {
    let mut all = Vec::new();
    if !named.is_empty() {
        all.push(parameters::path("name", &format!("name of the {named}")));
    }
    if info.namespaced {
        all.push(parameters::path("namespace", "object name and auth scope, such as for teams and projects"));
    }
    json!(all)
}

/// Returns the path of a subresource whose body is an object with a schema.
fn subresource(info: &KindInfo, sub: &Subresource, built_in: bool, base: &str, scope: &str) -> Option<(String, Value)> {
    let schema = name(sub.group, sub.version, sub.kind).filter(|_| sub.name != "log").map(|n| reference(&n))?;
    let mut value = json!({"parameters": path_parameters(info, sub.kind)});
    for verb in sub.verbs {
        let (method, action): (_, &str) = match *verb {
            "get" => ("get", "read"),
            "create" => ("post", "create"),
            "update" => ("put", "replace"),
            "patch" => ("patch", "patch"),
            _ => continue,
        };
        let (parameters, body): (&[&str], _) = match method {
            "get" => (&[], None),
            "patch" => (&PATCH_WRITE, Some(reference(PATCH))),
            _ => (&WRITE, Some(schema.clone())),
        };
        let id = format!("{scope}{}{}", info.kind, capitalized(sub.name));
        let gvk = (sub.group, sub.version, sub.kind);
        let (response, subresource) = (schema.clone(), sub.name);
        let operation = Operation { info, built_in, action, parameters, subresource, body, response, gvk, id };
        value[method] = operation.value();
    }
    Some((format!("{base}/{{name}}/{}", sub.name), collect_shared(value)))
}
