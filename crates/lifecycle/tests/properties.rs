//! What holds for every Pod in every history, however late, doubled or out of order its facts come.
//!
//! Most of it is checked by [`common::Sim`] after each fact: a terminal phase never changes and never comes while
//! something runs; nothing starts after a deletion; no grace is longer than asked for; what may not restart does not; no
//! exit code is lost; the same facts give the same plan; no wake-up lies in the past. Here the histories are made up.

#[cfg(test)]
mod common;

use common::{Run, Sim, Step, Teller};
use proptest::{collection::vec, prelude::*};

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
        1 => (0..60_i64).prop_map(Step::Delete),
        1 => Just(Step::ForceDelete),
        1 => Just(Step::Evict),
        1 => Just(Step::LoseSandbox),
        1 => n.prop_map(Step::LoseContainer),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(done, checkpoint)| Step::Restart(done, checkpoint)),
        2 => Just(Step::Relist),
        2 => (0..4_u8).prop_map(Step::Fault),
    ]
}

#[derive(Debug, Clone)]
struct Story {
    policy: &'static str,
    init: usize,
    sidecars: usize,
    apps: usize,
    deadline: Option<i64>,
    steps: Vec<Step>,
}

fn story() -> impl Strategy<Value = Story> {
    let policy = prop_oneof![Just("Always"), Just("OnFailure"), Just("Never")];
    let deadline = prop_oneof![3 => Just(None), 1 => (10..200_i64).prop_map(Some)];
    (policy, 0..2_usize, 0..3_usize, 1..3_usize, deadline, vec(step(), 0..120)).prop_map(
        |(policy, init, sidecars, apps, deadline, steps)| Story { policy, init, sidecars, apps, deadline, steps },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_what_must_hold(story in story()) {
        let mut teller = Teller::new(story.policy, story.init, story.sidecars, story.apps, story.deadline);
        for step in &story.steps {
            if teller.sim.forgotten {
                return Ok(());
            }
            teller.take(step);
        }
        if !teller.sim.forgotten {
            teller.end_well();
        }
    }

    #[test]
    fn delays_follow_the_back_off(runs in vec(prop_oneof![0..30_u64, 550..650_u64, 0..2000_u64], 1..15)) {
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
