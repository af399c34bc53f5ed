//! PriorityClass (`scheduling.k8s.io/v1`), and what it makes of Pods (the `Priority` admission).

use super::{AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, boolean, fill, integer, plain::Plain, text};
use serde_json::{Value, json};

/// Where PriorityClasses are stored.
pub(crate) const STORAGE: &str = "priorityclasses";

/// The classes that every cluster has, in the form in which they are made.
pub(crate) const OF_THE_SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Only those of the system may be above this.
const HIGHEST: i64 = 1_000_000_000;
const PREFIX: &str = "system-";
const POLICY: &str = "PreemptLowerPriority";

pub(super) static PRIORITY_CLASS: Plain = Plain {
    columns: &[
        NAME,
        integer("Value", Cell::At("/value")),
        boolean("Global-Default", Cell::At("/globalDefault")),
        AGE,
        text("PreemptionPolicy", Cell::At("/preemptionPolicy")),
    ],
    default: |object| fill::at(object, "", &[("preemptionPolicy", json!(POLICY))]),
    validate,
    validate_change: |object, old, errors| {
        for field in ["value", "preemptionPolicy"] {
            if object[field] != old[field] {
                errors.forbidden(&FieldPath::new(field), "may not be changed in an update.");
            }
        }
    },
    ..Plain::of(&KindInfo {
        short_names: &["pc"],
        generation: true,
        ..KindInfo::of_cluster("scheduling.k8s.io", "PriorityClass", STORAGE, "priorityclass")
    })
};

/// The class of the system that this object would be.
pub(crate) fn of_the_system(name: &str) -> Option<Value> {
    let (name, value, description) = OF_THE_SYSTEM.iter().find(|(n, ..)| *n == name)?;
    Some(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": value, "description": description, "preemptionPolicy": POLICY,
    }))
}

/// `ValidatePriorityClass`.
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (name, value) = (object["metadata"]["name"].as_str().unwrap_or(""), object["value"].as_i64().unwrap_or(0));
    let wanted = OF_THE_SYSTEM.iter().find(|(n, ..)| *n == name).map(|(_, value, _)| *value);
    let known = wanted == Some(value);
    if name.starts_with(PREFIX) && !known {
        let why = match wanted {
            Some(wanted) => format!("value of {name} PriorityClass must be {wanted}"),
            None => format!("{name} is not a known system priority class"),
        };
        let why = format!("priority class names with '{PREFIX}' prefix are reserved for system use only. error: {why}");
        errors.forbidden(&FieldPath::new("metadata").child("name"), &why);
    }
    if !known && value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.forbidden(&FieldPath::new("value"), &why);
    }
    if !matches!(object["preemptionPolicy"].as_str(), Some("Never" | POLICY)) {
        let at = FieldPath::new("preemptionPolicy");
        errors.not_supported(&at, &object["preemptionPolicy"], &["Never", POLICY]);
    }
}

/// Gives a new Pod what its class says: `class` is the one that it names, or, if it names none, the one for all others;
/// `None` when there is no such class.
pub(crate) fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let named = spec["priorityClassName"].as_str().unwrap_or("").to_owned();
    if class.is_none() && !named.is_empty() {
        return Err(format!("no PriorityClass with name {named} was found"));
    }
    let priority = class.map_or(0, |c| c["value"].as_i64().unwrap_or(0));
    let policy = class.and_then(|c| c["preemptionPolicy"].as_str()).unwrap_or(POLICY);
    let given = &spec["priority"];
    if given.as_i64().is_some_and(|g| g != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
        ));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|p| *p != policy) {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        ));
    }
    if let Some(name) = class.and_then(|c| c["metadata"]["name"].as_str()) {
        spec["priorityClassName"] = json!(name);
    }
    spec["priority"] = json!(priority);
    spec["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// Whether it is one that the system needs.
pub(crate) fn is_of_the_system(name: &str) -> bool {
    OF_THE_SYSTEM.iter().any(|(known, ..)| *known == name)
}
