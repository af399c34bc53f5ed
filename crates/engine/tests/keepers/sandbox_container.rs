//! OCI runtimes that run a Pod in one sandbox, as gVisor's `runsc`, for which a script stands in.

use crate::support::{Node, TestEngine, can_run, container, eventually};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::{ContainerId, ContainerState, IdMapping, NamespaceMode, Runtime, RuntimeError, SandboxId, StopSignal};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

fn start() -> Option<(Node, TestEngine)> {
    if !can_run() {
        return None;
    }
    let node = Node::with_sandboxes();
    node.import_busybox();
    let engine = node.start();
    Some((node, engine))
}

/// Returns the calls of the OCI runtime, with their verbs first.
fn calls(node: &Node) -> Vec<String> {
    let text = fs::read_to_string(node.path("sandbox-runtime.calls")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Returns the verbs of the calls for a container, in order.
fn verbs(node: &Node, id: &str) -> Vec<String> {
    let of_container = calls(node).into_iter().filter(|call| call.split(' ').any(|word| word == id));
    of_container.map(|call| call.split(' ').next().unwrap().to_owned()).collect()
}

fn run(node: &Node, engine: &TestEngine, sandbox: &SandboxId, name: &str, script: &str) -> ContainerId {
    let id = engine.create(node, sandbox, &container(name, script));
    engine.run(engine.start_container(&id)).unwrap();
    id
}

fn is_ready(engine: &TestEngine, sandbox: &SandboxId) -> bool {
    engine.run(engine.sandbox(sandbox)).unwrap().ready
}

/// Lets the OCI runtime fail in the way of this name, until the file is removed.
fn fail(node: &Node, way: &str) -> PathBuf {
    let path = node.path(&format!("sandbox-runtime.{way}"));
    fs::write(&path, "").unwrap();
    path
}

/// Returns the ID of the last sandbox container that was run.
fn last_sandbox(node: &Node) -> SandboxId {
    let call = calls(node).into_iter().rfind(|call| call.starts_with("run ")).unwrap();
    SandboxId(call.rsplit(' ').next().unwrap().to_owned())
}

/// Returns the process of the sandbox container.
fn sandbox_pid(sandbox: &SandboxId) -> Pid {
    let path = Path::new("/run/podium/oci").join(&sandbox.0).join("stand-in/sandbox");
    Pid::from_raw(fs::read_to_string(path).unwrap().trim().parse().unwrap())
}

fn is_alive(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn exits_of_containers_come_from_the_sandbox() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    assert_eq!(verbs(&node, &sandbox.0), ["run"]);
    let command_line = format!("/proc/{}/cmdline", sandbox_pid(&sandbox));
    // `runc` ends before its process executes the program.
    eventually("the pause program", || fs::read_to_string(&command_line).unwrap() == "/pause\0");
    let config = node.container_dir(&sandbox, &ContainerId(sandbox.0.clone())).join("config.json");
    let config: serde_json::Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
    assert_eq!(config["hostname"], "p");
    let fails = run(&node, &engine, &sandbox, "fails", "echo text; exit 3");
    let killed = run(&node, &engine, &sandbox, "killed", "exec sleep 1000");
    let polite = run(&node, &engine, &sandbox, "polite", "trap 'exit 7' TERM; echo ready; sleep 1000 & wait");
    assert_eq!((engine.exit_code(&fails), node.log("fails")), (3, vec!["text".to_owned()]));
    engine.run(engine.stop_container(&killed, Duration::ZERO, None)).unwrap();
    assert_eq!(engine.exit_code(&killed), 137);
    eventually("a handler of the signal", || node.log("polite") == ["ready"]);
    engine.run(engine.stop_container(&polite, Duration::from_secs(60), None)).unwrap();
    assert_eq!(engine.exit_code(&polite), 7);
    assert!(is_ready(&engine, &sandbox));
    let missing = engine.create(&node, &sandbox, &{
        let mut missing = container("missing", "");
        missing.command = vec!["/no-such-program".to_owned()];
        missing
    });
    let error = engine.run(engine.start_container(&missing)).unwrap_err().to_string();
    assert!(error.contains("no-such-program") && engine.exit_code(&missing) == 128, "{error}");
    // Killed when the sandbox is stopped.
    let running = run(&node, &engine, &sandbox, "running", "exec sleep 1000");
    let process = sandbox_pid(&sandbox);
    engine.run(engine.stop_sandbox(&sandbox)).unwrap();
    assert_eq!((engine.exit_code(&running), is_alive(process)), (137, false));
    assert_eq!(verbs(&node, &sandbox.0), ["run", "delete"]);
    assert!(calls(&node).last().unwrap().contains(&sandbox.0), "the sandbox container is deleted last");
    engine.run(engine.remove_sandbox(&sandbox)).unwrap();
    assert!(!Path::new("/run/podium/oci").join(&sandbox.0).exists());
}

#[test]
fn exec_is_killed_in_the_sandbox() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "a", "exec sleep 1000");
    let exec = |script: &str, timeout| {
        let command = ["sh", "-c", script].map(str::to_owned);
        engine.run(engine.exec_sync(&id, &command, timeout))
    };
    let output = exec("echo here; exit 5", Duration::from_secs(60)).unwrap();
    assert_eq!((output.code, output.stdout.as_slice()), (5, b"here\n".as_slice()));
    let late = exec("exec sleep 1000", Duration::from_secs(1)).unwrap_err();
    assert!(matches!(late, RuntimeError::Deadline(_)), "{late}");
    eventually("a signal in the sandbox", || calls(&node).iter().any(|call| call.starts_with("kill --pid 5")));
    eventually("the end of the command", || {
        let output = exec("ps | grep -c '[s]leep 1000'", Duration::from_secs(60)).unwrap();
        output.stdout == b"1\n"
    });
}

#[test]
fn end_of_the_sandbox_container_ends_the_sandbox() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "a", "exec sleep 1000");
    kill(sandbox_pid(&sandbox), Signal::SIGKILL).unwrap();
    assert_eq!(engine.exit_code(&id), 137);
    eventually("the end of the sandbox", || !is_ready(&engine, &sandbox));
    engine.run(engine.remove_sandbox(&sandbox)).unwrap();
    assert!(engine.run(engine.sandboxes()).unwrap().is_empty());
    // The kubelet creates another one.
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "a", "exit 4");
    assert_eq!(engine.exit_code(&id), 4);
}

#[test]
fn sandbox_container_is_taken_over_by_the_next_engine() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let lives = run(&node, &engine, &sandbox, "lives", "exec sleep 1000");
    let ends = run(&node, &engine, &sandbox, "ends", "while [ ! -e /tmp/end ]; do sleep 0.02; done; exit 6");
    let end = ["sh", "-c", "touch /tmp/end"].map(str::to_owned);
    engine.run(engine.exec_sync(&ends, &end, Duration::from_secs(60))).unwrap();
    drop(engine);

    let engine = node.start();
    assert_eq!((engine.exit_code(&ends), engine.status(&lives).state), (6, ContainerState::Running));
    assert!(is_ready(&engine, &sandbox));
    assert_eq!(engine.run(engine.containers()).unwrap().len(), 2, "the sandbox container is none of the kubelet's");
    drop(engine);

    // Ended while no engine ran.
    kill(sandbox_pid(&sandbox), Signal::SIGKILL).unwrap();
    let engine = node.start();
    assert_eq!(engine.exit_code(&lives), 137);
    // The keeper may learn of it after the engine has started.
    eventually("the end of the sandbox", || !is_ready(&engine, &sandbox));
    engine.run(engine.remove_sandbox(&sandbox)).unwrap();

    // Nothing runs without a keeper.
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "b", "exec sleep 1000");
    let process = sandbox_pid(&sandbox);
    kill(Pid::from_raw(node.keeper_pid(&sandbox)), Signal::SIGKILL).unwrap();
    assert_eq!(engine.exit_code(&id), 137);
    eventually("the end of the sandbox", || !is_ready(&engine, &sandbox) && !is_alive(process));
}

#[test]
fn shared_process_namespace_is_that_of_the_sandbox() {
    let Some((node, engine)) = start() else { return };
    let mut config = node.sandbox_config();
    config.namespaces.pid = NamespaceMode::Pod;
    let sandbox = engine.run((*engine).run_sandbox(&config)).unwrap();
    let mut shares = container("a", "cat /proc/1/cmdline; echo; (sleep 1000 &); exit 0");
    shares.security.namespaces.pid = NamespaceMode::Pod;
    let id = engine.run(engine.create_container(&sandbox, &shares, &config)).unwrap();
    engine.run(engine.start_container(&id)).unwrap();
    assert_eq!(engine.exit_code(&id), 0);
    assert_eq!(node.log("a"), ["/pause\0"]);
    assert!(is_ready(&engine, &sandbox));
}

#[test]
fn what_a_sandbox_does_not_have_is_an_error() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let target = run(&node, &engine, &sandbox, "a", "exec sleep 1000");
    let mut debugs = container("b", "exit 0");
    debugs.security.target_container = Some(target);
    let check = |error: RuntimeError, expected: &str| assert!(error.to_string().contains(expected), "{error}");
    let created = engine.run(engine.create_container(&sandbox, &debugs, &node.sandbox_config()));
    check(created.unwrap_err(), "process namespace of one container");
    check(engine.run(engine.port_forward(&sandbox, 80)).err().unwrap(), "port forwarding");
    let mut config = node.sandbox_config();
    (config.attempt, config.namespaces.users) = (1, Some(IdMapping { host_id: 1 << 20, length: 1 << 16 }));
    check(engine.run((*engine).run_sandbox(&config)).unwrap_err(), "user namespaces");
    (config.namespaces.users, config.namespaces.network) = (None, NamespaceMode::Node);
    check(engine.run((*engine).run_sandbox(&config)).unwrap_err(), "--network=host");
}

#[test]
fn sandbox_container_is_deleted_after_its_keeper_was_killed() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let process = sandbox_pid(&sandbox);
    let blocks = fail(&node, "blocks-delete");
    let (runtime, id) = ((*engine).clone(), sandbox.clone());
    let stop = engine.begin(async move { runtime.stop_sandbox(&id).await });
    eventually("the deletion to begin", || verbs(&node, &sandbox.0) == ["run", "delete"]);
    kill(Pid::from_raw(node.keeper_pid(&sandbox)), Signal::SIGKILL).unwrap();
    engine.run(stop).unwrap().unwrap_err();
    assert!(is_alive(process));
    fs::remove_file(blocks).unwrap();

    let refuses = fail(&node, "refuses-delete");
    // Before the end of the keeper is known, the error is another one.
    eventually("the refusal of the OCI runtime", || {
        let refused = engine.run(engine.remove_sandbox(&sandbox)).unwrap_err().to_string();
        refused.contains("the sandbox cannot be deleted")
    });
    assert!(!is_alive(process));
    fs::remove_file(refuses).unwrap();
    engine.run(engine.stop_sandbox(&sandbox)).unwrap();
    engine.run(engine.remove_sandbox(&sandbox)).unwrap();
    assert!(engine.run(engine.sandboxes()).unwrap().is_empty());
}

#[test]
fn incomplete_sandbox_is_kept_until_its_container_is_deleted() {
    let Some((node, engine)) = start() else { return };
    let (fails, refuses) = (fail(&node, "fails"), fail(&node, "refuses-delete"));
    engine.run((*engine).run_sandbox(&node.sandbox_config())).unwrap_err();
    let sandbox = last_sandbox(&node);
    let (dir, process) = (node.path("data/engine/pods").join(&sandbox.0), sandbox_pid(&sandbox));
    assert!(dir.exists() && !is_alive(process));
    drop(engine);
    for way in [fails, refuses] {
        fs::remove_file(way).unwrap();
    }
    let engine = node.start();
    assert!(!dir.exists() && !Path::new("/run/podium/oci").join(&sandbox.0).exists());
    engine.run_sandbox(&node);
}

#[test]
fn sandbox_that_ends_during_its_creation_is_an_error() {
    let Some((node, engine)) = start() else { return };
    let dies = fail(&node, "dies");
    let error = engine.run((*engine).run_sandbox(&node.sandbox_config())).unwrap_err().to_string();
    let sandbox = last_sandbox(&node);
    assert_eq!(error, format!("the sandbox container of {} has ended", sandbox.0));
    assert!(!node.path("data/engine/pods").join(&sandbox.0).exists());
    fs::remove_file(dies).unwrap();
    engine.run_sandbox(&node);
}

#[test]
fn sandbox_that_hangs_is_killed() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "a", "exec sleep 1000");
    let process = sandbox_pid(&sandbox);
    fail(&node, "hangs");
    engine.run(engine.stop_container(&id, Duration::from_secs(1), None)).unwrap();
    assert_eq!((engine.exit_code(&id), is_alive(process)), (137, false));
    // The kubelet repeats it while the keeper ends.
    eventually("the removal", || engine.run(engine.remove_sandbox(&sandbox)).is_ok());
}

#[test]
fn container_is_killed_whose_stop_signal_is_refused() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    let id = run(&node, &engine, &sandbox, "a", "exec sleep 1000");
    let signal = StopSignal::parse("SIGRTMIN+3");
    engine.run(engine.stop_container(&id, Duration::from_secs(3600), signal)).unwrap();
    assert_eq!((engine.exit_code(&id), is_ready(&engine, &sandbox)), (137, true));
}

#[test]
fn exits_before_the_end_of_the_sandbox_are_reported() {
    let Some((node, engine)) = start() else { return };
    let sandbox = engine.run_sandbox(&node);
    fail(&node, "waits");
    let id = run(&node, &engine, &sandbox, "a", "echo last; exit 6");
    let exit = Path::new("/run/podium/oci").join(&sandbox.0).join(format!("stand-in/{}.exit", id.0));
    eventually("the end of the container", || exit.exists());
    kill(sandbox_pid(&sandbox), Signal::SIGKILL).unwrap();
    assert_eq!((engine.exit_code(&id), node.log("a")), (6, vec!["last".to_owned()]));
    eventually("the end of the sandbox", || !is_ready(&engine, &sandbox));
}
