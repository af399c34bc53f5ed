//! Starts that are interrupted by the end of Podium or of a connection.

use crate::support::{Node, TestEngine, container, eventually, start_with_sandbox};
use futures::StreamExt;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use runtime::{ContainerId, ContainerState, Runtime, RuntimeError, RuntimeEvent};
use rustix::{
    net::{Shutdown, SocketAddrUnix, getpeername, shutdown},
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};
use std::{fs, path::Path, time::Duration};
use tokio::task::JoinHandle;

const SCRIPT: &str = "echo ran; exit 7";

/// Begins the start of a container, whose run of the OCI runtime waits until the file `run` is removed.
fn begin_start(node: &Node, engine: &TestEngine, id: &ContainerId) -> JoinHandle<Result<(), RuntimeError>> {
    fs::write(node.path("run"), "").unwrap();
    let (runtime, id) = ((**engine).clone(), id.clone());
    let start = engine.begin(async move { runtime.start_container(&id).await });
    eventually("the OCI runtime to begin", || node.path("run-began").exists());
    start
}

#[test]
fn start_is_completed_after_the_end_of_podium() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let id = engine.create(&node, &sandbox, &container("c", SCRIPT));
    begin_start(&node, &engine, &id);
    drop(engine);
    let engine = node.start();
    assert_eq!(engine.status(&id).state, ContainerState::Running);
    fs::remove_file(node.path("run")).unwrap();
    assert_eq!(engine.exit_code(&id), 7);
    assert_eq!(node.log("c"), ["ran"]);
    // The next one has the exit from disk.
    drop(engine);
    assert_eq!(node.start().exit_code(&id), 7);
}

#[test]
fn container_that_never_ran_can_be_started_again() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let id = engine.create(&node, &sandbox, &container("c", SCRIPT));
    drop(engine);
    // Podium ended before the keeper got the request.
    let path = node.container_dir(&sandbox, &id).join("record.json");
    let record = fs::read_to_string(&path).unwrap();
    assert!(record.contains(r#""startedAt":null"#), "{record}");
    fs::write(&path, record.replace(r#""startedAt":null"#, r#""startedAt":"2026-01-01T00:00:00Z""#)).unwrap();
    let engine = node.start();
    assert_eq!(engine.status(&id).state, ContainerState::Created);
    engine.run(engine.start_container(&id)).unwrap();
    assert_eq!(engine.exit_code(&id), 7);
    engine.run(engine.start_container(&id)).unwrap_err();
    assert_eq!(node.log("c"), ["ran"]);
}

#[test]
fn killed_keeper_leaves_no_start_behind() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let id = engine.create(&node, &sandbox, &container("c", SCRIPT));
    let start = begin_start(&node, &engine, &id);
    kill(Pid::from_raw(node.keeper_pid(&sandbox)), Signal::SIGKILL).unwrap();
    engine.run(start).unwrap().unwrap_err();
    eventually("the end of the sandbox", || !engine.run(engine.sandbox(&sandbox)).unwrap().ready);
    eventually("an exit", || engine.status(&id).state == ContainerState::Exited);
    // The orphaned run would continue now.
    let marker = node.path("slow-runc").display().to_string();
    let is_run = |entry: fs::DirEntry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&marker))
    };
    assert!(!fs::read_dir("/proc").unwrap().flatten().any(is_run));
    assert_eq!(node.log("c"), [""; 0]);
}

/// Cuts the connections of this process to keepers below a directory.
fn cut_connections(dir: &Path) {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let mut cut = 0;
    for entry in fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(number) = entry.file_name().to_str().unwrap().parse() else { continue };
        let Ok(socket) = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()) else { continue };
        let Ok(Some(peer)) = getpeername(&socket) else { continue };
        let Ok(address) = SocketAddrUnix::try_from(peer) else { continue };
        let is_keeper = address.path_bytes().is_some_and(|path| path.ends_with(b"keeper.sock"));
        // The address is relative to a descriptor of the keeper: its peer tells which one it is.
        let Ok(credentials) = rustix::net::sockopt::socket_peercred(&socket) else { continue };
        let command =
            fs::read_to_string(format!("/proc/{}/cmdline", credentials.pid.as_raw_nonzero())).unwrap_or_default();
        if is_keeper && command.contains(dir.to_str().unwrap()) {
            shutdown(&socket, Shutdown::Both).unwrap();
            cut += 1;
        }
    }
    assert_eq!(cut, 1);
}

#[test]
fn exit_during_a_cut_connection_is_reported() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let id = engine.create(&node, &sandbox, &container("c", "echo ready; exec sleep 1000"));
    engine.run(engine.start_container(&id)).unwrap();
    eventually("output", || node.log("c").len() == 1);
    let mut events = engine.events();
    assert_eq!(engine.run(events.next()), Some(RuntimeEvent::Resync));
    // The keeper observes all at once: the exit, the end of the connection, and the new one.
    let keeper = Pid::from_raw(node.keeper_pid(&sandbox));
    kill(keeper, Signal::SIGSTOP).unwrap();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
    // A child of the OCI runtime may not have been reaped yet.
    for child in children.split_whitespace() {
        kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    cut_connections(&node.path("data"));
    kill(keeper, Signal::SIGCONT).unwrap();
    let resync = async { events.by_ref().any(|event| std::future::ready(event == RuntimeEvent::Resync)).await };
    let is_reported = engine.run(async { tokio::time::timeout(Duration::from_secs(20), resync).await });
    assert_eq!(is_reported, Ok(true));
    // The keeper may answer the new connection before it has read the rest of the output.
    eventually("the exit", || engine.status(&id).exit.is_some());
    let status = engine.status(&id);
    assert_eq!((status.state, status.exit.unwrap().code), (ContainerState::Exited, 137));
    assert!(engine.run(engine.sandbox(&sandbox)).unwrap().ready);
}

#[test]
fn start_continues_after_a_cut_connection() {
    let Some((node, engine, sandbox)) = start_with_sandbox() else { return };
    let id = engine.create(&node, &sandbox, &container("c", SCRIPT));
    let start = begin_start(&node, &engine, &id);
    cut_connections(&node.path("data"));
    fs::remove_file(node.path("run")).unwrap();
    engine.run(start).unwrap().unwrap();
    assert_eq!(engine.exit_code(&id), 7);
    assert_eq!(node.log("c"), ["ran"]);
}
