//! Metrics of the process, from `/proc/self`.

use api::metrics::{MetricsPage, process};
use std::fs;

/// Adds the metrics of the process.
pub(super) fn add(page: &mut MetricsPage) {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
    let open_files = fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    process::add(page, &read("stat"), &read("status"), open_files);
}
