//! An end that is told before the runtime is done with the container.

use crate::common::{Run, Sim};
use lifecycle::{ContainerExit, ContainerFact, Event, explain};
use serde_json::json;

const EARLY: fn(String, ContainerExit) -> ContainerFact = |id, exit| ContainerFact::Reaped { id, exit };
const LATE: fn(String, ContainerExit) -> ContainerFact = |id, exit| ContainerFact::Exited { id, exit };

/// Its process is gone with this code: a fact about its newest container.
fn ends(sim: &mut Sim, name: &str, code: i32, fact: fn(String, ContainerExit) -> ContainerFact) {
    let (id, _) = sim.pod.container_id(name, false).unwrap();
    tell(sim, name, code, fact, id);
    sim.settle();
}

fn tell(sim: &mut Sim, name: &str, code: i32, fact: fn(String, ContainerExit) -> ContainerFact, id: String) {
    let reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
    let started_at = Some(sim.now);
    let exit = ContainerExit { code, reason, message: String::new(), started_at, finished_at: sim.now };
    if let Some(container) = sim.runtime.containers.iter_mut().find(|c| c.id == id) {
        container.state = lifecycle::ContainerViewState::Exited(exit.clone());
    }
    sim.observe(Event::Container { container: name.to_owned(), fact: fact(id, exit) });
}

fn running(policy: &str, names: &[&str]) -> (Sim, usize) {
    let mut sim = Sim::of(policy, names);
    sim.pass(1);
    let done = sim.log.len();
    (sim, done)
}

#[test]
fn status_shows_reap_and_restart_waits_for_cleanup() {
    let (mut sim, since) = running("Always", &["c", "d"]);
    ends(&mut sim, "c", 3, EARLY);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("terminated Error 3", 0));
    assert_eq!(sim.done()[since..], [""; 0]);
    let why = explain(&sim.pod, &sim.policy, sim.now).because;
    assert!(why.contains(&"container c: the runtime is still cleaning up".to_owned()), "{why:?}");
    ends(&mut sim, "c", 3, LATE);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
    assert_eq!(sim.done()[since..], ["1 image c", "1 start c 1"]);
}

#[test]
fn phase_is_terminal_at_reap_and_sandbox_stops_after_cleanup() {
    let (mut sim, since) = running("Never", &["c"]);
    ends(&mut sim, "c", 0, EARLY);
    assert_eq!(sim.phase(), "Succeeded");
    assert_eq!(sim.done()[since..], [""; 0]);
    ends(&mut sim, "c", 0, LATE);
    assert_eq!(sim.done()[since..], ["1 stop sandbox", "1 unmount"]);
}

#[test]
fn other_containers_do_not_wait_for_runtime_cleanup() {
    let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "initContainers": [
        {"name": "s", "image": "i", "restartPolicy": "Always"}, {"name": "i", "image": "i"}]});
    let mut sim = Sim::new(spec).script("i", &[Run::Forever]);
    sim.pass(1);
    let since = sim.log.len();
    ends(&mut sim, "i", 0, EARLY);
    assert_eq!(sim.done()[since..], ["1 image c", "1 start c 0"]);
    ends(&mut sim, "c", 0, EARLY);
    assert_eq!(sim.done()[since + 2..], ["1 stop s 30s"]);
}

#[test]
fn duplicate_exit_event_is_ignored() {
    let (mut sim, _) = running("Never", &["c", "d"]);
    ends(&mut sim, "c", 3, EARLY);
    let (shown, known) = (sim.status(), sim.pod.clone());
    ends(&mut sim, "c", 4, EARLY);
    assert_eq!(sim.pod, known);
    ends(&mut sim, "c", 5, LATE);
    ends(&mut sim, "c", 6, EARLY);
    assert_eq!(sim.status(), shown);
}

#[test]
fn exit_event_of_another_container_is_ignored() {
    let (mut sim, _) = running("Always", &["c"]);
    let (first, _) = sim.pod.container_id("c", false).unwrap();
    ends(&mut sim, "c", 1, LATE);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c")), ("running", 1));
    let known = sim.pod.clone();
    // The one before, late; and one that nobody knows.
    tell(&mut sim, "c", 2, EARLY, first);
    tell(&mut sim, "c", 2, EARLY, "nobody".to_owned());
    assert_eq!(sim.pod, known);
}

#[test]
fn relist_replaces_a_lost_exit_event() {
    for gone in [false, true] {
        let (mut sim, since) = running("Never", &["c"]);
        ends(&mut sim, "c", 3, EARLY);
        if gone {
            sim.runtime.containers.clear();
        }
        sim.relist();
        sim.settle();
        assert_eq!(sim.done()[since..], ["1 stop sandbox", "1 unmount"], "gone: {gone}");
        assert_eq!(sim.state("c"), "terminated Error 3");
    }
}

#[test]
fn deletion_waits_for_runtime_cleanup() {
    let (mut sim, since) = running("Always", &["c"]);
    ends(&mut sim, "c", 0, EARLY);
    sim.delete(30);
    assert_eq!(sim.done()[since..], [""; 0]);
    ends(&mut sim, "c", 0, LATE);
    assert!(sim.forgotten);
}
