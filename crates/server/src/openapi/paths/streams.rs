//! Subresources whose bodies are of no kind: logs, streams, and what is passed on.

use super::{
    operation::{Operation, Parameter, capitalized},
    path_parameters,
};
use crate::kinds::{KindInfo, Subresource};
use serde_json::{Value, json};

const CONTAINER: Parameter = ("container", "string", "Which container; needed only where there are several.");
const LOG: [Parameter; 9] = [
    CONTAINER,
    ("follow", "boolean", "Go on with what is written from now on."),
    ("limitBytes", "integer", "How many bytes to send at most."),
    ("previous", "boolean", "That of the container that ran before."),
    ("sinceSeconds", "integer", "Only what was written in so many seconds before now."),
    ("sinceTime", "string", "Only what was written since then (RFC 3339)."),
    ("stream", "string", "All, Stdout or Stderr."),
    ("tailLines", "integer", "How many lines from the end."),
    ("timestamps", "boolean", "Begin each line with when it was written (RFC 3339)."),
];
const STDIN: Parameter = ("stdin", "boolean", "Send standard input.");
const STDOUT: Parameter = ("stdout", "boolean", "Receive standard output.");
const STDERR: Parameter = ("stderr", "boolean", "Receive standard error.");
const TTY: Parameter = ("tty", "boolean", "In a terminal.");
const EXEC: [Parameter; 6] = [
    ("command", "string", "The command and its arguments, one by one; not run by a shell."),
    CONTAINER,
    STDERR,
    STDIN,
    STDOUT,
    TTY,
];
const ATTACH: [Parameter; 5] = [CONTAINER, STDERR, STDIN, STDOUT, TTY];
const FORWARD: [Parameter; 1] = [("ports", "integer", "The ports to lead to.")];
const PROXY: [Parameter; 1] = [("path", "string", "Where to ask.")];

/// The paths of such a subresource; none for others.
pub(super) fn of(info: &KindInfo, sub: &Subresource, base: &str, scope: &str) -> Vec<(String, Value)> {
    let at = |rest: &str| format!("{base}/{{name}}/{}{rest}", sub.name);
    match sub.name {
        "log" => vec![(at(""), item(info, sub, scope, &LOG, ""))],
        "exec" => vec![(at(""), item(info, sub, scope, &EXEC, ""))],
        "attach" => vec![(at(""), item(info, sub, scope, &ATTACH, ""))],
        "portforward" => vec![(at(""), item(info, sub, scope, &FORWARD, ""))],
        "proxy" => {
            let mut below = item(info, sub, scope, &[], "WithPath");
            if let Some(parameters) = below["parameters"].as_array_mut() {
                parameters.push(
                    json!({"name": "path", "in": "path", "required": true, "description": "path to the resource",
                    "schema": {"type": "string", "uniqueItems": true}}),
                );
            }
            vec![(at(""), item(info, sub, scope, &PROXY, "")), (at("/{path}"), below)]
        }
        _ => Vec::new(),
    }
}

fn item(info: &KindInfo, sub: &Subresource, scope: &str, parameters: &[Parameter], rest: &str) -> Value {
    let mut value = json!({"parameters": path_parameters(info, true)});
    for verb in sub.verbs {
        let method = match *verb {
            "create" => "post",
            "update" => "put",
            same => same,
        };
        let (action, word) = if sub.name == "log" { ("read", String::new()) } else { ("connect", capitalized(method)) };
        let operation = Operation {
            info,
            built_in: true,
            action,
            parameters,
            body: None,
            answer: json!({"type": "string"}),
            about: (sub.group, sub.version, sub.kind),
            id: format!("{word}{scope}{}{}{rest}", info.kind, capitalized(sub.name)),
        };
        value[method] = operation.value();
    }
    value
}
