//! What is used: made of two samples, as metrics-server does (`pkg/storage`). Pure.

use jiff::{SignedDuration, Timestamp};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// A sample that is no older is not taken again; two that are no further apart tell nothing of a rate.
const SHORTEST: SignedDuration = SignedDuration::from_secs(1);
/// So far apart two samples should be: metrics-server's `--metric-resolution`.
const WANTED: SignedDuration = SignedDuration::from_secs(15);
/// What is older is forgotten.
const LONGEST: SignedDuration = SignedDuration::from_mins(2);

/// What a node or a container has used up to a moment (metrics-server's `MetricsPoint`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// When it was measured.
    pub(super) at: Timestamp,
    /// When a container was started, if that is known.
    pub(super) started: Option<Timestamp>,
    /// CPU time since then, in nanoseconds.
    pub(super) cpu: u64,
    /// The working set, in bytes.
    pub(super) memory: u64,
}

/// Containers by their names.
pub(super) type Containers = BTreeMap<String, Point>;

/// All that a kubelet says at once.
#[derive(Debug, PartialEq)]
pub(super) struct Sample {
    /// When it was asked.
    pub(super) at: Timestamp,
    pub(super) node: Option<Point>,
    /// By namespace and name.
    pub(super) pods: BTreeMap<(String, String), Containers>,
}

/// What is used in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// When the window ended.
    pub(super) at: Timestamp,
    pub(super) window: Duration,
    /// Billionths of a CPU.
    pub(super) cpu: u64,
    /// The working set, in bytes.
    pub(super) memory: u64,
}

/// Two samples of a node: the newest, and the one that it is compared with.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub(super) base: Arc<Sample>,
    pub(super) last: Arc<Sample>,
}

impl Pair {
    /// What the node uses.
    pub(super) fn node(&self) -> Option<Usage> {
        since(self.base.node.as_ref()?, self.last.node.as_ref()?)
    }

    /// What the containers of a Pod use; nothing when that cannot be said of all of them, but for those that have used
    /// less than before: nobody knows what these are.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<BTreeMap<&str, Usage>> {
        let key = (namespace.to_owned(), name.to_owned());
        let (before, now) = (self.base.pods.get(&key), self.last.pods.get(&key)?);
        let mut all = BTreeMap::new();
        for (name, point) in now {
            let base = self.base(before.and_then(|containers| containers.get(name)), point)?;
            if base.at >= point.at {
                return None;
            }
            all.extend(since(&base, point).map(|usage| (name.as_str(), usage)));
        }
        (!all.is_empty()).then_some(all)
    }

    /// What a container is compared with: itself at the base, or its start if that came later.
    fn base(&self, before: Option<&Point>, now: &Point) -> Option<Point> {
        if let Some(before) = before.filter(|before| now.started.is_none_or(|started| started < before.at)) {
            return Some(*before);
        }
        // The kubelet may have heard of it a little later than it was started.
        let earliest = self.base.at - SHORTEST;
        let started =
            now.started.filter(|started| *started > earliest && now.at.duration_since(*started) >= SHORTEST)?;
        Some(Point { at: started, started: Some(started), cpu: 0, memory: 0 })
    }
}

/// What was used between two points; nothing when the clock or the counter went backwards.
fn since(base: &Point, last: &Point) -> Option<Usage> {
    let window: Duration = last.at.duration_since(base.at).try_into().ok()?;
    let used = u128::from(last.cpu.checked_sub(base.cpu)?) * 1_000_000_000;
    let cpu = used.checked_div(window.as_nanos())?;
    Some(Usage { at: last.at, window, cpu: u64::try_from(cpu).unwrap_or(u64::MAX), memory: last.memory })
}

/// The samples of a node that are worth keeping, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring {
    samples: VecDeque<Arc<Sample>>,
    /// When the node last gave no answer.
    failed: Option<Timestamp>,
}

/// What there is to do for a pair of samples.
#[derive(Debug)]
pub(super) enum Step {
    Done(Pair),
    Sample,
    Wait(Duration),
    /// The node has just not answered.
    Failed,
}

impl Ring {
    /// What to do now.
    pub(super) fn step(&self, now: Timestamp) -> Step {
        let age = |of: Timestamp| Some(now.duration_since(of)).filter(|age| !age.is_negative() && *age < SHORTEST);
        if self.failed.and_then(age).is_some() {
            return Step::Failed;
        }
        let Some((last, age)) = self.samples.back().and_then(|last| Some((last, age(last.at)?))) else {
            return Step::Sample;
        };
        match self.base(last) {
            Some((_, base)) => Step::Done(Pair { base: Arc::clone(base), last: Arc::clone(last) }),
            None => Step::Wait((SHORTEST - age).try_into().unwrap_or_default()),
        }
    }

    /// The sample to compare with: the one nearest to what is wanted, of those that are neither too near nor too far.
    fn base(&self, last: &Sample) -> Option<(usize, &Arc<Sample>)> {
        let apart = |sample: &Sample| last.at.duration_since(sample.at);
        let fits = |(_, sample): &(usize, &Arc<Sample>)| (SHORTEST..=LONGEST).contains(&apart(sample));
        self.samples.iter().enumerate().filter(fits).min_by_key(|(_, sample)| (apart(sample) - WANTED).abs())
    }

    pub(super) fn failed(&mut self, at: Timestamp) {
        self.failed = Some(at);
    }

    /// Keeps a sample, and forgets those that no later one will be compared with: what is further away than the base of
    /// this one, and what is not older than this one, for the clock was set back.
    pub(super) fn add(&mut self, sample: Sample) {
        self.failed = None;
        self.samples.retain(|known| known.at < sample.at && sample.at.duration_since(known.at) <= LONGEST);
        let useless = self.base(&sample).map_or(0, |(place, _)| place);
        self.samples.drain(..useless);
        self.samples.push_back(Arc::new(sample));
    }
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
