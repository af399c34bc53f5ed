//! Exits that are reported before the runtime finished its cleanup (`Reaped`, then `Exited`).

use crate::common::{Run, Sim};
use lifecycle::{ContainerEvent, ContainerExit, PodLifecycleEvent, explain};
use serde_json::json;

const REAPED: fn(String, ContainerExit) -> ContainerEvent = |id, exit| ContainerEvent::Reaped { id, exit };
const EXITED: fn(String, ContainerExit) -> ContainerEvent = |id, exit| ContainerEvent::Exited { id, exit };

/// Delivers an exit event of the newest container.
fn exit(sim: &mut Sim, name: &str, code: i32, to_event: fn(String, ContainerExit) -> ContainerEvent) {
    let (id, _) = sim.pod.container_id(name, false).unwrap();
    deliver_exit(sim, name, code, to_event, id);
    sim.settle();
}

fn deliver_exit(
    sim: &mut Sim,
    name: &str,
    code: i32,
    to_event: fn(String, ContainerExit) -> ContainerEvent,
    id: String,
) {
    let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
    let started_at = Some(sim.now);
    let exit = ContainerExit { code, reason, message: String::new(), started_at, finished_at: sim.now };
    if let Some(container) = sim.runtime.containers.iter_mut().find(|c| c.id == id) {
        container.state = lifecycle::RuntimeContainerState::Exited(exit.clone());
    }
    sim.observe(PodLifecycleEvent::Container { container: name.to_owned(), event: to_event(id, exit) });
}

fn running_pod(policy: &str, names: &[&str]) -> (Sim, usize) {
    let mut sim = Sim::of(policy, names);
    sim.pass(1);
    let done = sim.log.len();
    (sim, done)
}

#[test]
fn status_shows_reap_and_restart_waits_for_cleanup() {
    let (mut sim, since) = running_pod("Always", &["c", "d"]);
    exit(&mut sim, "c", 3, REAPED);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("terminated Error 3", 0));
    assert_eq!(sim.done()[since..], [""; 0]);
    let because = explain(&sim.pod, &sim.policy, sim.now).because;
    assert!(because.contains(&"container c: the runtime is still cleaning up".to_owned()), "{because:?}");
    exit(&mut sim, "c", 3, EXITED);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
    assert_eq!(sim.done()[since..], ["1 image c", "1 start c 1"]);
}

#[test]
fn phase_is_terminal_at_reap_and_sandbox_stops_after_cleanup() {
    let (mut sim, since) = running_pod("Never", &["c"]);
    exit(&mut sim, "c", 0, REAPED);
    assert_eq!(sim.phase(), "Succeeded");
    assert_eq!(sim.done()[since..], [""; 0]);
    exit(&mut sim, "c", 0, EXITED);
    assert_eq!(sim.done()[since..], ["1 stop sandbox", "1 unmount"]);
}

#[test]
fn other_containers_do_not_wait_for_runtime_cleanup() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "initContainers": [
        {"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "i", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Forever]);
    sim.pass(1);
    let since = sim.log.len();
    exit(&mut sim, "i", 0, REAPED);
    assert_eq!(sim.done()[since..], ["1 image c", "1 start c 0"]);
    exit(&mut sim, "c", 0, REAPED);
    assert_eq!(sim.done()[since + 2..], ["1 stop s 30s"]);
}

#[test]
fn duplicate_exit_event_is_ignored() {
    let (mut sim, _) = running_pod("Never", &["c", "d"]);
    exit(&mut sim, "c", 3, REAPED);
    let (shown, known) = (sim.status(), sim.state_json());
    exit(&mut sim, "c", 4, REAPED);
    assert_eq!(sim.state_json(), known);
    exit(&mut sim, "c", 5, EXITED);
    exit(&mut sim, "c", 6, REAPED);
    assert_eq!(sim.status(), shown);
}

#[test]
fn exit_event_of_another_container_is_ignored() {
    let (mut sim, _) = running_pod("Always", &["c"]);
    let (first, _) = sim.pod.container_id("c", false).unwrap();
    exit(&mut sim, "c", 1, EXITED);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
    let known = sim.state_json();
    // A late event of the previous container, and one of an unknown container.
    deliver_exit(&mut sim, "c", 2, REAPED, first);
    deliver_exit(&mut sim, "c", 2, REAPED, "unknown".to_owned());
    assert_eq!(sim.state_json(), known);
}

#[test]
fn relist_replaces_a_lost_exit_event() {
    for missing in [false, true] {
        let (mut sim, since) = running_pod("Never", &["c"]);
        exit(&mut sim, "c", 3, REAPED);
        if missing {
            sim.runtime.containers.clear();
        }
        sim.relist();
        sim.settle();
        assert_eq!(sim.done()[since..], ["1 stop sandbox", "1 unmount"], "missing: {missing}");
        assert_eq!(sim.state("c"), "terminated Error 3", "missing: {missing}");
    }
}

#[test]
fn deletion_waits_for_runtime_cleanup() {
    let (mut sim, since) = running_pod("Always", &["c"]);
    exit(&mut sim, "c", 0, REAPED);
    sim.delete(30);
    assert_eq!(sim.done()[since..], [""; 0]);
    exit(&mut sim, "c", 0, EXITED);
    assert!(sim.forgotten);
}
