//! Deletion propagation to dependents: stored as finalizers, which the garbage collector reads.

use errors::ApiError;
use kinds::{FieldErrors, FieldPath, KindInfo};
use serde_json::{Value, json};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    /// Dependents are deleted first.
    Foreground,
    /// Dependents are deleted afterwards.
    Background,
    /// Dependents are kept.
    Orphan,
}

impl Propagation {
    /// The policy's name in `DeleteOptions`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Foreground => "Foreground",
            Self::Background => "Background",
            Self::Orphan => "Orphan",
        }
    }
}

/// Parses the policy of `DeleteOptions`; `orphanDependents` is the deprecated form.
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

/// The policy of deletions that set none (`DefaultGarbageCollectionPolicy`).
pub(super) fn default(info: &KindInfo) -> Option<Propagation> {
    info.orphans_by_default.then_some(Propagation::Orphan)
}

/// Sets the finalizers of a policy (`deletionFinalizersForGarbageCollection`). Without a policy the existing ones are kept.
pub(super) fn set_finalizers(metadata: &mut Value, policy: Option<Propagation>) {
    let finalizer = match policy {
        None => return,
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) => None,
    };
    let existing: Vec<Value> = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> = existing.iter().filter(|f| *f != FOREGROUND && *f != ORPHAN).cloned().collect();
    finalizers.extend(finalizer.map(Value::from));
    if finalizers == existing {
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
    fn propagation_policy_becomes_finalizer() {
        let check = |before: &[&str], policy, after: &[&str]| {
            let mut metadata = json!({"finalizers": before});
            set_finalizers(&mut metadata, policy);
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
    fn propagation_policy_excludes_orphan_dependents() {
        assert_eq!(parse(None, Some(true)).unwrap(), Some(Propagation::Orphan));
        assert_eq!(parse(None, Some(false)).unwrap(), Some(Propagation::Background));
        assert_eq!(parse(Some("Foreground"), None).unwrap(), Some(Propagation::Foreground));
        assert_eq!(parse(Some("Foreground"), Some(true)).unwrap_err().code, 422);
        assert_eq!(parse(Some("foreground"), None).unwrap_err().code, 422);
    }
}
