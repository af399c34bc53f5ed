//! The stop signal of a container (KEP-4960): which ones there are depends on the system that the Pod names.

use super::text;
use crate::kinds::{FieldErrors, FieldPath};
use serde_json::Value;

/// What Windows knows.
const WINDOWS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// The signal of a container that may have a lifecycle; `path` is the container's.
pub(super) fn of(container: &Value, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(signal) = container["lifecycle"].get("stopSignal") else { return };
    let path = path.child("lifecycle").child("stopSignal");
    let supported = match text(&spec["os"], "name") {
        "" => return errors.forbidden(&path, "may not be set for containers with empty `spec.os.name`"),
        "windows" => WINDOWS.map(str::to_owned).to_vec(),
        "linux" => api::signals::linux(),
        // The name itself is refused where it stands.
        _ => return,
    };
    if !supported.iter().any(|known| signal == known.as_str()) {
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.not_supported(&path, signal, &supported);
    }
}
