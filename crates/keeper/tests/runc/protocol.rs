//! Invalid messages.

use crate::support::{ContainerSpec, Pod, can_run, eventually};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recv, send, sendmsg, socket_with,
};
use std::{
    fs::{self, File},
    io::IoSlice,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
};

fn connection(pod: &Pod) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(pod.sandbox().join("keeper.sock")).unwrap()).unwrap();
    socket
}

fn receive(socket: &OwnedFd) -> String {
    let mut buffer = vec![0; 70_000];
    let (count, _) = recv(socket, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

fn exchange(socket: &OwnedFd, text: &str) -> String {
    send(socket, text.as_bytes(), SendFlags::NOSIGNAL).unwrap();
    receive(socket)
}

fn descriptors(pod: &Pod) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pod.keeper_pid())).unwrap().count()
}

fn send_descriptors(socket: &OwnedFd, text: &str, count: usize) {
    let null = File::open("/dev/null").unwrap();
    let many = vec![null.as_fd(); count];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    let _ = sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL);
}

#[tokio::test]
async fn invalid_messages_change_nothing() {
    if !can_run() {
        return;
    }
    let mut pod = Pod::start().await;
    let id = pod.run("a", &ContainerSpec::shell("sleep 1000")).await;
    let mode = fs::metadata(pod.sandbox().join("keeper.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = descriptors(&pod);
    let large = "x".repeat(100_000);
    let deep = "[".repeat(60_000);
    for text in ["x", "{}", r#"{"id":1}"#, r#"{"id":1,"call":"nothing"}"#, &large, &deep, "\0\0"] {
        let socket = connection(&pod);
        assert_eq!(exchange(&socket, text), "", "{text:.20}");
    }
    // Descriptors with a valid request that has none, and over the maximum.
    for _ in 0..50 {
        let socket = connection(&pod);
        assert!(exchange(&socket, r#"{"id":1,"call":{"hello":{"version":1}}}"#).contains(r#""sandboxId":"sandbox""#));
        send_descriptors(&socket, r#"{"id":2,"call":"listContainers"}"#, 2);
        assert!(receive(&socket).contains(&id));
        send_descriptors(
            &socket,
            r#"{"id":3,"call":{"attach":{"id":"x","stdin":true,"stdout":false,"stderr":false}}}"#,
            2,
        );
        assert!(receive(&socket).contains("wrong number of descriptors"));
        send_descriptors(&socket, r#"{"id":4,"call":"listContainers"}"#, 253);
        assert_eq!(receive(&socket), "");
    }
    // Files can be neither read nor written without waiting.
    let file = File::open("/proc/self/exe").unwrap();
    let streams = keeper::AttachStreams { stdin: Some(file.into()), ..keeper::AttachStreams::default() };
    let refused = pod.client.attach(&id, streams).await.unwrap_err();
    assert!(refused.to_string().contains("not a pipe or socket"), "{refused}");
    // More connections than the keeper accepts.
    let many: Vec<OwnedFd> = (0..63).map(|_| connection(&pod)).collect();
    assert_eq!(pod.client.list_containers().await.unwrap().len(), 1);
    drop(many);
    eventually("closed descriptors", || descriptors(&pod) <= before).await;
    assert_eq!(pod.client.list_containers().await.unwrap().len(), 1);
    pod.client.kill_container(&id, 9, false).await.unwrap();
    assert_eq!(pod.exit(&id).await.exit_code, 137);
}

#[tokio::test]
async fn client_of_another_version_gets_both_versions() {
    if !can_run() {
        return;
    }
    let pod = Pod::start().await;
    let socket = connection(&pod);
    let text = exchange(&socket, r#"{"id":7,"call":"listContainers"}"#);
    assert!(text.contains("the first request must be hello"), "{text}");
    let text = exchange(&socket, r#"{"id":8,"call":{"hello":{"version":0}}}"#);
    assert!(text.contains("the client speaks version 0, the keeper 1 to 1"), "{text}");
    let text = exchange(&socket, r#"{"id":9,"call":{"hello":{"version":2,"new":"field"}}}"#);
    assert!(text.contains(r#""id":9"#) && text.contains(r#""version":1"#), "{text}");
}
