//! Property tests: invariants that hold for any event sequence, with late, duplicate or reordered events.
//!
//! [`common::Sim`] checks the invariants after each event (`common/checks.rs`): the phase stays terminal and is never
//! terminal while a container runs; nothing starts after a deletion; grace periods are never exceeded; no exit code is
//! lost; probes never kill early; a hook runs once and within the grace period; plans are deterministic and their
//! wake-ups are in the future; a dump replays to the same result. This file generates the histories.

#[cfg(test)]
mod common;

use common::{ContainerOptions, Interleaver, Run, Sim, Step, refused};
use lifecycle::{History, Hook, HookOutcome, ProbeKind, ProbeOutcome};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

fn step() -> impl Strategy<Value = Step> {
    let n = 0..8_usize;
    prop_oneof![
        12 => n.clone().prop_map(Step::Act),
        6 => n.clone().prop_map(Step::Begin),
        6 => n.clone().prop_map(Step::Finish),
        4 => Just(Step::Report),
        4 => prop_oneof![0..3_u64, 5..40_u64, 100..900_u64].prop_map(Step::Pass),
        5 => (n.clone(), prop_oneof![Just(0), Just(1), Just(42)]).prop_map(|(n, code)| Step::Exit(n, code)),
        6 => n.clone().prop_map(Step::Deliver),
        4 => n.clone().prop_map(Step::Repeat),
        2 => (n.clone(), 0..8_u8).prop_map(|(n, size)| Step::Resize(n, size)),
        1 => (0..60_i64).prop_map(Step::Delete),
        1 => Just(Step::ForceDelete),
        1 => Just(Step::Evict),
        1 => Just(Step::LoseSandbox),
        2 => Just(Step::Debug),
        1 => n.prop_map(Step::LoseContainer),
        1 => (0..3_u8).prop_map(Step::NewImage),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(done, checkpoint)| Step::Restart(done, checkpoint)),
        2 => Just(Step::Relist),
        2 => (0..9_u8).prop_map(Step::Fault),
    ]
}

#[derive(Debug, Clone)]
struct Scenario {
    policy: &'static str,
    /// Number of init containers, sidecars and app containers.
    counts: [usize; 3],
    deadline: Option<i64>,
    options: ContainerOptions,
    steps: Vec<Step>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let deadline = prop_oneof![3 => Just(None), 1 => (10..200_i64).prop_map(Some)];
    let counts = (0..2_usize, 0..3_usize, 1..3_usize).prop_map(|(init, sidecars, apps)| [init, sidecars, apps]);
    (policy, counts, deadline, options(), vec(step(), 0..120))
        .prop_map(|(policy, counts, deadline, options, steps)| Scenario { policy, counts, deadline, options, steps })
}

fn options() -> impl Strategy<Value = ContainerOptions> {
    any::<[bool; 7]>().prop_map(|[startup, liveness, readiness, post_start, pre_stop, restart_all, reports_reaped]| {
        ContainerOptions { startup, liveness, readiness, post_start, pre_stop, restart_all, reports_reaped }
    })
}

/// Probe settings with small values.
fn probe_settings() -> impl Strategy<Value = Value> {
    (0..9, 1..6, 1..4, 1..8).prop_map(|(delay, period, failures, timeout)| {
        json!({"tcpSocket": {"port": 80}, "initialDelaySeconds": delay, "periodSeconds": period,
            "failureThreshold": failures, "timeoutSeconds": timeout})
    })
}

/// Probe outcomes, each from a second on.
fn outcomes() -> impl Strategy<Value = Vec<(u64, ProbeOutcome)>> {
    let outcome = prop_oneof![
        2 => Just(ProbeOutcome::Success),
        2 => Just(refused()),
        1 => Just(ProbeOutcome::Unknown("no route".to_owned())),
    ];
    vec((1..15_u64, outcome), 0..8).prop_map(|mut script| {
        let mut at = 0;
        for (after, _) in &mut script {
            at += *after;
            *after = at;
        }
        script
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_for_every_event_sequence(scenario in scenario()) {
        let mut interleaver = Interleaver::new(scenario.policy, scenario.counts, scenario.deadline, scenario.options);
        interleaver.sim.history = Some(History::new(&interleaver.sim.pod));
        for step in &scenario.steps {
            if interleaver.sim.forgotten {
                return Ok(());
            }
            interleaver.apply(step);
        }
        interleaver.sim.check_replay();
        if !interleaver.sim.forgotten {
            interleaver.run_to_completion();
        }
    }

    /// [`Sim`] checks that probes never kill early and that hooks extend a termination by at most two seconds; here the
    /// kubelet is never late.
    #[test]
    fn probes_and_hooks_respect_their_deadlines(
        (startup, liveness) in (probe_settings(), probe_settings()),
        (startup_outcomes, liveness_outcomes) in (outcomes(), outcomes()),
        hooks in (0..9_u64, 0..30_u64),
        (alive, grace, stops) in (0..80_u64, 0..20_i64, 0..30_u64),
    ) {
        let hook = json!({"exec": {"command": ["true"]}});
        let mut sim = Sim::new(json!({"terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i",
            "startupProbe": startup, "livenessProbe": liveness,
            "lifecycle": {"postStart": hook.clone(), "preStop": hook}}]}))
        .probe("c", ProbeKind::Startup, &startup_outcomes)
        .probe("c", ProbeKind::Liveness, &liveness_outcomes)
        .hook("c", Hook::PostStart, hooks.0, HookOutcome::Done)
        .hook("c", Hook::PreStop, hooks.1, HookOutcome::Done)
        .on_stop("c", stops, 0);
        sim.pass(alive);
        sim.delete(grace);
        sim.pass(u64::try_from(grace.max(1)).unwrap() + 2);
        prop_assert!(sim.forgotten);
    }

    #[test]
    fn restart_delays_follow_the_backoff(runs in vec(prop_oneof![0..30_u64, 550..650_u64, 0..2000_u64], 1..15)) {
        let script: Vec<Run> = runs.iter().map(|seconds| Run::Ends(*seconds, 1)).chain([Run::Forever]).collect();
        let mut sim = Sim::of("OnFailure", &["c"]).script("c", &script);
        sim.pass(60_000);
        let (mut now, mut delay, mut expected) = (0, None, vec![0]);
        for run in &runs {
            let wait = delay.filter(|_| *run <= 600).unwrap_or(0);
            now += run + wait;
            delay = Some(if wait == 0 { 10 } else { (wait * 2).min(300) });
            expected.push(now);
        }
        prop_assert_eq!(sim.starts("c"), expected);
    }
}
