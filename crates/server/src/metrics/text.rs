//! Prometheus' text format.

use std::fmt::{Display, Write as _};

/// Type of a metric family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Metrics in text format, and the name of the current family.
#[derive(Default)]
pub(super) struct MetricsText(pub(super) String, &'static str);

impl MetricsText {
    /// Begins a family.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.1 = name;
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes a sample of the current family.
    pub(super) fn sample(&mut self, labels: &str, value: &impl Display) {
        self.sample_with_suffix("", labels, value);
    }

    /// Writes a sample whose name has a suffix.
    pub(super) fn sample_with_suffix(&mut self, suffix: &str, labels: &str, value: &impl Display) {
        let name = self.1;
        let _ = match labels {
            "" => writeln!(self.0, "{name}{suffix} {value}"),
            labels => writeln!(self.0, "{name}{suffix}{{{labels}}} {value}"),
        };
    }
}

/// Formats microseconds as seconds.
pub(super) fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_has_help_and_type_before_samples() {
        let mut text = MetricsText::default();
        text.family("a_seconds", Kind::Histogram, "Seconds.");
        text.sample_with_suffix("_sum", "x=\"y\"", &seconds(1_000_250));
        text.family("b", Kind::Gauge, "B.");
        text.sample("", &7);
        let expected = "# HELP a_seconds Seconds.\n# TYPE a_seconds histogram\na_seconds_sum{x=\"y\"} 1.000250\n# HELP b B.\n# TYPE b gauge\nb 7\n";
        assert_eq!(text.0, expected);
    }
}
