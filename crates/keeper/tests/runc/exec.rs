//! Processes in running containers.

use crate::support::{ContainerSpec, DEADLINE, Pod, can_run};
use keeper::{ErrorCode, ExecStreams};
use std::{
    fs::File,
    io::{Read, Write, pipe},
    path::Path,
};

const NO_STREAMS: ExecStreams = ExecStreams::Descriptors { stdin: None, stdout: None, stderr: None };

#[tokio::test]
async fn exec_has_the_descriptors_of_the_client() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    let (stdin, mut input) = pipe().unwrap();
    let (mut output, stdout) = pipe().unwrap();
    let (mut errors, stderr) = pipe().unwrap();
    let process = pod.process("cat; ls /proc/self/fd | wc -l; echo problem >&2; exit 4", false);
    let (stdin, stdout, stderr) = (Some(stdin.into()), Some(stdout.into()), Some(stderr.into()));
    let streams = ExecStreams::Descriptors { stdin, stdout, stderr };
    let exec = pod.client.exec(&id, "e1", &process, streams).await.unwrap();
    assert!(exec.pid > 1 && exec.terminal.is_none());
    input.write_all(b"text\n").unwrap();
    drop(input);
    assert_eq!(pod.exec_exit("e1").await, 4);
    let (mut text, mut problem) = (String::new(), String::new());
    output.read_to_string(&mut text).unwrap();
    errors.read_to_string(&mut problem).unwrap();
    // Stdin, stdout, stderr and the directory: no descriptor of the keeper is inherited.
    assert_eq!((text.as_str(), problem.as_str()), ("text\n4\n", "problem\n"));
    for round in 0..20 {
        let name = format!("r{round}");
        pod.client.exec(&id, &name, &pod.process("exit 0", false), NO_STREAMS).await.unwrap();
        assert_eq!(pod.exec_exit(&name).await, 0);
    }
}

#[tokio::test]
async fn exec_with_terminal_returns_its_master() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    let process = pod.process("read x; stty size; echo got $x; read y; exit 6", true);
    let exec = pod.client.exec(&id, "t", &process, ExecStreams::Terminal).await.unwrap();
    let terminal = exec.terminal.unwrap();
    let size = rustix::termios::Winsize { ws_row: 33, ws_col: 99, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let mut terminal = File::from(terminal);
    terminal.write_all(b"word\n").unwrap();
    let mut reader = terminal.try_clone().unwrap();
    let read = tokio::task::spawn_blocking(move || {
        let (mut text, mut buffer) = (String::new(), [0; 1024]);
        while !text.contains("got word") {
            let count = reader.read(&mut buffer).unwrap();
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        text
    });
    let text = tokio::time::timeout(DEADLINE, read).await.expect("output in time").unwrap();
    assert!(text.contains("33 99"), "{text}");
    terminal.write_all(b"\n").unwrap();
    assert_eq!(pod.exec_exit("t").await, 6);
}

#[tokio::test]
async fn exec_is_killed() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    let process = pod.process("exec sleep 1001", false);
    pod.client.exec(&id, "e", &process, NO_STREAMS).await.unwrap();
    let again = pod.client.exec(&id, "e", &process, NO_STREAMS).await.unwrap_err();
    assert_eq!(again.code(), Some(ErrorCode::AlreadyExists));
    pod.client.kill_exec(&id, "e", 9).await.unwrap();
    assert_eq!(pod.exec_exit("e").await, 137);
    assert_eq!(pod.client.kill_exec(&id, "e", 9).await.unwrap_err().code(), Some(ErrorCode::NotFound));
}

#[tokio::test]
async fn exec_fails_with_a_text() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    let process = pod.sandbox().join("bad.json");
    std::fs::write(&process, r#"{"user":{"uid":0,"gid":0},"args":["/no/such"],"cwd":"/","env":[]}"#).unwrap();
    let error = pod.client.exec(&id, "e", &process, NO_STREAMS).await.unwrap_err();
    assert!(error.to_string().contains("/no/such"), "{error}");
    pod.client.kill_container(&id, 9, false).await.unwrap();
    pod.exit(&id).await;
    let stopped = pod.client.exec(&id, "e", Path::new("/"), NO_STREAMS).await.unwrap_err();
    assert_eq!(stopped.code(), Some(ErrorCode::WrongState));
    assert_eq!(stopped.to_string(), format!("container {id} is stopped"));
}
