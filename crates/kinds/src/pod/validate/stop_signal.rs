//! Validation of stop signals (KEP-4960), which depend on the Pod's operating system.

use super::text;
use crate::{FieldErrors, FieldPath};
use serde_json::Value;

/// Stop signals of Windows containers.
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// Validates the stop signal of a container at `path` (`validateStopSignal`).
pub(super) fn validate_stop_signal(container: &Value, spec: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(signal) = container["lifecycle"].get("stopSignal") else { return };
    let path = path.child("lifecycle").child("stopSignal");
    let supported = match text(&spec["os"], "name") {
        "" => return errors.forbidden(&path, "may not be set for containers with empty `spec.os.name`"),
        "windows" => WINDOWS_SIGNALS.map(str::to_owned).to_vec(),
        "linux" => api::signals::linux_signals(),
        // Validation of `spec.os.name` rejects other names.
        _ => return,
    };
    if !supported.iter().any(|known| signal == known.as_str()) {
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.not_supported(&path, signal, &supported);
    }
}
