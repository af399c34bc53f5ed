//! What is remembered of an autoscaler while Podium runs: what it was told to do, and what it did.

use std::time::Duration;
use tokio::time::Instant;

/// Numbers, and when they were noted.
type TimedValues = Vec<(i32, Instant)>;

/// What is remembered of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct History {
    /// How many replicas its metrics called for.
    recommended: TimedValues,
    /// How many were added, and how many removed.
    added: TimedValues,
    removed: TimedValues,
    /// How many warnings may still be told, and when that was counted.
    warnings: Option<(f64, Instant)>,
}

/// So many warnings are told at once, and then one in five minutes (`EventSourceObjectSpamFilter`): what fails, fails with
/// every sync.
const WARNINGS: f64 = 25.0;
const NEXT_WARNING: Duration = Duration::from_secs(300);

impl History {
    /// When nothing is known, what there is was right (`recordInitialRecommendation`).
    pub(super) fn record_initial_recommendation(&mut self, replicas: i32, now: Instant) {
        if self.recommended.is_empty() {
            self.recommended.push((replicas, now));
        }
    }

    /// Whether a warning may be told.
    pub(super) fn allow_warning(&mut self, now: Instant) -> bool {
        let left = self.warnings.map_or(WARNINGS, |(left, counted)| {
            (left + age(counted, now).as_secs_f64() / NEXT_WARNING.as_secs_f64()).min(WARNINGS)
        });
        let may = left >= 1.0;
        self.warnings = Some((if may { left - 1.0 } else { left }, now));
        may
    }

    /// What metrics call for, which is remembered as long as anyone asks for it.
    pub(super) fn recommend(&mut self, replicas: i32, longest: Duration, now: Instant) {
        self.recommended.retain(|(_, at)| age(*at, now) <= longest);
        self.recommended.push((replicas, now));
    }

    /// The recommendations that are younger than that, or just as old.
    pub(super) fn recommended(&self, within: Duration, now: Instant) -> impl Iterator<Item = i32> {
        self.recommended.iter().filter(move |(_, at)| age(*at, now) <= within).map(|(replicas, _)| *replicas)
    }

    /// The recommendations that are younger than that.
    pub(super) fn lately_recommended(&self, within: Duration, now: Instant) -> impl Iterator<Item = i32> {
        self.recommended.iter().filter(move |(_, at)| age(*at, now) < within).map(|(replicas, _)| *replicas)
    }

    /// That there were so many, and are so many now (`storeScaleEvent`); `longest` is what policies look back to.
    pub(super) fn record_scale_event(&mut self, before: i32, after: i32, longest: Duration, now: Instant) {
        let change = after.saturating_sub(before);
        let noted = if change > 0 { &mut self.added } else { &mut self.removed };
        noted.retain(|(_, at)| age(*at, now) <= longest);
        noted.push((change.saturating_abs(), now));
    }

    /// How many there were before what was added and removed within that time (`getReplicasChangePerPeriod`).
    pub(super) fn replicas_at_period_start(&self, replicas: i32, period: Duration, now: Instant) -> i32 {
        let within = |noted: &TimedValues| {
            let lately = noted.iter().filter(|(_, at)| age(*at, now) < period);
            crate::int_or_string::saturating_sum(lately.map(|(change, _)| *change))
        };
        replicas.saturating_sub(within(&self.added)).saturating_add(within(&self.removed))
    }
}

fn age(at: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(at)
}
