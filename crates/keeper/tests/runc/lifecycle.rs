//! Creation, exits and deletion.

use crate::{
    attach::attach_stdin,
    support::{ContainerSpec, DEADLINE, Pod, can_run, eventually},
};
use keeper::{Client, Error, ErrorCode, Exit, NamespaceModes, Status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Instant};
use tokio::time::timeout;

fn stored_exit(pod: &Pod, id: &str) -> Exit {
    let path = Client::container_dir(pod.sandbox(), id).join("exit.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn exit_codes_are_stored_and_reported() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    for (name, script, code) in [("a", "exit 0", 0), ("b", "exit 3", 3), ("c", "sleep 1000", 137)] {
        let id = pod.run(name, &ContainerSpec::shell(script)).await;
        if code == 137 {
            pod.client.kill_container(&id, 9, false).await.unwrap();
        }
        let exit = pod.exit(&id).await;
        assert_eq!((exit.exit_code, exit.oom_killed), (code, false));
        assert!(exit.finished_at > 1_700_000_000_000_000_000);
        assert_eq!(stored_exit(&pod, &id), exit);
        let states = pod.client.list_containers().await.unwrap();
        let state = states.iter().find(|state| state.id == id).unwrap();
        assert_eq!((state.status, state.pid, state.exit.as_ref()), (Status::Stopped, None, Some(&exit)));
        let stopped = pod.client.kill_container(&id, 15, false).await.unwrap_err();
        assert_eq!(stopped.code(), Some(ErrorCode::WrongState));
        pod.client.delete_container(&id, false).await.unwrap();
        let missing = pod.client.delete_container(&id, false).await.unwrap_err();
        assert_eq!(missing.code(), Some(ErrorCode::NotFound));
    }
    pod.client.shutdown().await.unwrap();
    assert_eq!(timeout(DEADLINE, pod.events.next()).await.unwrap(), None);
    assert!(!pod.sandbox().join("keeper.sock").exists() && !pod.sandbox().join("keeper.pid").exists());
}

#[tokio::test]
async fn container_inherits_no_signal_mask_or_descriptor() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let script = "grep SigIgn /proc/self/status; grep SigBlk /proc/self/status; umask; ls /proc/self/fd | wc -l";
    let id = pod.run("a", &ContainerSpec::shell(script)).await;
    assert_eq!(pod.exit(&id).await.exit_code, 0);
    let mut texts: Vec<String> = pod.log(&id).into_iter().map(|(_, text)| text).collect();
    let ignored = u64::from_str_radix(texts.remove(0).trim_start_matches("SigIgn:\t"), 16).unwrap();
    assert_eq!(texts, ["SigBlk:\t0000000000000000", "0022", "4"]);
    // Others are ignored by glibc's posix_spawn and by the shell.
    let signals = [nix::libc::SIGPIPE, nix::libc::SIGCHLD, nix::libc::SIGTERM];
    assert!(signals.iter().all(|signal| ignored & (1 << (signal - 1)) == 0), "{ignored:x}");
}

#[tokio::test]
async fn running_container_is_deleted_only_with_force() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    for refused in [pod.client.delete_container(&id, false).await, pod.client.shutdown().await] {
        assert_eq!(refused.unwrap_err().code(), Some(ErrorCode::WrongState));
    }
    let again = pod.client.create_container(&id).await.unwrap_err();
    assert_eq!(again.code(), Some(ErrorCode::AlreadyExists));
    pod.client.delete_container(&id, true).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 137);
    // One that was never started.
    let (id, _) = pod.create("b", &ContainerSpec::shell("true")).await;
    pod.client.delete_container(&id, false).await.unwrap();
    assert_eq!(pod.client.list_containers().await.unwrap(), []);
    pod.client.shutdown().await.unwrap();
}

#[tokio::test]
async fn failed_creation_has_the_text_of_the_runtime() {
    if !can_run() {
        return;
    }
    let pod = Pod::start().await;
    let mut spec = ContainerSpec::shell("true");
    spec.args = vec!["/no/such/program".to_owned()];
    let id = pod.id("a");
    for terminal in [false, true] {
        spec.options.terminal = terminal;
        let run = pod.id(if terminal { "t" } else { "r" });
        pod.prepare(&id, &spec);
        pod.prepare(&run, &spec);
        for error in
            [pod.client.create_container(&id).await, pod.client.run_container(&run).await].map(Result::unwrap_err)
        {
            assert!(error.to_string().contains("/no/such/program") && !error.to_string().contains("level="), "{error}");
            assert_eq!(error.code(), Some(ErrorCode::Runtime));
            assert_eq!(pod.client.list_containers().await.unwrap(), []);
        }
        // The program may have been executed.
        let again = pod.client.run_container(&run).await.unwrap_err();
        assert_eq!(again.code(), Some(ErrorCode::WrongState), "{again}");
    }
    let names = |id: &str| fs::read_dir(Client::container_dir(pod.sandbox(), id)).unwrap().count();
    assert_eq!(names(&id), 2, "files of the runtime are left");
    pod.prepare(&id, &ContainerSpec::shell("true"));
    pod.client.create_container(&id).await.unwrap();
    let missing = pod.client.create_container("missing").await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::Invalid));
    let path = pod.client.create_container("../a").await.unwrap_err();
    assert!(path.to_string().contains("invalid ID"), "{path}");
}

/// Starts a Pod whose OCI runtime is a shell script, with a timeout in seconds.
async fn pod_with_runtime(script: &str, timeout: u64) -> Pod {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.keep().join("runtime");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = program.clone();
    let mut pod = Pod::with(NamespaceModes::default(), move |config| {
        config.runtime.program = path;
        config.runtime.timeout_seconds = timeout;
    })
    .await;
    pod.remove_at_end(program.parent().unwrap());
    pod
}

#[tokio::test]
async fn runtime_that_hangs_is_killed() {
    if !can_run() {
        return;
    }
    let pod = pod_with_runtime("sleep 1000 & echo $! > \"$2.pid\"; wait", 8).await;
    let id = pod.id("a");
    pod.prepare(&id, &ContainerSpec::shell("true"));
    let error = pod.client.create_container(&id).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Deadline));
    // The deletion of what is left writes the file again, and may have emptied it.
    let mut child = String::new();
    eventually("the process ID of the child", || {
        child = fs::read_to_string(pod.sandbox().join("state.pid")).unwrap_or_default();
        !child.trim().is_empty()
    })
    .await;
    eventually("the end of the child", || !Path::new(&format!("/proc/{}", child.trim())).exists()).await;
    // The deletion of what is left hangs, too.
    let deadline = Instant::now() + DEADLINE;
    while !pod.client.list_containers().await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the container is left");
        tokio::task::yield_now().await;
    }
    pod.client.shutdown().await.unwrap();
}

#[tokio::test]
async fn runtime_without_a_log_has_its_stderr_as_text() {
    if !can_run() {
        return;
    }
    let pod = pod_with_runtime("echo the reason >&2; exit 9", 60).await;
    let id = pod.id("a");
    for terminal in [false, true] {
        let mut spec = ContainerSpec::shell("true");
        spec.options.terminal = terminal;
        pod.prepare(&id, &spec);
        let error = pod.client.create_container(&id).await.unwrap_err();
        assert!(error.to_string().contains("the reason"), "{error}");
    }
}

#[tokio::test]
async fn memory_limit_is_reported_as_oom_kill() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let mut spec = ContainerSpec::shell("exec dd if=/dev/zero of=/dev/null bs=256M count=1");
    // The OCI runtime needs some of it before the program runs.
    spec.memory = Some(64 << 20);
    let id = pod.run("a", &spec).await;
    let exit = pod.exit(&id).await;
    assert_eq!((exit.exit_code, exit.oom_killed), (137, true));
    // A limit that is set later.
    let mut spec = ContainerSpec::shell("echo ready; read x; exec dd if=/dev/zero of=/dev/null bs=256M count=1");
    spec.options.stdin = true;
    let id = pod.run("b", &spec).await;
    eventually("output", || pod.log(&id).len() == 1).await;
    let limit = serde_json::value::to_raw_value(&serde_json::json!({ "memory": { "limit": 64 << 20 } })).unwrap();
    pod.client.update_resources(&id, limit).await.unwrap();
    attach_stdin(&pod, &id).await.write_all(b"\n").unwrap();
    let exit = pod.exit(&id).await;
    assert_eq!((exit.exit_code, exit.oom_killed), (137, true));
}

#[tokio::test]
async fn new_client_continues_after_the_old_one() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let script = "trap 'exit 7' TERM; echo ready; while true; do sleep 0.1; done";
    let (id, pid) = pod.create("a", &ContainerSpec::shell(script)).await;
    pod.client = Client::connect(pod.sandbox()).await.unwrap();
    assert_eq!(timeout(DEADLINE, pod.events.next()).await.unwrap(), None);
    pod.events = pod.client.subscribe().await.unwrap();
    let states = pod.client.list_containers().await.unwrap();
    assert_eq!((states[0].status, states[0].pid), (Status::Created, Some(pid)));
    pod.client.start_container(&id).await.unwrap();
    // The OCI runtime reports the start before the program is executed.
    eventually("output", || pod.log(&id).len() == 1).await;
    pod.client.kill_container(&id, 15, false).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 7);
}

const SANDBOX: &str = "KEEPER_TEST_SANDBOX";
const CONTAINER: &str = "KEEPER_TEST_CONTAINER";

/// The client that is killed: it does nothing without the environment of the next test.
#[tokio::test]
async fn client_process() {
    let (Ok(sandbox), Ok(id)) = (std::env::var(SANDBOX), std::env::var(CONTAINER)) else { return };
    let client = Client::connect(sandbox.as_ref()).await.unwrap();
    client.create_container(&id).await.unwrap();
    client.start_container(&id).await.unwrap();
    fs::write(format!("{sandbox}/started"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn containers_survive_a_killed_client() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.id("a");
    pod.prepare(&id, &ContainerSpec::shell("echo before; while [ ! -e /proc/self/nothing ]; do sleep 0.1; done"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "lifecycle::client_process"]).env(SANDBOX, pod.sandbox()).env(CONTAINER, &id);
    let mut client = command.spawn().unwrap();
    let marker = pod.sandbox().join("started");
    eventually("a started container", || marker.exists()).await;
    client.kill().unwrap();
    client.wait().unwrap();
    let states = pod.client.list_containers().await.unwrap();
    assert_eq!(states[0].status, Status::Running);
    eventually("output", || pod.log(&id).len() == 1).await;
    pod.client.kill_container(&id, 9, true).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 137);
}

#[tokio::test]
async fn killed_keeper_ends_calls_and_events() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let (id, pid) = pod.create("a", &ContainerSpec::shell("true")).await;
    kill(Pid::from_raw(pod.keeper_pid()), Signal::SIGKILL).unwrap();
    let error = pod.client.start_container(&id).await.unwrap_err();
    assert!(matches!(error, Error::Disconnected), "{error}");
    assert_eq!(timeout(DEADLINE, pod.events.next()).await.unwrap(), None);
    assert!(matches!(pod.client.list_containers().await, Err(Error::Disconnected)));
    let keeper = format!("/proc/{}", pod.keeper_pid());
    eventually("the end of the keeper", || !Path::new(&keeper).exists()).await;
    assert!(matches!(Client::connect(pod.sandbox()).await, Err(Error::Connect(_))));
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    // Another keeper takes the place.
    let program = Path::new(env!("CARGO_BIN_EXE_test-keeper"));
    pod.client = Client::spawn(program, pod.sandbox()).await.unwrap();
    let second = Client::spawn(program, pod.sandbox()).await.unwrap_err().to_string();
    assert!(second.contains("another keeper runs"), "{second}");
}
