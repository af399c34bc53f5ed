//! Metrics in Prometheus' text format, as the API server and the kubelet serve them.
//!
//! Own code: the crate `prometheus-client` writes OpenMetrics, where the metadata of a counter has another name than its
//! samples. The crate `prometheus` hashes label values without separators, so different series can become one.

pub mod process;

use jiff::Timestamp;
use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// Label names and values, in any order.
pub type Labels = Vec<(&'static str, String)>;

/// Content type of [`MetricsPage::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The values of a histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistogramSample {
    /// Upper bounds, and the number of observations that do not exceed them.
    pub buckets: Vec<(f64, u64)>,
    /// Sum of the observations.
    pub sum: f64,
    /// Number of observations.
    pub count: u64,
}

impl HistogramSample {
    /// Creates a histogram without observations.
    #[must_use]
    pub fn new(bounds: &[f64]) -> Self {
        Self { buckets: bounds.iter().map(|bound| (*bound, 0)).collect(), sum: 0.0, count: 0 }
    }

    /// Adds an observation.
    pub fn observe(&mut self, value: f64) {
        self.buckets.iter_mut().filter(|(bound, _)| value <= *bound).for_each(|(_, count)| *count += 1);
        self.sum += value;
        self.count += 1;
    }
}

/// The metric families of one response, in the order in which they are added. As in upstream's client library, samples and
/// labels are sorted, and a family without samples is omitted.
#[derive(Debug, Default)]
pub struct MetricsPage(Vec<Family>);

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: String,
    samples: Samples,
    timestamp: Option<Timestamp>,
}

/// Samples by their sorted labels. A series has one value: the last one.
#[derive(Debug)]
enum Samples {
    Counter(BTreeMap<Labels, f64>),
    Gauge(BTreeMap<Labels, f64>),
    Histogram(BTreeMap<Labels, HistogramSample>),
}

impl MetricsPage {
    /// Adds a counter.
    pub fn counter(&mut self, name: &'static str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) {
        self.add(name, help, Samples::Counter(sorted(samples)));
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &'static str, help: &str, samples: impl IntoIterator<Item = (Labels, f64)>) {
        self.add(name, help, Samples::Gauge(sorted(samples)));
    }

    /// Adds a histogram.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, HistogramSample)>,
    ) {
        self.add(name, help, Samples::Histogram(sorted(samples)));
    }

    fn add(&mut self, name: &'static str, help: &str, samples: Samples) {
        self.0.push(Family { name, help: help.to_owned(), samples, timestamp: None });
    }

    /// Adds a timestamp to the samples that have been added so far.
    pub fn set_timestamp(&mut self, at: Timestamp) {
        self.0.iter_mut().for_each(|family| family.timestamp = Some(at));
    }

    /// Encodes the page; its content type is [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.0.iter().try_for_each(|family| family.encode(&mut text));
        text
    }
}

fn sorted<T>(samples: impl IntoIterator<Item = (Labels, T)>) -> BTreeMap<Labels, T> {
    let sorted = |(mut labels, value): (Labels, T)| {
        labels.sort_unstable();
        (labels, value)
    };
    samples.into_iter().map(sorted).collect()
}

impl Family {
    fn encode(&self, text: &mut String) -> fmt::Result {
        let name = self.name;
        let (kind, is_empty) = match &self.samples {
            Samples::Counter(all) => ("counter", all.is_empty()),
            Samples::Gauge(all) => ("gauge", all.is_empty()),
            Samples::Histogram(all) => ("histogram", all.is_empty()),
        };
        if is_empty {
            return Ok(());
        }
        let help = self.help.replace('\\', "\\\\").replace('\n', "\\n");
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
        match &self.samples {
            Samples::Counter(all) | Samples::Gauge(all) => {
                all.iter().try_for_each(|(labels, value)| self.sample(text, "", labels, None, *value))
            }
            Samples::Histogram(all) => all.iter().try_for_each(|(labels, value)| self.histogram(text, labels, value)),
        }
    }

    fn histogram(&self, text: &mut String, labels: &Labels, sample: &HistogramSample) -> fmt::Result {
        let count = sample.count as f64;
        let buckets = sample.buckets.iter().map(|(bound, count)| (*bound, *count as f64));
        for (bound, count) in buckets.chain([(f64::INFINITY, count)]) {
            self.sample(text, "_bucket", labels, Some(bound), count)?;
        }
        self.sample(text, "_sum", labels, None, sample.sum)?;
        self.sample(text, "_count", labels, None, count)
    }

    /// Writes a line. A bucket has its upper bound as the last label.
    fn sample(&self, text: &mut String, suffix: &str, labels: &Labels, bound: Option<f64>, value: f64) -> fmt::Result {
        write!(text, "{}{suffix}", self.name)?;
        let mut separator = '{';
        for (name, value) in labels {
            write!(text, "{separator}{name}=\"{}\"", Escaped(value))?;
            separator = ',';
        }
        if let Some(bound) = bound {
            write!(text, "{separator}le=\"{}\"", Number(bound))?;
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        write!(text, " {}", Number(value))?;
        if let Some(at) = self.timestamp {
            write!(text, " {}", at.as_millisecond())?;
        }
        text.write_char('\n')
    }
}

/// A label value, which clients may have chosen.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            number => number.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(page: &MetricsPage, expected: &str) {
        assert_eq!(page.encode(), expected);
    }

    #[test]
    fn families_are_encoded_as_upstream() {
        let mut page = MetricsPage::default();
        page.counter("a_total", "A.", [(vec![("z", "1".to_owned()), ("b", "2".to_owned())], 7.0)]);
        page.gauge("b_bytes", "B.", [(Labels::new(), 2.5)]);
        page.gauge("c", "C.", []);
        let mut sample = HistogramSample::new(&[0.005, 1.0]);
        [0.005, 0.75, 1.5, 1.0].into_iter().for_each(|value| sample.observe(value));
        page.histogram("d_seconds", "D.", [(vec![("z", "1".to_owned())], sample)]);
        let expected = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"2\",z=\"1\"} 7\n\
            # HELP b_bytes B.\n# TYPE b_bytes gauge\nb_bytes 2.5\n\
            # HELP d_seconds D.\n# TYPE d_seconds histogram\n\
            d_seconds_bucket{z=\"1\",le=\"0.005\"} 1\nd_seconds_bucket{z=\"1\",le=\"1\"} 3\n\
            d_seconds_bucket{z=\"1\",le=\"+Inf\"} 4\nd_seconds_sum{z=\"1\"} 3.255\nd_seconds_count{z=\"1\"} 4\n";
        check(&page, expected);
    }

    #[test]
    fn label_values_and_help_are_escaped() {
        let mut page = MetricsPage::default();
        page.gauge("a", "A \\\n\"A\".", [(vec![("name", "a\\b\"c\"\nd\u{e4}".to_owned())], 1.0)]);
        let expected = "# HELP a A \\\\\\n\"A\".\n# TYPE a gauge\na{name=\"a\\\\b\\\"c\\\"\\nd\u{e4}\"} 1\n";
        check(&page, expected);
    }

    #[test]
    fn samples_are_sorted_and_unique() {
        let mut page = MetricsPage::default();
        let labels = |value: &str| vec![("x", value.to_owned())];
        page.gauge("a", "A.", [(labels("2"), 1.0), (labels("1"), 2.0), (labels("2"), 3.0)]);
        let expected = "# HELP a A.\n# TYPE a gauge\na{x=\"1\"} 2\na{x=\"2\"} 3\n";
        check(&page, expected);
    }

    #[test]
    fn timestamp_is_added_to_present_samples() {
        let mut page = MetricsPage::default();
        page.gauge("a", "A.", [(Labels::new(), 1_700_000_000.0)]);
        page.set_timestamp(Timestamp::constant(12, 500_000_000));
        page.gauge("b", "B.", [(Labels::new(), 1.0)]);
        check(&page, "# HELP a A.\n# TYPE a gauge\na 1700000000 12500\n# HELP b B.\n# TYPE b gauge\nb 1\n");
    }

    #[test]
    fn values_are_formatted_as_upstream() {
        for (value, expected) in [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (1e-9, "0.000000001"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Number(value).to_string(), expected);
        }
    }
}
