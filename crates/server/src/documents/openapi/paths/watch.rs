//! The deprecated watch paths, which generated clients still contain.

use super::{
    operation::{LIST, Operation},
    path_parameters,
};
use crate::documents::openapi::{parameters::collect_shared, schemas::reference};
use kinds::KindInfo;
use serde_json::{Value, json};

/// Returns the watch paths of a built-in kind: of an object, a collection, and all namespaces.
pub(super) fn watch_paths(info: &KindInfo, root: &str, scope: &str) -> Vec<(String, Value)> {
    let (kind, plural) = (info.kind, info.plural);
    let base =
        if info.namespaced { format!("/{root}/watch/namespaces/{{namespace}}") } else { format!("/{root}/watch") };
    let mut paths = vec![
        (format!("{base}/{plural}"), item(info, "watchlist", path_parameters(info, ""), format!("{scope}{kind}List"))),
        (
            format!("{base}/{plural}/{{name}}"),
            item(info, "watch", path_parameters(info, kind), format!("{scope}{kind}")),
        ),
    ];
    if info.namespaced {
        let all = item(info, "watchlist", json!([]), format!("{kind}ListForAllNamespaces"));
        paths.push((format!("/{root}/watch/{plural}"), all));
    }
    paths
}

fn item(info: &KindInfo, action: &str, in_path: Value, id: String) -> Value {
    let operation = Operation {
        info,
        built_in: true,
        action,
        parameters: &LIST,
        subresource: "",
        body: None,
        response: reference("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"),
        gvk: (info.group, info.version, info.kind),
        id,
    };
    collect_shared(json!({"parameters": in_path, "get": operation.value()}))
}
