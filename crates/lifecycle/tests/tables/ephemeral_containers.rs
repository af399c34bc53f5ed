//! Ephemeral containers (KEP-277).

use crate::common::{Run, Sim};
use serde_json::json;

#[track_caller]
fn check(sim: &Sim, phase: &str, debugger: &str) {
    assert_eq!((sim.phase().as_str(), sim.state("e").as_str()), (phase, debugger));
}

#[test]
fn ephemeral_container_starts_without_affecting_the_pod() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.pass(5);
    sim.debug("e");
    sim.pass(5);
    check(&sim, "Running", "running");
    let status = sim.container("e");
    assert_eq!((status.ready, status.started, status.restart_count), (false, None, 0));
    assert_eq!((sim.starts("e"), sim.condition("Ready").as_str()), (vec![5], "True"));
    let paths: Vec<_> = sim.events.iter().filter_map(|e| e.field_path.as_deref()).collect();
    assert!(paths.contains(&"spec.ephemeralContainers{e}"), "{paths:?}");
}

#[test]
fn ephemeral_container_is_never_restarted() {
    for policy in ["Always", "OnFailure", "Never"] {
        for (code, shown) in [(0, "terminated Completed 0"), (1, "terminated Error 1")] {
            let mut sim = Sim::of(policy, &["c"]).script("e", &[Run::Ends(3, code)]);
            sim.debug("e");
            sim.pass(900);
            check(&sim, "Running", shown);
            assert_eq!((sim.starts("e"), sim.starts("c")), (vec![0], vec![0]), "{policy} {code}");
        }
    }
}

#[test]
fn ephemeral_container_starts_during_initialization() {
    let spec = json!({"restartPolicy": "Always", "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Forever]);
    sim.pass(5);
    sim.debug("e");
    sim.pass(5);
    check(&sim, "Pending", "running");
    assert_eq!(sim.state("c"), "waiting PodInitializing");
}

#[test]
fn ephemeral_container_pull_failure_blocks_nothing() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.pass(1);
    sim.runtime.image_failures = [("ErrImagePull", "no"); 100].into();
    sim.debug("e");
    sim.pass(5);
    check(&sim, "Running", "waiting ImagePullBackOff");
    sim.runtime.image_failures.clear();
    sim.pass(600);
    check(&sim, "Running", "running");
}

#[test]
fn pod_completes_despite_running_ephemeral_container() {
    let mut sim = Sim::of("Never", &["c"]).script("c", &[Run::Ends(10, 0)]).on_stop("e", 2, 137);
    sim.debug("e");
    sim.pass(11);
    check(&sim, "Running", "running");
    sim.pass(5);
    check(&sim, "Succeeded", "terminated Error 137");
}

#[test]
fn ephemeral_container_stops_with_its_pod() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.debug("e");
    sim.pass(5);
    sim.delete(30);
    assert_eq!(sim.times("stop e 30s"), vec![5]);
    sim.pass(60);
    assert!(sim.forgotten);
}

#[test]
fn ephemeral_container_is_not_restarted_in_new_sandbox() {
    let mut sim = Sim::of("Always", &["c"]);
    sim.debug("e");
    sim.pass(5);
    sim.lose_sandbox();
    sim.pass(120);
    assert_eq!((sim.starts("e"), sim.starts("c").len()), (vec![0], 2));
}

#[test]
fn ephemeral_container_is_not_restarted_by_kubelet_restart() {
    for from_checkpoint in [true, false] {
        let mut sim = Sim::of("Always", &["c"]).script("e", &[Run::Ends(3, 7)]);
        sim.debug("e");
        sim.pass(5);
        if from_checkpoint {
            sim.restart(10);
        } else {
            sim.restart_without_checkpoint(10);
        }
        sim.pass(60);
        check(&sim, "Running", "terminated Error 7");
        assert_eq!(sim.starts("e"), [0], "from_checkpoint: {from_checkpoint}");
    }
}
