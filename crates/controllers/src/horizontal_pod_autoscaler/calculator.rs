//! Desired replicas of a metric (`replica_calculator.go`, `metrics/utilization.go`).
//!
//! The formula is `ceil(replicas * usage / target)`. Pods without metrics and unready Pods are counted
//! conservatively: they dampen the change and never reverse its direction.

use crate::pod_summary::{MissingRequestError, PodMetricInputs, PodSummary};
use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Default tolerance (`--horizontal-pod-autoscaler-tolerance`).
const TOLERANCE: f64 = 0.1;
/// Time after the start in which CPU usage may be caused by initialization
/// (`--horizontal-pod-autoscaler-cpu-initialization-period`).
const CPU_INITIALIZATION_PERIOD: SignedDuration = SignedDuration::from_mins(5);
/// Time after the start in which a readiness change is the first
/// (`--horizontal-pod-autoscaler-initial-readiness-delay`).
const DELAY_OF_INITIAL_READINESS: SignedDuration = SignedDuration::from_secs(30);

/// Why replicas cannot be computed, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CalculatorError {
    #[error("no pods returned by selector while calculating replica count")]
    NoPods,
    #[error("unable to calculate ready pods: no pods returned by selector while calculating replica count")]
    NoReadyPods,
    #[error("did not receive metrics for targeted pods (pods might be unready)")]
    NoMetrics,
    #[error("no metrics returned matched known pods")]
    NoKnownPods,
    #[error(transparent)]
    MissingRequest(#[from] MissingRequestError),
}

/// Relative deviations from the target within which nothing is scaled.
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

/// A metric value of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// In thousandths.
    pub(super) value: i64,
    pub(super) at: Timestamp,
    /// Duration of the measurement before `at`.
    pub(super) window: SignedDuration,
}

/// Metric values by Pod name.
pub(super) type Samples = BTreeMap<String, Sample>;

/// Input of the calculations.
#[derive(Debug, Clone)]
pub(super) struct Calculator<'a> {
    /// `spec.replicas` of the scale.
    pub(super) replicas: i32,
    /// `status.replicas` of the scale.
    pub(super) current: i32,
    /// The Pods that the scale selects.
    pub(super) pods: &'a [Arc<PodSummary>],
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// Resource usage relative to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) percent: i32,
    /// Average usage of a Pod in thousandths.
    pub(super) average: i64,
}

/// Pods by how they are counted.
#[derive(Debug, Default)]
struct PodGroups<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

/// Ratio of usage to target, and the value for the status.
struct UsageRatio<T> {
    ratio: f64,
    shown: T,
}

type Values<'a> = BTreeMap<&'a str, i64>;

impl Calculator<'_> {
    /// Computes replicas from the usage relative to requests (`GetResourceReplicas`).
    pub(super) fn by_utilization(
        &self,
        samples: &Samples,
        target_utilization: i32,
        resource: &str,
        container: Option<&str>,
    ) -> Result<(i32, Utilization), CalculatorError> {
        let groups = self.group(samples, resource == "cpu")?;
        let values = groups.counted(samples)?;
        let mut requests = Values::new();
        for pod in self.pods {
            requests.insert(&pod.name, pod.metric_inputs.request(&pod.name, container, resource)?);
        }
        let compare = |values: &Values<'_>| utilization(values, &requests, target_utilization);
        // A Pod without metrics may use its whole request, or the target if that is more.
        let highest = i128::from(target_utilization.max(100));
        let full =
            |pod: &str| narrow(i128::from(requests.get(pod).copied().unwrap_or(0)).saturating_mul(highest) / 100);
        self.replicas_with_missing_pods(&groups, values, compare, full)
    }

    /// Computes replicas from an average value (`GetRawResourceReplicas`, `GetMetricReplicas`); `cpu` enables the
    /// handling of Pods that are starting.
    pub(super) fn by_average(&self, samples: &Samples, target: i64, cpu: bool) -> Result<(i32, i64), CalculatorError> {
        let groups = self.group(samples, cpu)?;
        let values = groups.counted(samples)?;
        let compare = |values: &Values<'_>| {
            let average = narrow(sum(values.values().copied()) / count(values.len()));
            Ok(UsageRatio { ratio: average as f64 / target as f64, shown: average })
        };
        self.replicas_with_missing_pods(&groups, values, compare, |_| target)
    }

    /// Computes replicas from one value (`GetObjectMetricReplicas`, `GetExternalMetricReplicas`).
    pub(super) fn by_value(&self, usage: i64, target: i64) -> Result<i32, CalculatorError> {
        let ratio = usage as f64 / target as f64;
        if self.replicas == 0 {
            // Scaling from and to zero does not depend on ready Pods.
            return Ok(ceil(ratio));
        }
        if self.tolerances.cover(ratio) {
            return Ok(self.replicas);
        }
        if self.pods.is_empty() {
            return Err(CalculatorError::NoReadyPods);
        }
        let ready = self.pods.iter().filter(|pod| pod.phase == "Running" && pod.ready.is_some()).count();
        Ok(ceil(ratio * ready as f64))
    }

    /// Computes replicas from one value divided by the current replicas (`Get…PerPodMetricReplicas`); returns the
    /// value per Pod, too.
    pub(super) fn by_value_per_pod(&self, usage: i64, target: i64) -> (i32, i64) {
        let ratio = usage as f64 / (target as f64 * f64::from(self.current));
        let replicas = if self.tolerances.cover(ratio) { self.current } else { ceil(usage as f64 / target as f64) };
        let share = match i64::from(self.current) {
            0 => 0,
            current => narrow((i128::from(usage) + i128::from(current) - 1).div_euclid(i128::from(current))),
        };
        (replicas, share)
    }

    /// Groups Pods (`groupPods`). CPU usage of Pods that are starting is not representative.
    fn group(&self, samples: &Samples, cpu: bool) -> Result<PodGroups<'_>, CalculatorError> {
        let mut groups = PodGroups::default();
        for pod in self.pods {
            let name = pod.name.as_str();
            if pod.terminating || pod.phase == "Failed" {
                groups.ignored.insert(name);
            } else if pod.phase == "Pending" {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(name) {
                if cpu && is_unready(&pod.metric_inputs, sample, self.now) {
                    groups.unready.insert(name);
                } else {
                    groups.ready = groups.ready.saturating_add(1);
                }
            } else {
                groups.missing.insert(name);
            }
        }
        if self.pods.is_empty() { Err(CalculatorError::NoPods) } else { Ok(groups) }
    }

    /// Computes replicas without Pods that lack metrics, then again with conservative values for them.
    fn replicas_with_missing_pods<'a, T>(
        &self,
        groups: &PodGroups<'a>,
        mut values: Values<'a>,
        compare: impl Fn(&Values<'_>) -> Result<UsageRatio<T>, CalculatorError>,
        full: impl Fn(&str) -> i64,
    ) -> Result<(i32, T), CalculatorError> {
        let first = compare(&values)?;
        let with_unready = !groups.unready.is_empty() && first.ratio > 1.0;
        if !with_unready && groups.missing.is_empty() {
            let close = self.tolerances.cover(first.ratio);
            let replicas = if close { self.replicas } else { ceil(first.ratio * groups.ready as f64) };
            return Ok((replicas, first.shown));
        }
        if first.ratio < 1.0 {
            values.extend(groups.missing.iter().map(|pod| (*pod, full(pod))));
        } else if first.ratio > 1.0 {
            values.extend(groups.missing.iter().map(|pod| (*pod, 0)));
        }
        if with_unready {
            values.extend(groups.unready.iter().map(|pod| (*pod, 0)));
        }
        let again = compare(&values)?.ratio;
        let turned = (first.ratio < 1.0 && again > 1.0) || (first.ratio > 1.0 && again < 1.0);
        let replicas = ceil(again * values.len() as f64);
        let other_way = (again < 1.0 && replicas > self.replicas) || (again > 1.0 && replicas < self.replicas);
        let stays = self.tolerances.cover(again) || turned || other_way;
        Ok((if stays { self.replicas } else { replicas }, first.shown))
    }
}

impl PodGroups<'_> {
    /// Returns the values of the Pods that count.
    fn counted<'s>(&self, samples: &'s Samples) -> Result<Values<'s>, CalculatorError> {
        let counts = |name: &str| !self.ignored.contains(name) && !self.unready.contains(name);
        let counted = samples.iter().filter(|(name, _)| counts(name));
        let values: Values<'s> = counted.map(|(name, sample)| (name.as_str(), sample.value)).collect();
        if values.is_empty() {
            return Err(CalculatorError::NoMetrics);
        }
        Ok(values)
    }
}

fn is_unready(pod: &PodMetricInputs, sample: &Sample, now: Timestamp) -> bool {
    let (Some(started), Some(ready)) = (pod.started, pod.readiness) else { return true };
    if later(started, CPU_INITIALIZATION_PERIOD) > now {
        // Usage before the Pod became ready belongs to its start.
        return ready.is_false || sample.at < later(ready.since, sample.window);
    }
    // The Pod was never ready.
    ready.is_false && later(started, DELAY_OF_INITIAL_READINESS) > ready.since
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns the ratio of usage to requests (`GetResourceUtilizationRatio`).
fn utilization(
    values: &Values<'_>,
    requests: &Values<'_>,
    target_utilization: i32,
) -> Result<UsageRatio<Utilization>, CalculatorError> {
    // Values without a request belong to other Pods.
    let known = || values.iter().filter_map(|(pod, value)| Some((*value, *requests.get(pod)?)));
    let (used, requested) = (sum(known().map(|(value, _)| value)), sum(known().map(|(_, request)| request)));
    if requested == 0 {
        return Err(CalculatorError::NoKnownPods);
    }
    let percent = used.saturating_mul(100) / requested;
    let percent = i32::try_from(percent).unwrap_or(if percent < 0 { i32::MIN } else { i32::MAX });
    let average = narrow(used / count(known().count()));
    Ok(UsageRatio {
        ratio: f64::from(percent) / f64::from(target_utilization),
        shown: Utilization { percent, average },
    })
}

fn sum(values: impl Iterator<Item = i64>) -> i128 {
    values.fold(0, |sum, value| sum.saturating_add(i128::from(value)))
}

/// Returns a divisor that is not 0.
fn count(number: usize) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX).max(1)
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Rounds up to a number of replicas, saturating.
#[expect(clippy::cast_possible_truncation, reason = "what does not fit becomes the largest number")]
pub(super) fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}
