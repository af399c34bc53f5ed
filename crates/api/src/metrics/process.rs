//! Metrics of a process, with the names of Prometheus' client libraries.

use super::{Labels, MetricsPage};

/// Clock ticks per second (`USER_HZ`), 100 on all supported architectures.
const TICKS: f64 = 100.0;

/// Adds the metrics of a process, from `/proc/PID/stat` and `/proc/PID/status`, and the number of its open files.
/// Unknown values are omitted.
pub fn add(page: &mut MetricsPage, stat: &str, status: &str, open_files: Option<usize>) {
    let sample = |value: Option<f64>| value.map(|value| (Labels::new(), value));
    page.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", sample(cpu(stat)));
    let resident = bytes(status, "VmRSS");
    page.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", sample(resident));
    let size = bytes(status, "VmSize");
    page.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", sample(size));
    let open_files = open_files.map(|count| count as f64);
    page.gauge("process_open_fds", "Number of open file descriptors.", sample(open_files));
}

/// Returns the CPU time in seconds.
fn cpu(stat: &str) -> Option<f64> {
    // The command name in parentheses may contain any characters. Behind it, user and system time are fields 12 and 13.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map_while(|ticks| ticks.parse::<f64>().ok());
    Some((times.next()? + times.next()?) / TICKS)
}

/// Returns a size, which the kernel reports in KiB.
fn bytes(status: &str, name: &str) -> Option<f64> {
    let size = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(size.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_read_from_the_files_of_the_kernel() {
        let stat = "7 (a) R (b 1) S 1 7 7 0 -1 4194560 100 0 0 0 1234 766 0 0 20 0 1 0 5 6 7";
        let status = "Name:\ta\nVmPeak:\t  9 kB\nVmSize:\t    2048 kB\nVmRSS:\t    1 kB\n";
        let mut page = MetricsPage::default();
        add(&mut page, stat, status, Some(12));
        let text = page.encode();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "process_cpu_seconds_total 20",
            "process_resident_memory_bytes 1024",
            "process_virtual_memory_bytes 2097152",
            "process_open_fds 12",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn unknown_values_are_omitted() {
        let mut page = MetricsPage::default();
        add(&mut page, "7 (a) S 1", "VmRSS:", None);
        assert_eq!(page.encode(), "");
    }
}
