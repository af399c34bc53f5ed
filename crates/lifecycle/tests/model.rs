//! Model checking of small Pods: explores every interleaving of exits, failing probes and hooks, deletions, lost and
//! duplicate events, repeated actions and kubelet restarts.
//!
//! [`common::Interleaver`] executes the steps and checks the invariants after each event. In a state without pending
//! work the Pod must be in a valid final state.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "reports the coverage: the number of states")]

#[cfg(test)]
mod common;

use common::{ContainerOptions, Fingerprint, Interleaver, Step};
use lifecycle::{Action, BackoffPolicy};
use stateright::{Checker, Model, Property};
use std::{
    fmt,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// Limits of how often each step may occur in one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    exits: u8,
    restarts: u8,
    deletions: u8,
    forced: u8,
    lost_sandboxes: u8,
    lost_events: u8,
    failed_hooks: u8,
    failed_probes: u8,
    /// Number of times that time advances to the next wake-up.
    waits: u8,
}

#[derive(Clone)]
struct State {
    interleaver: Interleaver,
    budget: Budget,
    /// The violated invariant, if any.
    violation: Option<String>,
    /// Hash of everything that distinguishes states.
    fingerprint: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.violation, self.interleaver.sim.phase(), self.interleaver.sim.done())
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Transition {
    Step(Step),
    /// An event is lost.
    LoseEvent(usize),
    /// Time advances to the next wake-up.
    Wait,
}

struct PodModel {
    policy: &'static str,
    init: usize,
    sidecars: usize,
    apps: usize,
    options: ContainerOptions,
    budget: Budget,
}

impl State {
    fn new(mut interleaver: Interleaver, budget: Budget) -> Self {
        // Short actions are completed at once.
        while let Some(n) = interleaver.startable_actions().iter().position(is_short) {
            interleaver.apply(&Step::Act(n));
        }
        interleaver.repeat_all();
        interleaver.clear_history();
        let fingerprint = fingerprint(&interleaver, budget);
        Self { interleaver, budget, violation: None, fingerprint }
    }

    /// Returns whether the Pod is in a valid final state, if no work is pending.
    fn is_in_valid_final_state(&self) -> bool {
        let interleaver = &self.interleaver;
        let quiet = interleaver.in_flight.is_empty()
            && interleaver.undelivered.is_empty()
            && interleaver.startable_actions().is_empty();
        if self.violation.is_some() || !quiet || interleaver.sim.forgotten {
            return true;
        }
        // A relist finds the change that a lost event reported.
        let mut listed = interleaver.clone();
        listed.apply(&Step::Relist);
        if !listed.startable_actions().is_empty() || !listed.sim.reported() {
            return true;
        }
        let terminal = matches!(interleaver.sim.phase().as_str(), "Succeeded" | "Failed");
        let ending = !interleaver.sim.in_api || interleaver.sim.api.metadata.deletion_timestamp.is_some();
        !ending && (terminal || interleaver.sim.runtime.any_running())
    }
}

fn is_short(action: &Action) -> bool {
    !matches!(
        action,
        Action::CreateSandbox { .. }
            | Action::StartContainer { .. }
            | Action::StopContainer { .. }
            | Action::RunHook { .. }
            | Action::StopSandbox { .. }
            | Action::DeleteFromApi
            | Action::Forget
    )
}

/// Counters of past events are excluded.
fn fingerprint(interleaver: &Interleaver, budget: Budget) -> u64 {
    let sim = &interleaver.sim;
    let mut print = Fingerprint::without(&["object", "written", "sequence", "durable", "outbox"]);
    print.add(&sim.pod);
    print.add_hash(sim.api_phase());
    if budget.restarts > 0 {
        // The state that a restarted kubelet would load.
        if *sim.saved() != sim.pod {
            print.add(sim.saved());
        }
        let shown = sim.api.status.as_ref().map(|s| (&s.init_container_statuses, &s.container_statuses));
        print.add(&shown);
    }
    print.add_debug(&(&sim.runtime.containers, &sim.runtime.sandboxes));
    print.add(&interleaver.in_flight);
    print.add(&interleaver.undelivered);
    print.add_hash((
        (sim.runtime.hook_failures, sim.runtime.probe_failures, sim.now),
        budget,
        &sim.begun,
        sim.in_api,
        sim.forgotten,
        sim.api.metadata.deletion_grace_period_seconds,
        sim.reported(),
    ));
    print.finish()
}

impl PodModel {
    fn transitions(&self, state: &State) -> Vec<Transition> {
        let (interleaver, left) = (&state.interleaver, state.budget);
        let mut steps = Vec::new();
        for (n, action) in interleaver.startable_actions().iter().enumerate() {
            // Long actions may be overtaken by other steps; all others complete at once.
            let is_long =
                matches!(action, Action::StartContainer { .. } | Action::StopContainer { .. } | Action::RunHook { .. });
            steps.push(if is_long { Step::Begin(n) } else { Step::Act(n) });
        }
        steps.extend((0..interleaver.in_flight.len()).map(Step::Finish));
        steps.extend((0..interleaver.undelivered.len()).map(Step::Deliver));
        let running = interleaver.sim.runtime.running();
        if left.exits > 0 {
            steps.extend((0..running).flat_map(|n| [Step::Exit(n, 0), Step::Exit(n, 1)]));
        }
        if left.deletions > 0 {
            steps.push(Step::Delete(30));
        }
        if left.forced > 0 {
            steps.push(Step::ForceDelete);
        }
        if left.restarts > 0 {
            let carried_out: &[u8] = if interleaver.in_flight.is_empty() { &[0] } else { &[0, u8::MAX] };
            steps.extend(carried_out.iter().flat_map(|done| [Step::Restart(*done, true), Step::Restart(*done, false)]));
        }
        if left.lost_sandboxes > 0 {
            steps.push(Step::LoseSandbox);
        }
        if left.failed_hooks > 0 {
            steps.push(Step::Fault(4));
        }
        if left.failed_probes > 0 {
            steps.push(Step::Fault(5));
        }
        if !interleaver.sim.reported() {
            steps.push(Step::Report);
        }
        steps.push(Step::Relist);
        let lost = (0..interleaver.undelivered.len()).filter(|_| left.lost_events > 0).map(Transition::LoseEvent);
        let waits = (left.waits > 0 && interleaver.wake().is_some()).then_some(Transition::Wait);
        steps.into_iter().map(Transition::Step).chain(lost).chain(waits).collect()
    }
}

impl Model for PodModel {
    type State = State;
    type Action = Transition;

    fn init_states(&self) -> Vec<State> {
        let mut interleaver = Interleaver::new(self.policy, [self.init, self.sidecars, self.apps], None, self.options);
        // Time does not advance by itself; retries are immediate.
        let none = BackoffPolicy { initial: Duration::ZERO, max: Duration::ZERO, reset_after: Duration::ZERO };
        interleaver.sim.policy.container_backoff = none;
        interleaver.sim.policy.retry_backoff = none;
        vec![State::new(interleaver, self.budget)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Transition>) {
        if state.violation.is_none() && !state.interleaver.sim.forgotten {
            actions.extend(self.transitions(state));
        }
    }

    fn next_state(&self, last: &State, action: Transition) -> Option<State> {
        let mut budget = last.budget;
        match &action {
            Transition::Step(Step::Exit(..)) => budget.exits -= 1,
            Transition::Step(Step::Restart(..)) => budget.restarts -= 1,
            Transition::Step(Step::Delete(_)) => budget.deletions -= 1,
            Transition::Step(Step::ForceDelete) => budget.forced -= 1,
            Transition::Step(Step::Fault(4)) => budget.failed_hooks -= 1,
            Transition::Step(Step::Fault(_)) => budget.failed_probes -= 1,
            Transition::Step(Step::LoseSandbox) => budget.lost_sandboxes -= 1,
            Transition::LoseEvent(_) => budget.lost_events -= 1,
            Transition::Wait => budget.waits -= 1,
            Transition::Step(_) => {}
        }
        let mut interleaver = last.interleaver.clone();
        let step = catch_unwind(AssertUnwindSafe(move || {
            match action {
                Transition::Step(step) => interleaver.apply(&step),
                Transition::LoseEvent(n) => drop(interleaver.undelivered.remove(n)),
                Transition::Wait => interleaver.advance_to_wake(),
            }
            State::new(interleaver, budget)
        }));
        let next = step.unwrap_or_else(|panic| {
            let message = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a check failed".to_owned());
            State { violation: Some(message), fingerprint: last.fingerprint.wrapping_add(1), ..last.clone() }
        });
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("invariants hold", |_, state: &State| state.violation.is_none()),
            Property::always("a Pod without pending work is in a valid final state", |_, state: &State| {
                state.is_in_valid_final_state()
            }),
            Property::sometimes("a Pod is forgotten once it is deleted", |model: &Self, state: &State| {
                state.interleaver.sim.forgotten || model.budget.deletions == 0
            }),
        ]
    }
}

/// Time limit of one exploration.
const LIMIT: Duration = Duration::from_secs(300);

/// Explores all histories of such a Pod.
#[track_caller]
fn check(init: usize, sidecars: usize, apps: usize, budget: Budget) {
    check_with(init, sidecars, apps, ContainerOptions::default(), budget);
}

#[track_caller]
fn check_with(init: usize, sidecars: usize, apps: usize, options: ContainerOptions, budget: Budget) {
    for policy in ["Always", "OnFailure", "Never"] {
        let begun = Instant::now();
        let checker = PodModel { policy, init, sidecars, apps, options, budget }
            .checker()
            .threads(2)
            .timeout(LIMIT)
            .spawn_bfs()
            .join();
        let (states, took) = (checker.unique_state_count(), begun.elapsed());
        println!(
            "{policy}, {init} init, {sidecars} sidecar and {apps} app containers: {states} states in {took:?}, all: {}",
            checker.is_done()
        );
        assert!(checker.is_done(), "{policy}: the exploration exceeded its time limit");
        checker.assert_properties();
    }
}

const NOTHING: Budget = Budget {
    exits: 0,
    restarts: 0,
    deletions: 0,
    forced: 0,
    lost_sandboxes: 0,
    lost_events: 0,
    failed_hooks: 0,
    failed_probes: 0,
    waits: 0,
};

#[test]
fn explore_app_with_deletions_kubelet_restart_and_lost_event() {
    check(0, 0, 1, Budget { exits: 1, restarts: 1, deletions: 1, forced: 1, lost_events: 1, ..NOTHING });
}

#[test]
fn explore_two_apps_with_kubelet_restart() {
    check(0, 0, 2, Budget { exits: 1, restarts: 1, ..NOTHING });
}

#[test]
fn explore_init_container_with_lost_sandbox() {
    check(1, 0, 1, Budget { exits: 1, lost_sandboxes: 1, ..NOTHING });
}

#[test]
fn explore_init_and_two_apps_with_exits_and_deletion() {
    check(1, 0, 2, Budget { exits: 2, deletions: 1, ..NOTHING });
}

#[test]
fn explore_two_sidecars_with_exit_and_deletion() {
    check(0, 2, 1, Budget { exits: 1, deletions: 1, ..NOTHING });
}

const NO_OPTIONS: ContainerOptions = ContainerOptions {
    startup: false,
    liveness: false,
    readiness: false,
    post_start: false,
    pre_stop: false,
    restart_all: false,
    reports_reaped: false,
};
const HOOKS: ContainerOptions = ContainerOptions { post_start: true, pre_stop: true, ..NO_OPTIONS };

#[test]
fn explore_failing_hooks_with_deletion() {
    check_with(0, 0, 1, HOOKS, Budget { deletions: 1, failed_hooks: 1, ..NOTHING });
}

#[test]
fn explore_hooks_with_forced_deletion_and_kubelet_restart() {
    check_with(0, 0, 1, HOOKS, Budget { restarts: 1, deletions: 1, forced: 1, ..NOTHING });
}

#[test]
fn explore_sidecar_and_app_with_probes_and_pre_stop() {
    let options = ContainerOptions { startup: true, liveness: true, readiness: true, pre_stop: true, ..NO_OPTIONS };
    check_with(0, 1, 1, options, Budget { exits: 1, deletions: 1, ..NOTHING });
}

#[test]
fn explore_container_reaped_before_its_exit() {
    let options = ContainerOptions { reports_reaped: true, ..NO_OPTIONS };
    let budget = Budget { exits: 1, deletions: 1, lost_events: 1, ..NOTHING };
    check_with(0, 0, 1, options, Budget { restarts: 1, ..budget });
    check_with(1, 0, 1, options, Budget { deletions: 0, ..budget });
}

const PROBES: ContainerOptions = ContainerOptions { startup: true, liveness: true, readiness: true, ..NO_OPTIONS };

#[test]
fn explore_restart_all_with_kubelet_restart() {
    let options = ContainerOptions { restart_all: true, ..NO_OPTIONS };
    check_with(1, 0, 1, options, Budget { exits: 2, ..NOTHING });
    check_with(0, 0, 1, options, Budget { exits: 1, restarts: 1, deletions: 1, ..NOTHING });
}

#[test]
fn explore_failing_probes_over_time() {
    check_with(0, 0, 1, PROBES, Budget { failed_probes: 2, waits: 3, ..NOTHING });
}

#[test]
fn explore_failing_probes_with_deletion_and_kubelet_restart() {
    check_with(0, 0, 1, PROBES, Budget { failed_probes: 1, waits: 1, deletions: 1, restarts: 1, ..NOTHING });
}

/// Slow explorations: minutes in a release build, infeasible in a debug build.
macro_rules! slow_tests {
    ($($name:ident: $check:expr;)*) => {$(
        #[test]
        #[ignore = "takes minutes: cargo test --release -p lifecycle --test model -- --ignored"]
        fn $name() {
            $check;
        }
    )*};
}

slow_tests! {
    explore_init_lost_sandbox_deletion_and_kubelet_restart:
        check(1, 0, 1, Budget { exits: 2, restarts: 1, deletions: 1, lost_sandboxes: 1, ..NOTHING });
    explore_two_apps_lost_event_deletion_and_kubelet_restart:
        check(0, 0, 2, Budget { exits: 2, restarts: 1, deletions: 1, lost_events: 1, ..NOTHING });
    explore_failing_hooks_exit_deletion_and_kubelet_restart:
        check_with(0, 0, 1, HOOKS, Budget { exits: 1, restarts: 1, deletions: 1, failed_hooks: 1, ..NOTHING });
}
