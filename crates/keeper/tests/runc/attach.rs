//! Attachments and terminals.

use crate::support::{ContainerSpec, DEADLINE, Pod, can_run};
use keeper::{AttachStreams, ErrorCode};
use std::{
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    time::Instant,
};

async fn attach_stdout(pod: &Pod, id: &str) -> PipeReader {
    let (reader, writer) = pipe().unwrap();
    let streams = AttachStreams { stdout: Some(writer.into()), ..AttachStreams::default() };
    pod.client.attach(id, streams).await.unwrap();
    reader
}

pub(crate) async fn attach_stdin(pod: &Pod, id: &str) -> PipeWriter {
    let (reader, writer) = pipe().unwrap();
    let streams = AttachStreams { stdin: Some(reader.into()), ..AttachStreams::default() };
    pod.client.attach(id, streams).await.unwrap();
    writer
}

async fn read_all(mut reader: PipeReader) -> String {
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    tokio::time::timeout(DEADLINE, read).await.expect("the end in time").unwrap()
}

/// Reads until the text contains a word.
async fn read_until(mut reader: PipeReader, word: &'static str) -> (PipeReader, String) {
    let read = tokio::task::spawn_blocking(move || {
        let (mut text, mut buffer) = (String::new(), vec![0; 64 << 10]);
        let deadline = Instant::now() + DEADLINE;
        while !text.contains(word) {
            let count = reader.read(&mut buffer).unwrap();
            assert!(count > 0 && Instant::now() < deadline, "{text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        (reader, text)
    });
    tokio::time::timeout(DEADLINE, read).await.expect("text in time").unwrap()
}

#[tokio::test]
async fn slow_reader_stops_neither_container_nor_others() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    // Each part is less than what waits for a reader, and all are more.
    let parts = ["100000\n", "200000\n", "300000\n", "400000\n", "500000\n"];
    let script = "for n in 0 1 2 3 4; do seq $((n * 100000 + 1)) $(((n + 1) * 100000)); read x; done";
    let mut spec = ContainerSpec::shell(script);
    spec.options.stdin = true;
    let (id, _) = pod.create("a", &spec).await;
    let slow = attach_stdout(&pod, &id).await;
    let mut fast = vec![attach_stdout(&pod, &id).await, attach_stdout(&pod, &id).await];
    pod.client.start_container(&id).await.unwrap();
    let mut stdin = attach_stdin(&pod, &id).await;
    let mut expected = String::new();
    for (first, last) in (1..).step_by(100_000).zip(parts) {
        let part: String = (first..first + 100_000).map(|n| format!("{n}\n")).collect();
        for reader in std::mem::take(&mut fast) {
            let (reader, text) = read_until(reader, last).await;
            assert!(text == part, "output of an attachment is incomplete");
            fast.push(reader);
        }
        expected.push_str(&part);
        stdin.write_all(b"\n").unwrap();
    }
    assert_eq!(pod.exit(&id).await.exit_code, 0);
    for reader in fast {
        assert_eq!(read_all(reader).await, "");
    }
    assert_eq!(pod.log(&id).len(), 500_000);
    let text = read_all(slow).await;
    assert!(text.len() < expected.len() && expected.starts_with(&text), "{}", text.len());
    let ended = pod.client.attach(&id, AttachStreams::default()).await.unwrap_err();
    assert_eq!(ended.code(), Some(ErrorCode::WrongState));
}

#[tokio::test]
async fn input_of_several_attachments_reaches_the_container() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let mut spec = ContainerSpec::shell("read x; echo $x; sleep 0.5; cat");
    spec.options.stdin = true;
    let (id, _) = pod.create("a", &spec).await;
    let output = attach_stdout(&pod, &id).await;
    pod.client.start_container(&id).await.unwrap();
    let mut first = attach_stdin(&pod, &id).await;
    first.write_all(b"one\n").unwrap();
    let (output, _) = read_until(output, "one").await;
    drop(first);
    let mut second = attach_stdin(&pod, &id).await;
    // More than the pipe of the container holds.
    let text = "x".repeat(300_000) + "\nend\n";
    let reading = tokio::spawn(read_until(output, "end\n"));
    let copy = text.clone();
    tokio::task::spawn_blocking(move || second.write_all(copy.as_bytes()).unwrap()).await.unwrap();
    let (_, read) = reading.await.unwrap();
    assert!(read.ends_with(&text), "{}", read.len());
    assert_eq!(pod.client.list_containers().await.unwrap()[0].exit, None);
    pod.client.close_stdin(&id).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 0);
}

#[tokio::test]
async fn stdin_once_ends_with_the_first_attachment() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let mut spec = ContainerSpec::shell("cat");
    (spec.options.stdin, spec.options.stdin_once) = (true, true);
    let (id, _) = pod.create("a", &spec).await;
    pod.client.start_container(&id).await.unwrap();
    let mut stdin = attach_stdin(&pod, &id).await;
    stdin.write_all(b"text\n").unwrap();
    drop(stdin);
    assert_eq!(pod.exit(&id).await.exit_code, 0);
    assert_eq!(pod.log(&id), [("stdout".to_owned(), "text".to_owned())]);
}

#[tokio::test]
async fn terminal_has_input_output_and_size() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let mut spec = ContainerSpec::shell("stty size; read x; stty size; echo got $x; read y");
    spec.options.terminal = true;
    let (id, _) = pod.create("a", &spec).await;
    let output = attach_stdout(&pod, &id).await;
    pod.client.resize_terminal(&id, 100, 40).await.unwrap();
    pod.client.start_container(&id).await.unwrap();
    let (output, _) = read_until(output, "40 100").await;
    pod.client.resize_terminal(&id, 120, 50).await.unwrap();
    let mut stdin = attach_stdin(&pod, &id).await;
    stdin.write_all(b"word\n").unwrap();
    let (output, text) = read_until(output, "got word").await;
    assert!(text.contains("50 120"), "{text}");
    stdin.write_all(b"\n").unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 0);
    drop(output);
    let log = pod.log(&id);
    assert!(log.iter().any(|(stream, text)| stream == "stdout" && text == "40 100"), "{log:?}");
    let other = pod.run("b", &ContainerSpec::shell("sleep 1000")).await;
    assert_eq!(pod.client.resize_terminal(&other, 1, 1).await.unwrap_err().code(), Some(ErrorCode::System));
}
