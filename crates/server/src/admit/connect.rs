//! What a connection is asked for with: the query as an object (`PodExecOptions`).

use crate::service::Call;
use serde_json::{Value, json};

/// The options that a query sets.
pub(crate) fn options(call: &Call, fields: &[&str]) -> Value {
    let mut options = json!({});
    for (name, value) in form_urlencoded::parse(call.raw_query.as_bytes()) {
        let Some(field) = fields.iter().find(|field| **field == name) else { continue };
        match *field {
            "command" => push(&mut options, "command", json!(value)),
            "ports" => value.parse::<u16>().into_iter().for_each(|port| push(&mut options, "ports", json!(port))),
            "stdin" | "stdout" | "stderr" | "tty" => options[*field] = json!(call.query.flag(field)),
            _ => options[*field] = json!(value),
        }
    }
    options
}

fn push(options: &mut Value, list: &str, item: Value) {
    match options[list].as_array_mut() {
        Some(items) => items.push(item),
        None => options[list] = json!([item]),
    }
}
