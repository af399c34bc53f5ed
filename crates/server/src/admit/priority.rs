//! The `Priority` admission: what a Pod's class makes of it, and that there is one class at most for all that name none.

use crate::{
    ApiServer,
    kinds::priority_class::{self, STORAGE},
};
use serde_json::{Value, json};
use store::{Key, Scope};

/// Gives a new Pod the priority of its class.
pub(crate) fn admit_pod(server: &ApiServer, pod: &mut Value) -> Result<(), String> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or("");
    let class = if name.is_empty() { default(server) } else { named(server, name) };
    priority_class::admit(pod, class.as_ref())
}

/// A second class for all Pods that name none is refused.
pub(crate) fn admit_class(server: &ApiServer, class: &Value) -> Result<(), String> {
    match default(server).filter(|other| is_default(class) && other["metadata"]["name"] != class["metadata"]["name"]) {
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

fn named(server: &ApiServer, name: &str) -> Option<Value> {
    let stored = server.store.get(&Key::new(STORAGE, "", name))?;
    serde_json::from_slice(&stored.data).ok()
}

/// The class of Pods that name none. Of several, which only races can make, the one with the lowest value.
fn default(server: &ApiServer) -> Option<Value> {
    let all = server.store.list(&Scope::resource(STORAGE), None, None).objects;
    let classes = all.iter().filter_map(|stored| serde_json::from_slice::<Value>(&stored.data).ok());
    classes.filter(is_default).min_by_key(|class| class["value"].as_i64())
}
