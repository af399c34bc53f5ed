//! Logs.

use crate::{
    attach::attach_stdin,
    support::{ContainerSpec, Pod, can_run, entries, eventually},
};
use keeper::ErrorCode;
use std::{fs, io::Write};

#[tokio::test]
async fn log_is_complete_when_the_exit_is_reported() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    for round in 0..3 {
        let id = pod.run(&format!("a{round}"), &ContainerSpec::shell("seq 1 100000")).await;
        assert_eq!(pod.exit(&id).await.exit_code, 0);
        let log = pod.log(&id);
        assert_eq!(log.len(), 100_000);
        assert!(log.iter().zip(1..).all(|((stream, text), n)| stream == "stdout" && *text == n.to_string()));
    }
}

#[tokio::test]
async fn streams_and_unfinished_lines_are_logged() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("echo out; echo err >&2; printf end")).await;
    pod.exit(&id).await;
    let mut log = pod.log(&id);
    log.sort();
    let expected = [("stderr", "err"), ("stdout", "end"), ("stdout", "out")];
    assert_eq!(log, expected.map(|(stream, text)| (stream.to_owned(), text.to_owned())));
}

#[tokio::test]
async fn rotation_under_load_loses_no_line() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let mut spec = ContainerSpec::shell(
        "for n in 0 1 2 3 4 5 6 7; do read x; seq $((n * 125000 + 1)) $(((n + 1) * 125000)); done",
    );
    spec.options.stdin = true;
    let id = pod.run("a", &spec).await;
    let mut stdin = attach_stdin(&pod, &id).await;
    let rotated = |number| pod.sandbox().join(format!("rotated.{number}"));
    for number in 0..8 {
        // The log is rotated as soon as something is written, while more is.
        stdin.write_all(b"\n").unwrap();
        eventually("output", || fs::metadata(pod.log_path(&id)).unwrap().len() > 0).await;
        fs::rename(pod.log_path(&id), rotated(number)).unwrap();
        pod.client.reopen_log(&id).await.unwrap();
    }
    let mut log = Vec::new();
    for number in 0..8 {
        log.extend(entries(&fs::read_to_string(rotated(number)).unwrap()));
    }
    assert_eq!(pod.exit(&id).await.exit_code, 0);
    // A rotation that begins before the exit is known and continues after it hides nothing.
    let refused = pod.client.reopen_log(&id).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::WrongState), "{refused}");
    log.extend(pod.log(&id));
    assert_eq!(log.len(), 1_000_000);
    assert!(log.iter().zip(1..).all(|((_, text), n)| *text == n.to_string()));
}

#[tokio::test]
async fn container_runs_without_its_log_directory() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let (id, _) = pod.create("a", &ContainerSpec::shell("seq 1 100000; exit 5")).await;
    fs::remove_file(pod.log_path(&id)).unwrap();
    fs::create_dir(pod.log_path(&id)).unwrap();
    pod.client.reopen_log(&id).await.unwrap_err();
    pod.client.start_container(&id).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 5);
}
