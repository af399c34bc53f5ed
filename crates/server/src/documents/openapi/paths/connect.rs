//! Subresources without objects: logs, and connect requests (streams and proxies).

use super::{
    operation::{Operation, capitalized},
    path_parameters,
};
use crate::documents::openapi::parameters::{self, collect_shared};
use kinds::{KindInfo, Subresource};
use serde_json::{Value, json};

const LOG: [&str; 9] = [
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "stream",
    "tailLines",
    "timestamps",
];
const EXEC: [&str; 6] = ["command", "container", "stderr", "stdin", "stdout", "tty"];
const ATTACH: [&str; 5] = ["container", "stderr", "stdin", "stdout", "tty"];
const FORWARD: [&str; 1] = ["ports"];
const PROXY: [&str; 1] = ["path"];
/// Methods of proxies that have no verb in discovery.
const PROXY_VERBS: [&str; 2] = ["head", "options"];

/// Returns the paths of such a subresource; none for others.
pub(super) fn connect_paths(info: &KindInfo, sub: &Subresource, base: &str, scope: &str) -> Vec<(String, Value)> {
    let at = |rest: &str| format!("{base}/{{name}}/{}{rest}", sub.name);
    match sub.name {
        "log" => vec![(at(""), item(info, sub, scope, &LOG, ""))],
        "exec" => vec![(at(""), item(info, sub, scope, &EXEC, ""))],
        "attach" => vec![(at(""), item(info, sub, scope, &ATTACH, ""))],
        "portforward" => vec![(at(""), item(info, sub, scope, &FORWARD, ""))],
        "proxy" => {
            let below = item(info, sub, scope, &PROXY, "WithPath");
            vec![(at(""), item(info, sub, scope, &PROXY, "")), (at("/{path}"), below)]
        }
        _ => Vec::new(),
    }
}

fn item(info: &KindInfo, sub: &Subresource, scope: &str, names: &[&str], rest: &str) -> Value {
    let is_log = sub.name == "log";
    let mut in_path = path_parameters(info, if is_log { info.kind } else { sub.kind });
    if !rest.is_empty()
        && let Some(all) = in_path.as_array_mut()
    {
        all.push(parameters::path("path", "path to the resource"));
    }
    let mut value = json!({"parameters": in_path});
    let verbs = PROXY_VERBS.iter().filter(|_| sub.name == "proxy");
    for verb in sub.verbs.iter().chain(verbs) {
        let method = match *verb {
            "create" => "post",
            "update" => "put",
            same => same,
        };
        let action = if is_log { "read".to_owned() } else { format!("connect {method}") };
        let prefix = if is_log { String::new() } else { capitalized(method) };
        let operation = Operation {
            info,
            built_in: true,
            action: &action,
            parameters: names,
            subresource: sub.name,
            body: None,
            response: json!({"type": "string"}),
            gvk: (sub.group, sub.version, sub.kind),
            id: format!("{prefix}{scope}{}{}{rest}", info.kind, capitalized(sub.name)),
        };
        value[method] = operation.value();
    }
    collect_shared(value)
}
