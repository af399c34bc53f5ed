use super::*;
use serde_json::json;

struct Clock {
    start: Instant,
    queue: SchedulingQueue,
}

impl Clock {
    fn new() -> Self {
        let start = Instant::now();
        Self { start, queue: SchedulingQueue::new(start) }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn add_or_update(&mut self, name: &str, priority: i32, seconds: u64) {
        let pod = json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
        let now = self.at(seconds);
        let summary = Arc::new(PodSummary::from_pod(serde_json::from_value(pod).expect("a Pod")));
        self.queue.add_or_update(name, PendingPod { summary, depends_on_other_pods: false }, now);
    }

    /// Pops all Pods that are due, in order.
    fn pop_all(&mut self, seconds: u64) -> Vec<String> {
        let now = self.at(seconds);
        std::iter::from_fn(|| self.queue.pop(now)).map(|(uid, _)| uid).collect()
    }

    /// Pops all Pods in backoff, in order.
    fn pop_all_backing_off(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.queue.pop_backing_off()).map(|(uid, _)| uid).collect()
    }

    fn add_unschedulable(&mut self, name: &str, seconds: u64) {
        let now = self.at(seconds);
        self.queue.add_unschedulable(name, now);
    }

    fn move_all(&mut self, seconds: u64) {
        let now = self.at(seconds);
        self.queue.move_all(now);
    }
}

#[test]
fn queue_orders_by_priority_then_arrival() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.add_or_update("b", 5, 0);
    clock.add_or_update("c", 0, 0);
    assert_eq!(clock.pop_all(0), ["b", "a", "c"]);
}

#[test]
fn unschedulable_pod_waits_for_move_and_backoff() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    assert_eq!(clock.pop_all(0), ["a"]);
    clock.add_unschedulable("a", 0);
    assert!(clock.pop_all(60).is_empty());
    clock.move_all(60);
    assert_eq!(clock.pop_all(60), ["a"], "the back-off of 1 s is long over");
    clock.add_unschedulable("a", 60);
    clock.move_all(61);
    assert!(clock.pop_all(61).is_empty());
    assert_eq!(clock.queue.next_wakeup(), Some(clock.at(62)));
    assert_eq!(clock.pop_all(62), ["a"], "the second back-off is 2 s");
}

#[test]
fn move_during_attempt_requeues_pod() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    clock.move_all(0);
    clock.add_unschedulable("a", 0);
    assert_eq!(clock.pop_all(1), ["a"]);
}

#[test]
fn only_relevant_update_requeues_unschedulable_pod() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    clock.add_unschedulable("a", 0);
    clock.add_or_update("a", 0, 20);
    assert!(clock.pop_all(20).is_empty());
    clock.add_or_update("a", 1, 20);
    assert_eq!(clock.pop_all(20), ["a"]);
}

#[test]
fn backoff_doubles_up_to_ten_seconds() {
    let seconds: Vec<u64> = (1..=6).map(|n| backoff_duration(n).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 10, 10]);
    assert_eq!(backoff_duration(u32::MAX), MAX_BACKOFF);
}

#[test]
fn undone_attempt_has_no_backoff() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    clock.queue.undo_attempt("a");
    clock.add_unschedulable("a", 0);
    assert!(clock.pop_all(0).is_empty());
    clock.move_all(0);
    assert_eq!(clock.pop_all(0), ["a"]);
}

#[test]
fn unschedulable_pod_is_retried_after_maximum_duration() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    clock.add_unschedulable("a", 0);
    assert_eq!(clock.queue.next_wakeup(), Some(clock.at(300)));
    assert_eq!(clock.pop_all(300), ["a"]);
}

#[test]
fn removed_pods_leave_no_queue_entries() {
    let mut clock = Clock::new();
    for name in ["a", "b", "c"] {
        clock.add_or_update(name, 0, 0);
    }
    clock.pop_all(0);
    clock.add_or_update("d", 0, 0);
    clock.add_unschedulable("a", 0);
    let now = clock.at(0);
    clock.queue.retry("b", now);
    clock.move_all(0);
    clock.add_unschedulable("c", 0);
    assert_eq!((clock.queue.active.len(), clock.queue.backing_off.len(), clock.queue.timers.len()), (1, 2, 3));
    clock.queue.retain(|_| false);
    let queue = &clock.queue;
    assert!(
        queue.is_empty() && queue.active.is_empty() && queue.backing_off.is_empty() && queue.timers.is_empty(),
        "{queue:#?}"
    );
}

#[test]
fn idle_scheduler_pops_moved_pod_before_its_backoff_ends() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    clock.add_unschedulable("a", 0);
    assert!(clock.pop_all_backing_off().is_empty(), "nothing has changed");
    clock.move_all(0);
    assert!(clock.pop_all(0).is_empty());
    assert_eq!(clock.pop_all_backing_off(), ["a"]);
    assert!(clock.pop_all(10).is_empty(), "its attempt is in flight");
    clock.add_unschedulable("a", 0);
    clock.move_all(0);
    assert!(clock.pop_all_backing_off().is_empty(), "only once in a backoff");
    assert_eq!(clock.queue.next_wakeup(), Some(clock.at(2)), "the attempt counts for the backoff");
    assert_eq!(clock.pop_all(2), ["a"]);
    clock.add_unschedulable("a", 2);
    clock.move_all(2);
    assert_eq!(clock.pop_all_backing_off(), ["a"]);
}

#[test]
fn failed_attempt_waits_for_its_backoff() {
    let mut clock = Clock::new();
    clock.add_or_update("a", 0, 0);
    clock.pop_all(0);
    for second in 0..3 {
        let now = clock.at(second);
        // As an attempt that waits for volumes.
        clock.queue.undo_attempt("a");
        clock.queue.retry("a", now);
        clock.move_all(second);
        assert!(clock.pop_all_backing_off().is_empty());
        assert!(clock.pop_all(second).is_empty());
        assert_eq!(clock.pop_all(second + 1), ["a"]);
    }
}

#[test]
fn pods_in_backoff_are_popped_by_window_then_priority() {
    let mut clock = Clock::new();
    for (name, priority, second) in [("late", 9, 2), ("b", 0, 0), ("high", 5, 0), ("c", 0, 0)] {
        clock.add_or_update(name, priority, second);
        clock.pop_all(second);
        clock.add_unschedulable(name, second);
    }
    clock.move_all(0);
    clock.add_or_update("c", 7, 0);
    assert_eq!(clock.pop_all_backing_off(), ["c", "high", "b", "late"]);
}
