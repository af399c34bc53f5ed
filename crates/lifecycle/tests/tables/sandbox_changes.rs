//! Lost sandboxes (`computePodActions`).

use crate::common::{Run, Sim};
use serde_json::json;

#[track_caller]
fn check(sim: &Sim, since: usize, expected: &[&str]) {
    assert_eq!(sim.done()[since..], *expected);
}

#[test]
fn lost_sandbox_stops_containers_and_is_recreated() {
    let mut sim = Sim::of("Always", &["c"]).on_stop("c", 3, 0);
    sim.pass(10);
    let since = sim.log.len();
    sim.lose_sandbox();
    assert_eq!(sim.condition("PodReadyToStartContainers"), "False");
    sim.pass(10);
    check(&sim, since, &["10 stop c 30s", "13 stop sandbox", "13 create sandbox 1", "13 image c", "13 start c 1"]);
    assert_eq!((sim.phase().as_str(), sim.restarts("c")), ("Running", 1));
    assert!(sim.event_reasons().contains(&"SandboxChanged"));
    assert!(sim.event_reasons().contains(&"Killing"));
}

#[test]
fn lost_sandbox_is_not_recreated_under_policy_never() {
    let mut sim = Sim::of("Never", &["c"]);
    sim.pass(10);
    let since = sim.log.len();
    sim.lose_sandbox();
    sim.pass(10);
    check(&sim, since, &["10 stop c 30s", "10 stop sandbox", "10 unmount"]);
    assert_eq!((sim.phase().as_str(), sim.state("c").as_str()), ("Failed", "terminated Error 143"));
    assert!(!sim.event_reasons().contains(&"SandboxChanged"));
}

#[test]
fn lost_sandbox_is_recreated_for_container_policy_always() {
    let spec =
        json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "restartPolicy": "Always"}]});
    let mut sim = Sim::new(spec);
    sim.pass(10);
    sim.lose_sandbox();
    sim.pass(30);
    assert_eq!((sim.phase().as_str(), sim.restarts("c")), ("Running", 1));
    assert!(sim.event_reasons().contains(&"SandboxChanged"));
}

#[test]
fn succeeded_container_is_not_rerun_in_the_new_sandbox() {
    let mut sim = Sim::of("OnFailure", &["a", "b"]).script("a", &[Run::Ends(5, 0)]);
    sim.pass(10);
    sim.lose_sandbox();
    sim.pass(10);
    assert_eq!((sim.starts("a").len(), sim.starts("b").len()), (1, 2));
}

#[test]
fn exit_after_sandbox_loss_counts_as_failure() {
    for code in [0, 3] {
        let mut sim = Sim::of("OnFailure", &["a", "b"]).on_stop("a", 2, code).on_stop("b", 0, code);
        sim.pass(10);
        sim.lose_sandbox();
        sim.pass(1);
        assert_eq!((sim.phase().as_str(), sim.state("b").as_str()), ("Running", "waiting ContainerCreating"), "{code}");
        sim.pass(10);
        let starts = (sim.starts("a").len(), sim.starts("b").len());
        assert_eq!((starts, sim.phase().as_str(), sim.restarts("a")), ((2, 2), "Running", 1), "{code}");
        sim.delete(30);
        sim.pass(10);
        assert!(sim.done().last().is_some_and(|last| last.ends_with("forget")), "exit code {code}: {:?}", sim.done());
    }
    let own = json!({"restartPolicy": "Always",
        "containers": [{"name": "c", "image": "i", "restartPolicy": "OnFailure"}]});
    let mut sim = Sim::new(own).on_stop("c", 2, 0);
    sim.pass(10);
    sim.lose_sandbox();
    sim.pass(10);
    assert_eq!((sim.phase().as_str(), sim.restarts("c")), ("Running", 1));
}

#[test]
fn exit_in_the_new_sandbox_counts_normally() {
    let mut sim = Sim::of("OnFailure", &["c"]).on_stop("c", 2, 0).script("c", &[Run::Forever, Run::Ends(5, 0)]);
    sim.pass(10);
    sim.lose_sandbox();
    sim.pass(20);
    assert_eq!((sim.phase().as_str(), sim.starts("c").len()), ("Succeeded", 2));
}

#[test]
fn init_containers_rerun_in_the_new_sandbox() {
    let spec = json!({"restartPolicy": "Always", "initContainers": [{"name": "i1", "image": "i"}, {"name": "i2", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i1", &[Run::Ends(1, 0)]).script("i2", &[Run::Ends(1, 0)]);
    sim.pass(10);
    assert_eq!(sim.starts("c"), [2]);
    sim.lose_sandbox();
    sim.pass(0);
    assert_eq!((sim.state("i1").as_str(), sim.phase().as_str()), ("running", "Running"));
    sim.pass(10);
    assert_eq!((sim.starts("i1"), sim.starts("i2"), sim.starts("c")), (vec![0, 10], vec![1, 11], vec![2, 12]));
    sim.lose_sandbox();
    sim.pass(60);
    // Each container has its own backoff, as after any restart.
    assert_eq!(sim.state("c"), "running");
    assert_eq!((sim.restarts("i1"), sim.restarts("i2"), sim.restarts("c")), (2, 2, 2));
}

#[test]
fn init_container_stopped_with_its_sandbox_is_rerun() {
    let spec = json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 5,
        "initContainers": [{"name": "i", "image": "i"}], "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Forever]).on_stop("i", 1, 0);
    sim.pass(3);
    sim.lose_sandbox();
    sim.pass(3);
    // The second restart has a backoff, during which the container shows its exit on request.
    sim.lose_sandbox();
    sim.pass(3);
    assert!(sim.state("i").starts_with("waiting"), "{}", sim.state("i"));
    assert!(sim.condition("Initialized").ends_with("incomplete status: [i]"), "{}", sim.condition("Initialized"));
    assert!(!sim.container("i").ready);
    sim.pass(10);
    assert_eq!((sim.state("i").as_str(), sim.starts("i").len(), sim.starts("c").len()), ("running", 3, 0));
}

#[test]
fn sandbox_lost_before_app_start_is_recreated() {
    let spec = json!({"restartPolicy": "Never", "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Ends(1, 0)]);
    sim.settle();
    sim.runtime.image_failures = [("ErrImagePull", "no")].into();
    sim.pass(5);
    sim.lose_sandbox();
    assert_eq!(sim.phase(), "Pending");
    sim.pass(20);
    assert_eq!((sim.starts("i").len(), sim.starts("c").len(), sim.phase().as_str()), (2, 1, "Running"));
}

#[test]
fn sandbox_lost_during_termination_is_not_recreated() {
    let mut sim = Sim::of("Always", &["c"]).on_stop("c", 3, 0);
    sim.pass(10);
    let since = sim.log.len();
    sim.delete(30);
    sim.lose_sandbox();
    sim.pass(10);
    check(
        &sim,
        since,
        &["10 stop c 30s", "13 stop sandbox", "13 unmount", "13 delete", "13 remove sandbox", "13 forget"],
    );
}
