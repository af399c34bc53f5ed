//! Every interleaving, for small Pods: exits, probes and hooks that fail, deletion, facts that are lost or come twice,
//! actions that are carried out twice, and restarts of the kubelet, in any order.
//!
//! [`common::Teller`] is the world, and what it checks after each fact holds in every state that can be reached; besides,
//! a world in which nothing is left to do is one in which the Pod is where it belongs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "the number of states is what the test is worth")]

#[cfg(test)]
mod common;

use common::{Extras, Fingerprint, Step, Teller};
use lifecycle::{Action, BackoffPolicy};
use stateright::{Checker, Model, Property};
use std::{
    fmt,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

/// How often each thing may happen in one history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    exits: u8,
    restarts: u8,
    deletions: u8,
    forced: u8,
    lost_sandboxes: u8,
    lost_facts: u8,
    failed_hooks: u8,
    failed_probes: u8,
    /// Times that nothing happens until the next moment that was waited for.
    waits: u8,
}

#[derive(Clone)]
struct State {
    teller: Teller,
    budget: Budget,
    /// What went wrong, if anything did.
    broken: Option<String>,
    /// All that makes this state another one.
    fingerprint: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.broken, self.teller.sim.phase(), self.teller.sim.done())
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
enum Move {
    World(Step),
    /// A fact is lost on its way.
    LoseFact(usize),
    /// Time passes until the next moment that is waited for.
    Wait,
}

struct SmallPod {
    policy: &'static str,
    init: usize,
    sidecars: usize,
    apps: usize,
    extras: Extras,
    budget: Budget,
}

impl State {
    fn new(mut teller: Teller, budget: Budget) -> Self {
        // What is short is done at once, unless it matters what happens before.
        while let Some(n) = teller.open().iter().position(is_short) {
            teller.take(&Step::Act(n));
        }
        teller.repeat_all();
        teller.forget_history();
        let fingerprint = fingerprint(&teller, budget);
        Self { teller, budget, broken: None, fingerprint }
    }

    /// Nothing is left to do: is the Pod where it belongs?
    fn is_at_rest_where_it_belongs(&self) -> bool {
        let teller = &self.teller;
        let quiet = teller.in_flight.is_empty() && teller.mail.is_empty() && teller.open().is_empty();
        if self.broken.is_some() || !quiet || teller.sim.forgotten {
            return true;
        }
        // What was lost on its way is found by the next list of the runtime.
        let mut listed = teller.clone();
        listed.take(&Step::Relist);
        if !listed.open().is_empty() || !listed.sim.reported() {
            return true;
        }
        let terminal = matches!(teller.sim.phase().as_str(), "Succeeded" | "Failed");
        let ending = !teller.sim.in_api || teller.sim.api.metadata.deletion_timestamp.is_some();
        !ending && (terminal || teller.sim.runtime.any_running())
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

/// Numbers that only count what happened are left out.
fn fingerprint(teller: &Teller, budget: Budget) -> u64 {
    let sim = &teller.sim;
    let mut print = Fingerprint::without(&["object", "written", "sequence", "durable", "outbox"]);
    print.add(&sim.pod);
    print.add_hash(sim.api_phase());
    if budget.restarts > 0 {
        // What a new kubelet would know.
        if *sim.saved() != sim.pod {
            print.add(sim.saved());
        }
        let shown = sim.api.status.as_ref().map(|s| (&s.init_container_statuses, &s.container_statuses));
        print.add(&shown);
    }
    print.add_debug(&(&sim.runtime.containers, &sim.runtime.sandboxes));
    print.add(&teller.in_flight);
    print.add(&teller.mail);
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

impl SmallPod {
    fn moves(&self, state: &State) -> Vec<Move> {
        let (teller, left) = (&state.teller, state.budget);
        let mut steps = Vec::new();
        for (n, action) in teller.open().iter().enumerate() {
            // What takes its time may be overtaken; the rest is done at once.
            let long =
                matches!(action, Action::StartContainer { .. } | Action::StopContainer { .. } | Action::RunHook { .. });
            steps.push(if long { Step::Begin(n) } else { Step::Act(n) });
        }
        steps.extend((0..teller.in_flight.len()).map(Step::Finish));
        steps.extend((0..teller.mail.len()).map(Step::Deliver));
        let running = teller.sim.runtime.running();
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
            let carried_out: &[u8] = if teller.in_flight.is_empty() { &[0] } else { &[0, u8::MAX] };
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
        if !teller.sim.reported() {
            steps.push(Step::Report);
        }
        steps.push(Step::Relist);
        let lost = (0..teller.mail.len()).filter(|_| left.lost_facts > 0).map(Move::LoseFact);
        let waits = (left.waits > 0 && teller.wake().is_some()).then_some(Move::Wait);
        steps.into_iter().map(Move::World).chain(lost).chain(waits).collect()
    }
}

impl Model for SmallPod {
    type State = State;
    type Action = Move;

    fn init_states(&self) -> Vec<State> {
        let mut teller = Teller::new(self.policy, [self.init, self.sidecars, self.apps], None, self.extras);
        // Time stands still; what is tried again is tried at once.
        let none = BackoffPolicy { initial: Duration::ZERO, max: Duration::ZERO, reset_after: Duration::ZERO };
        teller.sim.policy.container_backoff = none;
        teller.sim.policy.retry_backoff = none;
        vec![State::new(teller, self.budget)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Move>) {
        if state.broken.is_none() && !state.teller.sim.forgotten {
            actions.extend(self.moves(state));
        }
    }

    fn next_state(&self, last: &State, action: Move) -> Option<State> {
        let mut budget = last.budget;
        match &action {
            Move::World(Step::Exit(..)) => budget.exits -= 1,
            Move::World(Step::Restart(..)) => budget.restarts -= 1,
            Move::World(Step::Delete(_)) => budget.deletions -= 1,
            Move::World(Step::ForceDelete) => budget.forced -= 1,
            Move::World(Step::Fault(4)) => budget.failed_hooks -= 1,
            Move::World(Step::Fault(_)) => budget.failed_probes -= 1,
            Move::World(Step::LoseSandbox) => budget.lost_sandboxes -= 1,
            Move::LoseFact(_) => budget.lost_facts -= 1,
            Move::Wait => budget.waits -= 1,
            Move::World(_) => {}
        }
        let mut teller = last.teller.clone();
        let step = catch_unwind(AssertUnwindSafe(move || {
            match action {
                Move::World(step) => teller.take(&step),
                Move::LoseFact(n) => drop(teller.mail.remove(n)),
                Move::Wait => teller.wait(),
            }
            State::new(teller, budget)
        }));
        let next = step.unwrap_or_else(|panic| {
            let words = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a check failed".to_owned());
            State { broken: Some(words), fingerprint: last.fingerprint.wrapping_add(1), ..last.clone() }
        });
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("what must always hold holds", |_, state: &State| state.broken.is_none()),
            Property::always("a Pod comes to rest only where it belongs", |_, state: &State| {
                state.is_at_rest_where_it_belongs()
            }),
            Property::sometimes("a Pod is forgotten once it is deleted", |model: &Self, state: &State| {
                state.teller.sim.forgotten || model.budget.deletions == 0
            }),
        ]
    }
}

/// A run that takes longer has too many states to be of use.
const LIMIT: Duration = Duration::from_secs(300);

/// Explores all that can happen to such a Pod.
#[track_caller]
fn check(init: usize, sidecars: usize, apps: usize, budget: Budget) {
    check_with(init, sidecars, apps, Extras::default(), budget);
}

#[track_caller]
fn check_with(init: usize, sidecars: usize, apps: usize, extras: Extras, budget: Budget) {
    for policy in ["Always", "OnFailure", "Never"] {
        let begun = Instant::now();
        let checker = SmallPod { policy, init, sidecars, apps, extras, budget }
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
        assert!(checker.is_done(), "not all was explored");
        checker.assert_properties();
    }
}

const NOTHING: Budget = Budget {
    exits: 0,
    restarts: 0,
    deletions: 0,
    forced: 0,
    lost_sandboxes: 0,
    lost_facts: 0,
    failed_hooks: 0,
    failed_probes: 0,
    waits: 0,
};

#[test]
fn explore_app_with_deletions_kubelet_restart_and_lost_event() {
    check(0, 0, 1, Budget { exits: 1, restarts: 1, deletions: 1, forced: 1, lost_facts: 1, ..NOTHING });
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

const NO_EXTRAS: Extras = Extras {
    startup: false,
    liveness: false,
    readiness: false,
    post_start: false,
    pre_stop: false,
    restart_all: false,
    tells_early: false,
};
const HOOKS: Extras = Extras { post_start: true, pre_stop: true, ..NO_EXTRAS };

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
    let extras = Extras { startup: true, liveness: true, readiness: true, pre_stop: true, ..NO_EXTRAS };
    check_with(0, 1, 1, extras, Budget { exits: 1, deletions: 1, ..NOTHING });
}

#[test]
fn explore_container_reaped_before_its_exit() {
    let extras = Extras { tells_early: true, ..NO_EXTRAS };
    let budget = Budget { exits: 1, deletions: 1, lost_facts: 1, ..NOTHING };
    check_with(0, 0, 1, extras, Budget { restarts: 1, ..budget });
    check_with(1, 0, 1, extras, Budget { deletions: 0, ..budget });
}

const PROBES: Extras = Extras { startup: true, liveness: true, readiness: true, ..NO_EXTRAS };

#[test]
fn explore_restart_all_with_kubelet_restart() {
    let extras = Extras { restart_all: true, ..NO_EXTRAS };
    check_with(1, 0, 1, extras, Budget { exits: 2, ..NOTHING });
    check_with(0, 0, 1, extras, Budget { exits: 1, restarts: 1, deletions: 1, ..NOTHING });
}

#[test]
fn explore_failing_probes_over_time() {
    check_with(0, 0, 1, PROBES, Budget { failed_probes: 2, waits: 3, ..NOTHING });
}

#[test]
fn explore_failing_probes_with_deletion_and_kubelet_restart() {
    check_with(0, 0, 1, PROBES, Budget { failed_probes: 1, waits: 1, deletions: 1, restarts: 1, ..NOTHING });
}

/// The long ones: minutes in a release build, and not to be had in a debug build.
macro_rules! long {
    ($($name:ident: $check:expr;)*) => {$(
        #[test]
        #[ignore = "takes minutes: cargo test --release -p lifecycle --test model -- --ignored"]
        fn $name() {
            $check;
        }
    )*};
}

long! {
    explore_init_lost_sandbox_deletion_and_kubelet_restart:
        check(1, 0, 1, Budget { exits: 2, restarts: 1, deletions: 1, lost_sandboxes: 1, ..NOTHING });
    explore_two_apps_lost_event_deletion_and_kubelet_restart:
        check(0, 0, 2, Budget { exits: 2, restarts: 1, deletions: 1, lost_facts: 1, ..NOTHING });
    explore_failing_hooks_exit_deletion_and_kubelet_restart:
        check_with(0, 0, 1, HOOKS, Budget { exits: 1, restarts: 1, deletions: 1, failed_hooks: 1, ..NOTHING });
}
