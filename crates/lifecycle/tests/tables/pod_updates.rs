//! Spec updates of running Pods (`computePodActions`).

use crate::common::{Run, Sim};
use k8s_openapi::api::core::v1::ContainerStatus;
use lifecycle::PodLifecycleEvent;
use serde_json::json;
use std::{sync::Arc, time::Duration};

fn pod(policy: &str) -> Sim {
    let mut sim = Sim::new(json!({
        "restartPolicy": policy,
        "terminationGracePeriodSeconds": 20,
        "initContainers": [
            {"name": "init", "image": "old"},
            {"name": "side", "image": "old", "restartPolicy": "Always"},
        ],
        "containers": [{"name": "c", "image": "old"}, {"name": "other", "image": "old"}],
    }))
    .script("init", &[Run::Ends(5, 0)]);
    for name in ["c", "side"] {
        sim = sim.on_stop(name, 3, 0);
    }
    sim.expects_spec_kills = true;
    sim
}

fn set_image(sim: &mut Sim, name: &str, image: &str) {
    let spec = sim.api.spec.as_mut().unwrap();
    let all = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    all.filter(|c| c.name == name).for_each(|c| c.image = Some(image.to_owned()));
    sim.api.metadata.generation = sim.api.metadata.generation.map(|g| g + 1);
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
}

#[test]
fn image_change_restarts_container_under_any_restart_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        for name in ["c", "side"] {
            let mut sim = pod(policy);
            sim.pass(10);
            set_image(&mut sim, name, "new");
            assert_eq!(
                (sim.container(name).image, sim.state(name)),
                ("docker.io/library/old".to_owned(), "running".to_owned()),
                "{policy}, {name}"
            );
            sim.pass(3);
            let message = match name {
                "side" => "Init container side definition changed",
                _ => "Container c definition changed, will be restarted",
            };
            assert_eq!(sim.message_of("Killing"), message, "{policy}, {name}");
            assert_eq!((sim.starts(name), sim.restarts(name)), (vec![5, 13], 1), "{policy} {name}");
            assert_eq!(sim.container(name).image, "docker.io/library/new", "the runtime's name");
            assert_eq!(sim.last_state(name), "terminated Completed 0", "{policy}, {name}");
            assert_eq!((sim.starts("other"), sim.phase()), (vec![5], "Running".to_owned()), "{policy}, {name}");
            sim.pass(100);
            assert_eq!(sim.starts(name), [5, 13], "{policy}, {name}: once is enough");
        }
    }
}

#[test]
fn container_with_changed_image_is_ready_until_it_exits() {
    let mut sim = pod("Always");
    sim.pass(10);
    set_image(&mut sim, "c", "new");
    for _ in 0..2 {
        sim.pass(1);
        assert_eq!((sim.state("c").as_str(), sim.container("c").ready), ("running", true));
        assert_eq!((sim.condition("Ready"), sim.condition("ContainersReady")), ("True".into(), "True".into()));
    }
    sim.pass(10);
    assert_eq!((sim.starts("c"), sim.condition("Ready")), (vec![5, 13], "True".into()));
}

#[test]
fn new_image_is_pulled_while_old_container_runs() {
    let mut sim = pod("Never");
    sim.pass(10);
    for second in [10, 22] {
        set_image(&mut sim, "c", &format!("new{second}"));
        let pull = sim.next_action().unwrap();
        sim.begin(&pull);
        // However long that takes.
        sim.pass(7);
        assert_eq!(sim.done_since(second), [format!("{second} image c")], "second {second}");
        assert_eq!((sim.state("c").as_str(), sim.condition("Ready")), ("running", "True".into()), "second {second}");
        sim.finish(&pull);
        sim.pass(5);
    }
    // A present image is not pulled again.
    let expected =
        ["10 image c", "17 stop c 20s", "20 start c 1", "22 image c", "29 stop c 20s", "32 start c 2", "32 remove c"];
    assert_eq!(sim.done_since(10), expected);
}

#[test]
fn image_change_reverted_before_pull_keeps_the_container() {
    let mut sim = pod("Always");
    sim.pass(10);
    set_image(&mut sim, "c", "new");
    let pull = sim.next_action().unwrap();
    sim.begin(&pull);
    set_image(&mut sim, "c", "old");
    sim.finish(&pull);
    sim.pass(20);
    assert_eq!((sim.starts("c"), sim.state("c").as_str()), (vec![5], "running"));
}

#[test]
fn container_waits_for_its_new_image_and_is_not_terminated() {
    let mut sim = pod("Never");
    sim.pass(10);
    sim.runtime.image_failures = [("ErrImagePull", "no"); 2].into();
    set_image(&mut sim, "c", "new");
    sim.pass(3);
    assert_eq!(
        (sim.state("c").as_str(), sim.last_state("c").as_str()),
        ("waiting ImagePullBackOff", "terminated Completed 0")
    );
    assert_eq!(sim.phase(), "Running");
    sim.pass(60);
    assert_eq!((sim.state("c").as_str(), sim.restarts("c"), sim.phase().as_str()), ("running", 1, "Running"));
}

#[test]
fn image_change_does_not_restart_running_init_container() {
    let mut sim = pod("Always");
    sim.pass(2);
    set_image(&mut sim, "init", "new");
    sim.pass(10);
    assert_eq!((sim.starts("init"), sim.starts("c")), (vec![0], vec![5]));
    assert_eq!(sim.condition("Initialized"), "True");
}

#[test]
fn image_change_does_not_restart_finished_container() {
    let mut sim = pod("Never").script("c", &[Run::Ends(2, 0), Run::Forever]);
    sim.pass(10);
    set_image(&mut sim, "c", "new");
    sim.pass(10);
    assert_eq!((sim.starts("c"), sim.state("c").as_str()), (vec![5], "terminated Completed 0"));
}

#[test]
fn image_change_during_start_restarts_the_container() {
    for changes in [["new", "new"], ["new", "old"]] {
        let mut sim = pod("Always");
        sim.pass(4);
        sim.now += Duration::from_secs(1);
        for (_, event) in sim.runtime.ends(sim.now) {
            sim.observe(event);
        }
        // The spec changes while the start is in flight.
        while !matches!(sim.next_action(), Some(lifecycle::Action::StartContainer { container, .. }) if container == "c")
        {
            let action = sim.next_action().unwrap();
            sim.begin(&action);
            sim.finish(&action);
        }
        let start = sim.next_action().unwrap();
        sim.begin(&start);
        for image in changes {
            set_image(&mut sim, "c", image);
        }
        sim.finish(&start);
        sim.pass(20);
        let restarts = i32::from(changes[1] == "new");
        assert_eq!((sim.restarts("c"), sim.state("c").as_str()), (restarts, "running"), "{changes:?}");
    }
}

#[test]
fn image_change_during_downtime_restarts_the_container() {
    for checkpoint in [true, false] {
        let mut sim = pod("Always");
        sim.pass(10);
        let spec = sim.api.spec.as_mut().unwrap();
        spec.containers[0].image = Some("new".to_owned());
        if checkpoint {
            sim.restart(5);
        } else {
            sim.restart_without_checkpoint(5);
        }
        sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
        sim.pass(10);
        assert_eq!(
            (sim.restarts("c"), sim.container("c").image.as_str()),
            (1, "docker.io/library/new"),
            "checkpoint: {checkpoint}"
        );
        assert_eq!(sim.restarts("other"), 0, "checkpoint: {checkpoint}");
    }
}

#[test]
fn updated_status_has_the_observed_generation() {
    let mut sim = pod("Always");
    sim.pass(10);
    set_image(&mut sim, "c", "new");
    let status = sim.status();
    assert_eq!(status.observed_generation, Some(2));
    assert!(status.conditions.unwrap().iter().all(|c| c.observed_generation == Some(2)));
}

#[test]
fn active_deadline_set_later_counts_from_pod_start() {
    let mut sim = pod("Always");
    sim.pass(10);
    sim.api.spec.as_mut().unwrap().active_deadline_seconds = Some(30);
    sim.observe(PodLifecycleEvent::Updated(Arc::new(sim.api.clone())));
    sim.pass(19);
    assert_eq!(sim.phase(), "Running");
    sim.pass(30);
    assert_eq!((sim.phase().as_str(), sim.status().reason.as_deref()), ("Failed", Some("DeadlineExceeded")));
}

#[test]
fn container_statuses_are_sorted_by_name_except_init() {
    let list = |names: &[&str]| names.iter().map(|n| json!({"name": n, "image": "i"})).collect::<Vec<_>>();
    let mut sim = Sim::new(json!({
        "initContainers": list(&["y", "b"]), "containers": list(&["z", "a"]), "ephemeralContainers": list(&["e", "d"])}));
    for init in ["y", "b"] {
        sim = sim.script(init, &[Run::Ends(1, 0)]);
    }
    sim.pass(5);
    let status = sim.api.status.clone().unwrap();
    let names = |list: Option<Vec<ContainerStatus>>| list.unwrap().into_iter().map(|c| c.name).collect::<Vec<_>>();
    assert_eq!(names(status.init_container_statuses), ["y", "b"]);
    assert_eq!(names(status.container_statuses), ["a", "z"]);
    assert_eq!(names(status.ephemeral_container_statuses), ["d", "e"]);
}
