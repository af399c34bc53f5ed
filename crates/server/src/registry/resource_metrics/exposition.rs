//! Parsing of a kubelet's `/metrics/resource` (Prometheus' text format), as in metrics-server's
//! `pkg/scraper/client/resource/decode.go`.

use super::usage::{Containers, Point, Sample};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};

/// The values of a node or a container that have been parsed so far.
#[derive(Default)]
struct Partial {
    at: Option<Timestamp>,
    started: Option<Timestamp>,
    cpu: u64,
    memory: u64,
}

impl Partial {
    /// Returns `None` unless both CPU and memory are nonzero.
    fn point(&self, requested_at: Timestamp) -> Option<Point> {
        let is_whole = self.cpu > 0 && self.memory > 0;
        let Self { at, started, cpu, memory } = *self;
        is_whole.then(|| Point { at: at.unwrap_or(requested_at), started, cpu, memory })
    }
}

/// A line with a sample.
struct Series<'a> {
    name: &'a str,
    labels: HashMap<&'a str, String>,
    value: f64,
    at: Option<Timestamp>,
}

/// Parses a response. A Pod is omitted when one of its containers is incomplete.
pub(super) fn parse(text: &str, requested_at: Timestamp) -> Sample {
    let mut node = Partial::default();
    let mut pods: HashMap<(String, String), BTreeMap<String, Partial>> = HashMap::new();
    for mut series in text.lines().filter_map(series) {
        let (of_node, metric) = match series.name {
            "node_cpu_usage_seconds_total" => (true, "cpu"),
            "node_memory_working_set_bytes" => (true, "memory"),
            "container_cpu_usage_seconds_total" => (false, "cpu"),
            "container_memory_working_set_bytes" => (false, "memory"),
            "container_start_time_seconds" => (false, "started"),
            _ => continue,
        };
        let partial = if of_node {
            &mut node
        } else {
            let mut label = |name: &str| series.labels.remove(name).unwrap_or_default();
            let (pod, container) = ((label("namespace"), label("pod")), label("container"));
            pods.entry(pod).or_default().entry(container).or_default()
        };
        match metric {
            "cpu" => partial.cpu = round(series.value * 1e9),
            "memory" => partial.memory = round(series.value),
            // The start time does not change the timestamp of the sample.
            _ => {
                partial.started = moment(series.value * 1e3);
                continue;
            }
        }
        partial.at = series.at.or(partial.at);
    }
    let whole_ones = |containers: BTreeMap<String, Partial>| -> Option<Containers> {
        containers.into_iter().map(|(name, partial)| Some((name, partial.point(requested_at)?))).collect()
    };
    let pods = pods.into_iter().filter_map(|(pod, containers)| Some((pod, whole_ones(containers)?))).collect();
    Sample { at: requested_at, node: node.point(requested_at), pods }
}

/// Parses `name{label="value"} value timestamp`; labels and timestamp are optional.
fn series(line: &str) -> Option<Series<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(labels) => self::labels(labels)?,
        None => (HashMap::new(), rest),
    };
    let mut fields = rest.split_ascii_whitespace();
    let value = fields.next()?.parse().ok()?;
    let at = fields.next().and_then(|millis| Timestamp::from_millisecond(millis.parse().ok()?).ok());
    Some(Series { name, labels, value, at })
}

/// Parses the labels up to the closing brace; returns the rest, too.
fn labels(mut text: &str) -> Option<(HashMap<&str, String>, &str)> {
    let mut all = HashMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((all, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), rest.chars());
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => value.push(match chars.next()? {
                    'n' => '\n',
                    escaped => escaped,
                }),
                c => value.push(c),
            }
        }
        all.insert(name.trim_end(), value);
        text = chars.as_str();
    }
}

/// Rounds to an integer; negative values and NaN are 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is nothing below nothing")]
fn round(value: f64) -> u64 {
    value.round() as u64
}

/// Converts Unix milliseconds.
#[expect(clippy::cast_possible_truncation, reason = "saturates, and is refused then")]
fn moment(millis: f64) -> Option<Timestamp> {
    Timestamp::from_millisecond(millis.round() as i64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTED_AT: Timestamp = Timestamp::constant(1_000, 0);

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let sample = parse(text, REQUESTED_AT);
        let format_point = |name: &str, p: &Point| {
            let started = p.started.map_or_else(|| "-".to_owned(), |s| s.as_millisecond().to_string());
            format!("{name} {} {started} {} {}", p.at.as_millisecond(), p.cpu, p.memory)
        };
        let mut all: Vec<String> = sample.node.iter().map(|p| format_point("node", p)).collect();
        for ((namespace, pod), containers) in &sample.pods {
            all.extend(containers.iter().map(|(name, p)| format_point(&format!("{namespace}/{pod}/{name}"), p)));
        }
        assert_eq!(all.join("; "), expected, "{text}");
    }

    #[test]
    fn cpu_memory_and_start_time_are_parsed() {
        let labels = r#"{container="c",pod="p",namespace="n"}"#;
        check(
            &format!(
                "# HELP node_cpu_usage_seconds_total x\nnode_cpu_usage_seconds_total 12.5\nnode_memory_working_set_bytes 4096\n\
                 container_start_time_seconds{labels} 990.25\ncontainer_cpu_usage_seconds_total{labels} 0.000000001\n\
                 container_memory_working_set_bytes{labels} 1024\npod_cpu_usage_seconds_total{{pod=\"p\"}} 7\n# EOF"
            ),
            "node 1000000 - 12500000000 4096; n/p/c 1000000 990250 1 1024",
        );
        // The kubelet's timestamps.
        check(
            "node_cpu_usage_seconds_total 1 999500\nnode_memory_working_set_bytes 1e3 999500",
            "node 999500 - 1000000000 1000",
        );
    }

    #[test]
    fn incomplete_samples_are_omitted() {
        let labels = |name: &str| format!(r#"{{container="{name}",pod="p",namespace="n"}}"#);
        let (a, b) = (labels("a"), labels("b"));
        check("node_cpu_usage_seconds_total 1", "");
        check("node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 0", "");
        let whole = format!("container_cpu_usage_seconds_total{a} 1\ncontainer_memory_working_set_bytes{a} 5\n");
        check(&whole, "n/p/a 1000000 - 1000000000 5");
        check(&format!("{whole}container_start_time_seconds{b} 1\n"), "");
        check(&format!("{whole}container_cpu_usage_seconds_total{b} 1\n"), "");
    }

    #[test]
    fn malformed_metrics_are_parsed_without_panic() {
        for text in [
            "",
            "{",
            "container_cpu_usage_seconds_total{",
            "container_cpu_usage_seconds_total{container=\"",
            "container_cpu_usage_seconds_total{container=\"c\\",
            "container_cpu_usage_seconds_total{} NaN",
            "node_cpu_usage_seconds_total -1\nnode_memory_working_set_bytes +Inf",
            "container_start_time_seconds{} 1e300",
            "node_cpu_usage_seconds_total 1 9999999999999999999999",
            "ü{ü=\"ü\"} ü",
        ] {
            check(text, "");
        }
        let escaped = r#"{container="a\"}\\\n",pod="",namespace=""}"#;
        check(
            &format!("container_cpu_usage_seconds_total{escaped} 1\ncontainer_memory_working_set_bytes{escaped} 1"),
            "//a\"}\\\n 1000000 - 1000000000 1",
        );
    }
}
