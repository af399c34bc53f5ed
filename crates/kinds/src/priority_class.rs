//! PriorityClass (`scheduling.k8s.io/v1`), and its admission of Pods (admission plugin `Priority`).

use super::{
    AGE, Cell, FieldErrors, FieldPath, KindInfo, NAME, boolean, defaulting, enums, generic_kind::GenericKind, integer,
    text,
};
use serde_json::{Value, json};

/// Storage resource of PriorityClasses.
pub const STORAGE: &str = "priorityclasses";

/// System priority classes: name, value and description (`SystemPriorityClasses`).
pub const SYSTEM_PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
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

/// Maximum priority of classes that users define (`HighestUserDefinablePriority`).
const HIGHEST_USER_DEFINABLE_PRIORITY: i64 = 1_000_000_000;
const SYSTEM_PREFIX: &str = "system-";
const DEFAULT_PREEMPTION_POLICY: &str = "PreemptLowerPriority";

pub(super) static PRIORITY_CLASS: GenericKind = GenericKind {
    columns: &[
        NAME,
        integer("Value", Cell::Pointer("/value")),
        boolean("Global-Default", Cell::Pointer("/globalDefault")),
        AGE,
        text("PreemptionPolicy", Cell::Pointer("/preemptionPolicy")),
    ],
    default: |object| {
        defaulting::set_defaults_at(object, "", &[("preemptionPolicy", json!(DEFAULT_PREEMPTION_POLICY))]);
    },
    validate,
    validate_change: |object, old, errors| {
        for field in ["value", "preemptionPolicy"] {
            if object[field] != old[field] {
                errors.forbidden(&FieldPath::new(field), "may not be changed in an update.");
            }
        }
    },
    ..GenericKind::new(&KindInfo {
        short_names: &["pc"],
        generation: true,
        ..KindInfo::cluster_scoped("scheduling.k8s.io", "PriorityClass", STORAGE, "priorityclass")
    })
};

/// Returns the system priority class with a name.
pub fn system_priority_class(name: &str) -> Option<Value> {
    let (name, value, description) = SYSTEM_PRIORITY_CLASSES.iter().find(|(n, ..)| *n == name)?;
    Some(json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
        "value": value, "description": description, "preemptionPolicy": DEFAULT_PREEMPTION_POLICY,
    }))
}

/// Validates a PriorityClass (`ValidatePriorityClass`).
fn validate(object: &Value, errors: &mut FieldErrors) {
    let (name, value) = (object["metadata"]["name"].as_str().unwrap_or(""), object["value"].as_i64().unwrap_or(0));
    let system_value = SYSTEM_PRIORITY_CLASSES.iter().find(|(n, ..)| *n == name).map(|(_, value, _)| *value);
    let is_system_class = system_value == Some(value);
    if name.starts_with(SYSTEM_PREFIX) && !is_system_class {
        let detail = match system_value {
            Some(system_value) => format!("value of {name} PriorityClass must be {system_value}"),
            None => format!("{name} is not a known system priority class"),
        };
        let detail = format!(
            "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {detail}"
        );
        errors.forbidden(&FieldPath::new("metadata").child("name"), &detail);
    }
    if !is_system_class && value > HIGHEST_USER_DEFINABLE_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}");
        errors.forbidden(&FieldPath::new("value"), &detail);
    }
    if !enums::CLASS_PREEMPTION_POLICIES.iter().any(|known| object["preemptionPolicy"] == *known) {
        let at = FieldPath::new("preemptionPolicy");
        errors.not_supported(&at, &object["preemptionPolicy"], enums::CLASS_PREEMPTION_POLICIES);
    }
}

/// Denial of a Pod by the `Priority` admission plugin.
#[derive(Debug, thiserror::Error)]
pub enum PodPriorityError {
    /// The named class does not exist.
    #[error("no PriorityClass with name {0} was found")]
    ClassNotFound(String),
    /// The Pod has another priority than its class.
    #[error(
        "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    Priority {
        /// Priority in the request.
        given: Value,
        /// Priority of the class.
        computed: i64,
    },
    /// The Pod has another preemption policy than its class.
    #[error(
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission controller computed {computed} from the given PriorityClass name"
    )]
    PreemptionPolicy {
        /// Policy in the request.
        given: String,
        /// Policy of the class.
        computed: String,
    },
}

/// Sets the priority and preemption policy of a new Pod. `class` is the one that it names, else the global default; `None` if
/// it does not exist.
pub fn admit(pod: &mut Value, class: Option<&Value>) -> Result<(), PodPriorityError> {
    let spec = &mut pod["spec"];
    let named = spec["priorityClassName"].as_str().unwrap_or("").to_owned();
    if class.is_none() && !named.is_empty() {
        return Err(PodPriorityError::ClassNotFound(named));
    }
    let priority = class.map_or(0, |c| c["value"].as_i64().unwrap_or(0));
    let policy = class.and_then(|c| c["preemptionPolicy"].as_str()).unwrap_or(DEFAULT_PREEMPTION_POLICY);
    let given = &spec["priority"];
    if given.as_i64().is_some_and(|g| g != priority) {
        return Err(PodPriorityError::Priority { given: given.clone(), computed: priority });
    }
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|p| *p != policy) {
        return Err(PodPriorityError::PreemptionPolicy { given: given.to_owned(), computed: policy.to_owned() });
    }
    if let Some(name) = class.and_then(|c| c["metadata"]["name"].as_str()) {
        spec["priorityClassName"] = json!(name);
    }
    spec["priority"] = json!(priority);
    spec["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// Whether a name is that of a system priority class.
pub fn is_system_priority_class(name: &str) -> bool {
    SYSTEM_PRIORITY_CLASSES.iter().any(|(is_system_class, ..)| *is_system_class == name)
}
