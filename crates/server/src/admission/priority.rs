//! The `Priority` admission plugin: sets the priority of new Pods, and allows only one global default PriorityClass.

use super::plugin::{AdmittedWrite, Plugin};
use auth::stored_object;
use errors::ApiError;
use kinds::priority_class::{self, PodPriorityError, STORAGE};
use serde_json::{Value, json};
use store::{Scope, Store};

/// Sets the priority of new Pods, and denies a second default class.
pub(super) struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("", "Pod") {
            admit_pod(&write.control.store, object).map_err(|error| write.forbidden(object, &error))?;
        }
        if write.creates("scheduling.k8s.io", "PriorityClass") {
            admit_class(&write.control.store, object).map_err(|error| write.forbidden(object, &error))?;
        }
        Ok(())
    }
}

/// Sets the priority of a new Pod.
pub(super) fn admit_pod(store: &Store, pod: &mut Value) -> Result<(), PodPriorityError> {
    let name = pod["spec"]["priorityClassName"].as_str().unwrap_or("");
    let class = if name.is_empty() { default_priority_class(store) } else { find_priority_class(store, name) };
    priority_class::admit(pod, class.as_ref())
}

/// Denial of a second global default class; contains the name of the first.
#[derive(Debug, thiserror::Error)]
#[error("PriorityClass {0:?} is already marked as default. Only one default can exist")]
pub(super) struct DefaultClassExists(String);

/// Denies a second global default class.
pub(super) fn admit_class(store: &Store, class: &Value) -> Result<(), DefaultClassExists> {
    let is_other = |other: &Value| other["metadata"]["name"] != class["metadata"]["name"];
    match default_priority_class(store).filter(|other| is_default(class) && is_other(other)) {
        Some(other) => {
            let name = other["metadata"]["name"].as_str().unwrap_or("");
            Err(DefaultClassExists(name.to_owned()))
        }
        None => Ok(()),
    }
}

fn is_default(class: &Value) -> bool {
    class["globalDefault"] == json!(true)
}

fn find_priority_class(store: &Store, name: &str) -> Option<Value> {
    stored_object::get(store, STORAGE, "", name)
}

/// Returns the global default class; of several, which only races can create, the one with the lowest value.
fn default_priority_class(store: &Store) -> Option<Value> {
    let classes = stored_object::list(store, &Scope::resource(STORAGE));
    classes.filter(is_default).min_by_key(|class| class["value"].as_i64())
}
