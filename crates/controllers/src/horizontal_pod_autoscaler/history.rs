//! History of an autoscaler in memory: recommendations, scale events and the rate limit of warnings.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// Values with the time at which they were recorded.
type TimedValues = Vec<(i32, Instant)>;

/// History of one autoscaler.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Recommended replicas.
    recommended: TimedValues,
    /// Added and removed replicas.
    added: TimedValues,
    removed: TimedValues,
    /// Remaining warnings, and when they were counted.
    warnings: Option<(f64, Instant)>,
}

/// Histories of all autoscalers by key, with the autoscaler's UID.
#[derive(Debug, Default)]
pub(super) struct Histories(Mutex<HashMap<String, (Option<String>, History)>>);

impl Histories {
    /// Returns the history of an autoscaler. A recreated one has none, even if a sync of the earlier one was in
    /// progress when that was deleted.
    pub(super) fn get(&self, key: &str, uid: Option<&str>) -> MappedMutexGuard<'_, History> {
        MutexGuard::map(self.0.lock(), |histories| {
            let (known, history) = histories.entry(key.to_owned()).or_default();
            if known.as_deref() != uid {
                (*known, *history) = (uid.map(str::to_owned), History::default());
            }
            history
        })
    }

    pub(super) fn delete(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

/// Burst of warnings, followed by one in five minutes (`EventSourceObjectSpamFilter`): a failure repeats with every
/// sync.
const WARNING_BURST: f64 = 25.0;
const WARNING_REFILL_INTERVAL: Duration = Duration::from_secs(300);

impl History {
    /// Records the current replicas as the first recommendation (`recordInitialRecommendation`).
    pub(super) fn record_initial_recommendation(&mut self, replicas: i32, now: Instant) {
        if self.recommended.is_empty() {
            self.recommended.push((replicas, now));
        }
    }

    /// Returns whether a warning may be recorded.
    pub(super) fn allow_warning(&mut self, now: Instant) -> bool {
        let left = self.warnings.map_or(WARNING_BURST, |(left, counted)| {
            (left + age(counted, now).as_secs_f64() / WARNING_REFILL_INTERVAL.as_secs_f64()).min(WARNING_BURST)
        });
        let may = left >= 1.0;
        self.warnings = Some((if may { left - 1.0 } else { left }, now));
        may
    }

    /// Records a recommendation, and drops those older than `longest`.
    pub(super) fn recommend(&mut self, replicas: i32, longest: Duration, now: Instant) {
        self.recommended.retain(|(_, at)| age(*at, now) <= longest);
        self.recommended.push((replicas, now));
    }

    /// Returns the recommendations that are at most `within` old.
    pub(super) fn recommended(&self, within: Duration, now: Instant) -> impl Iterator<Item = i32> {
        self.recommended.iter().filter(move |(_, at)| age(*at, now) <= within).map(|(replicas, _)| *replicas)
    }

    /// Returns the recommendations that are less than `within` old.
    pub(super) fn recommended_after(&self, within: Duration, now: Instant) -> impl Iterator<Item = i32> {
        self.recommended.iter().filter(move |(_, at)| age(*at, now) < within).map(|(replicas, _)| *replicas)
    }

    /// Records a change of replicas (`storeScaleEvent`), and drops those older than `longest`.
    pub(super) fn record_scale_event(&mut self, before: i32, after: i32, longest: Duration, now: Instant) {
        let change = after.saturating_sub(before);
        let scale_events = if change > 0 { &mut self.added } else { &mut self.removed };
        scale_events.retain(|(_, at)| age(*at, now) <= longest);
        scale_events.push((change.saturating_abs(), now));
    }

    /// Returns the replicas at the start of the period (`getReplicasChangePerPeriod`).
    pub(super) fn replicas_at_period_start(&self, replicas: i32, period: Duration, now: Instant) -> i32 {
        let within = |scale_events: &TimedValues| {
            let lately = scale_events.iter().filter(|(_, at)| age(*at, now) < period);
            crate::int_or_string::saturating_sum(lately.map(|(change, _)| *change))
        };
        replicas.saturating_sub(within(&self.added)).saturating_add(within(&self.removed))
    }
}

fn age(at: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recreated_autoscaler_inherits_no_history() {
        let (histories, now) = (Histories::default(), Instant::now());
        let recommended =
            |uid| -> Vec<i32> { histories.get("x/a", Some(uid)).recommended(Duration::MAX, now).collect() };
        histories.get("x/a", Some("1")).recommend(3, Duration::MAX, now);
        histories.delete("x/a");
        // A sync of the deleted autoscaler ends.
        histories.get("x/a", Some("1")).recommend(5, Duration::MAX, now);
        assert_eq!((recommended("1"), recommended("2")), (vec![5], vec![]));
    }
}
