//! Metrics of the process, from `/proc/self`.

use super::text::{Kind, MetricsText, seconds};
use std::fs;

/// Clock ticks per second (`USER_HZ`), 100 on all supported architectures.
const TICKS: u64 = 100;

/// Writes the metrics of the process.
pub(super) fn write(text: &mut MetricsText) {
    // The command name may contain spaces and parentheses. Behind it, user and system time are fields 12 and 13.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |index: usize| fields.split_whitespace().nth(index).and_then(|v| v.parse::<u64>().ok());
    if let (Some(user), Some(system)) = (field(11), field(12)) {
        text.family("process_cpu_seconds_total", Kind::Counter, "Time of processors that was used, in seconds.");
        text.sample("", &seconds((user + system) * (1_000_000 / TICKS)));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
    };
    if let Some(resident) = kib("VmRSS") {
        text.family("process_resident_memory_bytes", Kind::Gauge, "Memory that is in use, in bytes.");
        text.sample("", &(resident * 1024));
    }
    if let Some(size) = kib("VmSize") {
        text.family("process_virtual_memory_bytes", Kind::Gauge, "Address space that is taken, in bytes.");
        text.sample("", &(size * 1024));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.family("process_open_fds", Kind::Gauge, "Open files.");
        text.sample("", &open.count());
    }
}
