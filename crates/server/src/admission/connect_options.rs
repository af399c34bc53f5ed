//! Options of connect requests, for example `PodExecOptions`: the query parameters as an object.

use crate::objects::call::Call;
use serde_json::{Value, json};

/// Returns the options of a connect request from the query parameters with these names.
pub(crate) fn connect_options(call: &Call, fields: &[&str]) -> Value {
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
