//! What a deletion means for dependents: the garbage collector reads it from finalizers.

use crate::{
    kinds::{FieldErrors, FieldPath, KindInfo},
    status::ApiError,
};
use serde_json::{Value, json};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    /// Dependents go first.
    Foreground,
    /// Dependents go afterwards.
    Background,
    /// Dependents stay.
    Orphan,
}

impl Propagation {
    /// As `DeleteOptions` write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// The policy of `DeleteOptions`; `orphanDependents` is its older form.
pub(super) fn parse(policy: Option<&str>, orphan_dependents: Option<bool>) -> Result<Option<Propagation>, ApiError> {
    let (mut errors, path) = (FieldErrors::default(), FieldPath::new("propagationPolicy"));
    let parsed = match (policy, orphan_dependents) {
        (None, None) => None,
        (None, Some(orphan)) => Some(if orphan { Propagation::Orphan } else { Propagation::Background }),
        (Some(policy), orphan) => {
            if orphan.is_some() {
                errors.invalid(&path, &json!(policy), "orphanDependents and deletionPropagation cannot be both set");
            }
            match policy {
                "Foreground" => Some(Propagation::Foreground),
                "Background" => Some(Propagation::Background),
                "Orphan" => Some(Propagation::Orphan),
                _ => {
                    errors.not_supported(&path, &json!(policy), &["Foreground", "Background", "Orphan", "nil"]);
                    None
                }
            }
        }
    };
    if errors.is_empty() { Ok(parsed) } else { Err(ApiError::invalid_options("DeleteOptions", &errors)) }
}

/// What a deletion means that does not say it (`DefaultGarbageCollectionPolicy`).
pub(super) fn default(info: &KindInfo) -> Option<Propagation> {
    info.orphans.then_some(Propagation::Orphan)
}

/// Sets the finalizers that the policy asks for (`deletionFinalizersForGarbageCollection`). Without a policy those that
/// are there stay.
pub(super) fn mark(metadata: &mut Value, policy: Option<Propagation>) {
    let wanted = match policy {
        None => return,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) => None,
    };
    let known: Vec<Value> = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> = known.iter().filter(|f| *f != FOREGROUND && *f != ORPHAN).cloned().collect();
    finalizers.extend(wanted.map(Value::from));
    if finalizers == known {
        return;
    }
    if finalizers.is_empty() {
        metadata.as_object_mut().map(|m| m.remove("finalizers"));
    } else {
        metadata["finalizers"] = Value::from(finalizers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_written_as_a_finalizer() {
        let check = |before: &[&str], policy, after: &[&str]| {
            let mut metadata = json!({"finalizers": before});
            mark(&mut metadata, policy);
            let got: Vec<&str> =
                metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            assert_eq!(got, after, "{before:?} {policy:?}");
        };
        check(&[], Some(Propagation::Foreground), &["foregroundDeletion"]);
        check(&["a/b"], Some(Propagation::Orphan), &["a/b", "orphan"]);
        check(&["foregroundDeletion", "a/b"], Some(Propagation::Orphan), &["a/b", "orphan"]);
        check(&["orphan"], Some(Propagation::Background), &[]);
        check(&["orphan", "a/b"], None, &["orphan", "a/b"]);
    }

    #[test]
    fn both_forms_of_a_policy_are_read_and_not_both_at_once() {
        assert_eq!(parse(None, Some(true)).unwrap(), Some(Propagation::Orphan));
        assert_eq!(parse(None, Some(false)).unwrap(), Some(Propagation::Background));
        assert_eq!(parse(Some("Foreground"), None).unwrap(), Some(Propagation::Foreground));
        assert_eq!(parse(Some("Foreground"), Some(true)).unwrap_err().code, 422);
        assert_eq!(parse(Some("foreground"), None).unwrap_err().code, 422);
    }
}
