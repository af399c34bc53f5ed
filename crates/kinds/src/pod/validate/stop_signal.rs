//! Validation of stop signals (KEP-4960), which depend on the Pod's operating system.

use crate::{FieldErrors, field_cursor::FieldCursor};

/// Stop signals of Windows containers.
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// Validates the stop signal of a container (`validateStopSignal`).
pub(super) fn validate_stop_signal(
    container: &FieldCursor<'_, '_>,
    spec: &FieldCursor<'_, '_>,
    errors: &mut FieldErrors,
) {
    let lifecycle = container.at("lifecycle");
    let signal = lifecycle.at("stopSignal");
    if signal.is_null() {
        return;
    }
    match spec.at("os").at("name").text() {
        "" => signal.forbidden("may not be set for containers with empty `spec.os.name`", errors),
        "windows" => signal.supported(&WINDOWS_SIGNALS, errors),
        "linux" => {
            let supported = api::signals::linux_signals();
            signal.supported(&supported.iter().map(String::as_str).collect::<Vec<_>>(), errors);
        }
        // Validation of `spec.os.name` rejects other names.
        _ => {}
    }
}
