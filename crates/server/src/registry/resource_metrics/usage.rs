//! Computation of usage from two samples, as metrics-server does (`pkg/storage`).

use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Minimum age of a sample before the next one, and minimum window of a rate.
const MIN_WINDOW: SignedDuration = SignedDuration::from_secs(1);
/// Preferred window of a rate (metrics-server's `--metric-resolution`).
const PREFERRED_WINDOW: SignedDuration = SignedDuration::from_secs(15);
/// Maximum window of a rate; older samples are dropped.
const MAX_WINDOW: SignedDuration = SignedDuration::from_mins(2);

/// Cumulative usage of a node or a container at a time (metrics-server's `MetricsPoint`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// When it was measured.
    pub(super) at: Timestamp,
    /// Start time of a container, if it is known.
    pub(super) started: Option<Timestamp>,
    /// CPU time since then, in nanoseconds.
    pub(super) cpu: u64,
    /// The working set, in bytes.
    pub(super) memory: u64,
}

/// Points of containers by name.
pub(super) type Containers = BTreeMap<String, Point>;

/// One scrape of a kubelet.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    /// Time of the request.
    pub(super) at: Timestamp,
    pub(super) node: Option<Point>,
    /// By namespace and name.
    pub(super) pods: BTreeMap<(String, String), Containers>,
}

/// Usage in a time window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// When the window ended.
    pub(super) at: Timestamp,
    pub(super) window: Duration,
    /// Nanocores.
    pub(super) cpu: u64,
    /// The working set, in bytes.
    pub(super) memory: u64,
}

/// Two samples of a node: the latest, and the base of the window.
#[derive(Debug, Clone)]
pub(super) struct SamplePair {
    pub(super) base: Arc<Sample>,
    pub(super) last: Arc<Sample>,
}

impl SamplePair {
    /// Returns the usage of the node.
    pub(super) fn node(&self) -> Option<Usage> {
        since(self.base.node.as_ref()?, self.last.node.as_ref()?)
    }

    /// Returns the usage of a Pod's containers; `None` unless all have a base. Containers whose counter decreased are
    /// omitted.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<BTreeMap<&str, Usage>> {
        let key = (namespace.to_owned(), name.to_owned());
        let (base_containers, last_containers) = (self.base.pods.get(&key), self.last.pods.get(&key)?);
        let mut all = BTreeMap::new();
        for (name, point) in last_containers {
            let base = self.base(base_containers.and_then(|containers| containers.get(name)), point)?;
            if base.at >= point.at {
                return None;
            }
            all.extend(since(&base, point).map(|usage| (name.as_str(), usage)));
        }
        (!all.is_empty()).then_some(all)
    }

    /// Returns the base point of a container: its point in the base sample, or its later start.
    fn base(&self, base: Option<&Point>, last: &Point) -> Option<Point> {
        if let Some(base) = base.filter(|base| last.started.is_none_or(|started| started < base.at)) {
            return Some(*base);
        }
        // The kubelet may notice a container a little later than its start.
        let earliest = self.base.at - MIN_WINDOW;
        let started =
            last.started.filter(|started| *started > earliest && last.at.duration_since(*started) >= MIN_WINDOW)?;
        Some(Point { at: started, started: Some(started), cpu: 0, memory: 0 })
    }
}

/// Returns the usage between two points; `None` when the clock or the counter went backwards.
fn since(base: &Point, last: &Point) -> Option<Usage> {
    let window: Duration = last.at.duration_since(base.at).try_into().ok()?;
    let used = u128::from(last.cpu.checked_sub(base.cpu)?) * 1_000_000_000;
    let cpu = used.checked_div(window.as_nanos())?;
    Some(Usage { at: last.at, window, cpu: u64::try_from(cpu).unwrap_or(u64::MAX), memory: last.memory })
}

/// Recent samples of a node, oldest first.
#[derive(Debug, Default)]
pub(super) struct NodeSamples {
    samples: VecDeque<Arc<Sample>>,
    /// Time of the last failed scrape.
    failed: Option<Timestamp>,
}

/// The next step to get a pair of samples.
#[derive(Debug)]
pub(super) enum NextStep {
    Done(SamplePair),
    Sample,
    Wait(Duration),
    /// The last scrape failed less than [`MIN_WINDOW`] ago.
    Failed,
}

impl NodeSamples {
    /// Returns the next step.
    pub(super) fn next_step(&self, now: Timestamp) -> NextStep {
        let age = |sampled_at: Timestamp| {
            Some(now.duration_since(sampled_at)).filter(|age| !age.is_negative() && *age < MIN_WINDOW)
        };
        if self.failed.and_then(age).is_some() {
            return NextStep::Failed;
        }
        let Some((last, age)) = self.samples.back().and_then(|last| Some((last, age(last.at)?))) else {
            return NextStep::Sample;
        };
        match self.base(last) {
            Some((_, base)) => NextStep::Done(SamplePair { base: Arc::clone(base), last: Arc::clone(last) }),
            None => NextStep::Wait((MIN_WINDOW - age).try_into().unwrap_or_default()),
        }
    }

    /// Returns the base sample: the one whose window is nearest to [`PREFERRED_WINDOW`], within the limits.
    fn base(&self, last: &Sample) -> Option<(usize, &Arc<Sample>)> {
        let apart = |sample: &Sample| last.at.duration_since(sample.at);
        let fits = |(_, sample): &(usize, &Arc<Sample>)| (MIN_WINDOW..=MAX_WINDOW).contains(&apart(sample));
        self.samples.iter().enumerate().filter(fits).min_by_key(|(_, sample)| (apart(sample) - PREFERRED_WINDOW).abs())
    }

    pub(super) fn failed(&mut self, at: Timestamp) {
        self.failed = Some(at);
    }

    /// Adds a sample, and drops those that cannot be a base of later samples: older ones than this sample's base, and newer
    /// ones than this sample, as the clock was set back.
    pub(super) fn add(&mut self, sample: Sample) {
        self.failed = None;
        self.samples.retain(|old| old.at < sample.at && sample.at.duration_since(old.at) <= MAX_WINDOW);
        let obsolete = self.base(&sample).map_or(0, |(index, _)| index);
        self.samples.drain(..obsolete);
        self.samples.push_back(Arc::new(sample));
    }
}

#[cfg(test)]
mod tests;
