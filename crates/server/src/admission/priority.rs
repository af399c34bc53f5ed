//! The `Priority` admission plugin: sets the priority of new Pods, and allows only one global default PriorityClass.

use crate::{
    ApiServer,
    kinds::{self, priority_class::STORAGE},
};
use serde_json::{Value, json};
use store::{Key, Scope};

/// Sets the priority of a new Pod.
pub(super) fn admit_pod(server: &ApiServer, pod: &mut Value) -> Result<(), String> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or("");
    let class = if name.is_empty() { default_priority_class(server) } else { priority_class(server, name) };
    kinds::priority_class::admit(pod, class.as_ref())
}

/// Denies a second global default class.
pub(super) fn admit_class(server: &ApiServer, class: &Value) -> Result<(), String> {
    let is_other = |other: &Value| other["metadata"]["name"] != class["metadata"]["name"];
    match default_priority_class(server).filter(|other| is_default(class) && is_other(other)) {
        Some(other) => {
            let name = other["metadata"]["name"].as_str().unwrap_or("");
            Err(format!("PriorityClass {name:?} is already marked as default. Only one default can exist"))
        }
        None => Ok(()),
    }
}

fn is_default(class: &Value) -> bool {
    class["globalDefault"] == json!(true)
}

fn priority_class(server: &ApiServer, name: &str) -> Option<Value> {
    let stored = server.store.get(&Key::new(STORAGE, "", name))?;
    serde_json::from_slice(&stored.data).ok()
}

/// Returns the global default class; of several, which only races can create, the one with the lowest value.
fn default_priority_class(server: &ApiServer) -> Option<Value> {
    let all = server.store.list(&Scope::resource(STORAGE), None, None).objects;
    let classes = all.iter().filter_map(|stored| serde_json::from_slice::<Value>(&stored.data).ok());
    classes.filter(is_default).min_by_key(|class| class["value"].as_i64())
}
