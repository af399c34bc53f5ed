//! How many replicas a metric calls for (`replica_calculator.go`, `metrics/utilization.go`).
//!
//! The rule is `ceil(replicas * measured / wanted)`. Pods of which nothing was measured, and those that are not ready yet,
//! are counted so that they rather keep the number as it is: none is ever scaled in the other direction for them.

use super::pod_metric_inputs::PodMetricInputs;
use crate::pod_summary::PodSummary;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Upstream's `--horizontal-pod-autoscaler-tolerance`.
const TOLERANCE: f64 = 0.1;
/// `--horizontal-pod-autoscaler-cpu-initialization-period`: so long what a Pod uses may be what its start takes.
const CPU_INITIALIZATION: SignedDuration = SignedDuration::from_mins(5);
/// `--horizontal-pod-autoscaler-initial-readiness-delay`: one that is not ready after that was ready before.
const INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// How far from 1 a ratio may be before anything is scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Default for Tolerances {
    fn default() -> Self {
        Self { down: TOLERANCE, up: TOLERANCE }
    }
}

impl Tolerances {
    fn cover(&self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What was measured of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// In thousandths.
    pub(super) value: i64,
    pub(super) at: Timestamp,
    /// For how long before that it was measured.
    pub(super) window: SignedDuration,
}

/// What was measured, by the Pods' names.
pub(super) type Samples = BTreeMap<String, Sample>;

/// What is known when replicas are counted.
#[derive(Debug, Clone)]
pub(super) struct Calculator<'a> {
    /// How many there should be.
    pub(super) replicas: i32,
    /// How many there are.
    pub(super) current: i32,
    /// Those that the scale selects.
    pub(super) pods: &'a [Arc<PodSummary>],
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// What is used of what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) percent: i32,
    /// Thousandths for each Pod.
    pub(super) average: i64,
}

/// Which Pods count, and how.
#[derive(Debug, Default)]
struct Grouped<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

/// What is measured in comparison with what is wanted, and how that is shown.
struct Compared<T> {
    ratio: f64,
    shown: T,
}

type Values<'a> = BTreeMap<&'a str, i64>;

impl Calculator<'_> {
    /// By what Pods use of what they ask for (`GetResourceReplicas`).
    pub(super) fn by_utilization(
        &self,
        samples: &Samples,
        wanted: i32,
        resource: &str,
        container: Option<&str>,
    ) -> Result<(i32, Utilization), String> {
        let grouped = self.group(samples, resource == "cpu")?;
        let values = grouped.counted(samples)?;
        let mut requests = Values::new();
        for pod in self.pods {
            requests.insert(&pod.name, pod.measured.request(&pod.name, container, resource)?);
        }
        let compare = |values: &Values<'_>| utilization(values, &requests, wanted);
        // One of which nothing is known may use all it asks for, or what it may use if that is more.
        let most = i128::from(wanted.max(100));
        let full = |pod: &str| narrow(i128::from(requests.get(pod).copied().unwrap_or(0)).saturating_mul(most) / 100);
        self.settle(&grouped, values, compare, full)
    }

    /// By an average for each Pod (`GetRawResourceReplicas`, `GetMetricReplicas`); `cpu` is whether it is processor time.
    pub(super) fn by_average(&self, samples: &Samples, wanted: i64, cpu: bool) -> Result<(i32, i64), String> {
        let grouped = self.group(samples, cpu)?;
        let values = grouped.counted(samples)?;
        let compare = |values: &Values<'_>| {
            let average = narrow(sum(values.values().copied()) / count(values.len()));
            Ok(Compared { ratio: average as f64 / wanted as f64, shown: average })
        };
        self.settle(&grouped, values, compare, |_| wanted)
    }

    /// By one value for all (`GetObjectMetricReplicas`, `GetExternalMetricReplicas`).
    pub(super) fn by_value(&self, usage: i64, wanted: i64) -> Result<i32, String> {
        let ratio = usage as f64 / wanted as f64;
        if self.replicas == 0 {
            // From nothing, and back to it, without Pods that are ready.
            return Ok(ceil(ratio));
        }
        if self.tolerances.cover(ratio) {
            return Ok(self.replicas);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let ready = self.pods.iter().filter(|pod| pod.phase == "Running" && pod.ready.is_some()).count();
        Ok(ceil(ratio * ready as f64))
    }

    /// By one value for all that is divided among those that there are (`Get…PerPodMetricReplicas`); with what each has.
    pub(super) fn by_share(&self, usage: i64, wanted: i64) -> (i32, i64) {
        let ratio = usage as f64 / (wanted as f64 * f64::from(self.current));
        let replicas = if self.tolerances.cover(ratio) { self.current } else { ceil(usage as f64 / wanted as f64) };
        let share = match i64::from(self.current) {
            0 => 0,
            current => narrow((i128::from(usage) + i128::from(current) - 1).div_euclid(i128::from(current))),
        };
        (replicas, share)
    }

    /// `groupPods`: what starts uses more processor time than it will, so that it is not counted yet.
    fn group(&self, samples: &Samples, cpu: bool) -> Result<Grouped<'_>, String> {
        let mut grouped = Grouped::default();
        for pod in self.pods {
            let name = pod.name.as_str();
            if pod.terminating || pod.phase == "Failed" {
                grouped.ignored.insert(name);
            } else if pod.phase == "Pending" {
                grouped.unready.insert(name);
            } else if let Some(sample) = samples.get(name) {
                if cpu && is_unready(&pod.measured, sample, self.now) {
                    grouped.unready.insert(name);
                } else {
                    grouped.ready = grouped.ready.saturating_add(1);
                }
            } else {
                grouped.missing.insert(name);
            }
        }
        if self.pods.is_empty() { Err(NO_PODS.to_owned()) } else { Ok(grouped) }
    }

    /// First without those of which nothing is known, then with them, as what keeps the number rather as it is.
    fn settle<'a, T>(
        &self,
        grouped: &Grouped<'a>,
        mut values: Values<'a>,
        compare: impl Fn(&Values<'_>) -> Result<Compared<T>, String>,
        full: impl Fn(&str) -> i64,
    ) -> Result<(i32, T), String> {
        let first = compare(&values)?;
        let with_unready = !grouped.unready.is_empty() && first.ratio > 1.0;
        if !with_unready && grouped.missing.is_empty() {
            let close = self.tolerances.cover(first.ratio);
            let replicas = if close { self.replicas } else { ceil(first.ratio * grouped.ready as f64) };
            return Ok((replicas, first.shown));
        }
        if first.ratio < 1.0 {
            values.extend(grouped.missing.iter().map(|pod| (*pod, full(pod))));
        } else if first.ratio > 1.0 {
            values.extend(grouped.missing.iter().map(|pod| (*pod, 0)));
        }
        if with_unready {
            values.extend(grouped.unready.iter().map(|pod| (*pod, 0)));
        }
        let again = compare(&values)?.ratio;
        let turned = (first.ratio < 1.0 && again > 1.0) || (first.ratio > 1.0 && again < 1.0);
        let replicas = ceil(again * values.len() as f64);
        let other_way = (again < 1.0 && replicas > self.replicas) || (again > 1.0 && replicas < self.replicas);
        let stays = self.tolerances.cover(again) || turned || other_way;
        Ok((if stays { self.replicas } else { replicas }, first.shown))
    }
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";

impl Grouped<'_> {
    /// What was measured of those that count.
    fn counted<'s>(&self, samples: &'s Samples) -> Result<Values<'s>, String> {
        let counts = |name: &str| !self.ignored.contains(name) && !self.unready.contains(name);
        let counted = samples.iter().filter(|(name, _)| counts(name));
        let values: Values<'s> = counted.map(|(name, sample)| (name.as_str(), sample.value)).collect();
        if values.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
        }
        Ok(values)
    }
}

fn is_unready(pod: &PodMetricInputs, sample: &Sample, now: Timestamp) -> bool {
    let (Some(started), Some(ready)) = (pod.started, pod.readiness) else { return true };
    if later(started, CPU_INITIALIZATION) > now {
        // What was measured before it became ready is of its start.
        return ready.is_false || sample.at < later(ready.since, sample.window);
    }
    // It never was ready.
    ready.is_false && later(started, INITIAL_READINESS) > ready.since
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// `GetResourceUtilizationRatio`.
fn utilization(values: &Values<'_>, requests: &Values<'_>, wanted: i32) -> Result<Compared<Utilization>, String> {
    // What nobody asks for is of Pods that are not the scale's.
    let known = || values.iter().filter_map(|(pod, value)| Some((*value, *requests.get(pod)?)));
    let (used, asked) = (sum(known().map(|(value, _)| value)), sum(known().map(|(_, request)| request)));
    if asked == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = used.saturating_mul(100) / asked;
    let percent = i32::try_from(percent).unwrap_or(if percent < 0 { i32::MIN } else { i32::MAX });
    let average = narrow(used / count(known().count()));
    Ok(Compared { ratio: f64::from(percent) / f64::from(wanted), shown: Utilization { percent, average } })
}

fn sum(values: impl Iterator<Item = i64>) -> i128 {
    values.fold(0, |sum, value| sum.saturating_add(i128::from(value)))
}

/// How many to divide by.
fn count(number: usize) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX).max(1)
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// That many replicas, and no part of one; as many as there can be, where it is more.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit becomes the largest number")]
pub(super) fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}
