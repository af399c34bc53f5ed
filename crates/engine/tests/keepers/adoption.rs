//! Keepers that do not answer, or speak another version.

use crate::support::{NoAddresses, Node};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, recv, send,
    socket_with,
};
use std::{
    fs,
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::Arc,
    time::Duration,
};

/// Writes the record of a ready sandbox, and listens in the place of its keeper.
fn sandbox(node: &Node, id: &str) -> OwnedFd {
    let dir = node.path("data/engine/pods").join(id);
    fs::create_dir_all(dir.join("containers")).unwrap();
    let record = format!(
        r#"{{"version":1,"id":"{id}","uid":"uid-{id}","name":"p","namespace":"default","attempt":0,
        "createdAt":"2026-01-01T00:00:00Z","state":"ready","network":"Pod","pid":"Container","ipc":"Pod",
        "logDirectory":"/","runtimeHandler":"","ips":[]}}"#
    );
    fs::write(dir.join("sandbox.json"), record).unwrap();
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(dir.join("keeper.sock")).unwrap()).unwrap();
    listen(&socket, 8).unwrap();
    socket
}

/// A process that is recorded as the keeper of a sandbox.
struct KeeperProcess(Child);

impl KeeperProcess {
    fn start(node: &Node, id: &str) -> Self {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let start_time = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
        let text = format!(r#"{{"pid":{},"startTime":{start_time}}}"#, child.id());
        fs::write(node.path("data/engine/pods").join(id).join("keeper.pid"), text).unwrap();
        Self(child)
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for KeeperProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(start_paused = true)]
async fn silent_keepers_delay_the_start_only_once() {
    let node = Node::new();
    let ids = ["a", "b", "c", "d"];
    let _sockets = ids.map(|id| sandbox(&node, id));
    let mut keepers = ids.map(|id| KeeperProcess::start(&node, id));
    let begin = tokio::time::Instant::now();
    node.open().await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(59), "{:?}", begin.elapsed());
    // A keeper that does not answer is killed with its Pod.
    // The signal may take longer than the paused clock, on which Podium waits.
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !keepers.iter_mut().all(KeeperProcess::has_ended) {
        assert!(std::time::Instant::now() < deadline, "a keeper lives");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn keeper_of_another_version_is_refused_and_lives() {
    let newer = r#"{"Err":{"code":"version","message":"the client speaks version 1, the keeper 2 to 3"}}"#;
    let namespaces = r#""podInit":null,"namespaces":{}"#;
    let older = format!(r#"{{"Ok":{{"hello":{{"version":0,"sandboxId":"a","pid":2,"startTime":1,{namespaces}}}}}}}"#);
    for (answer, expected) in [(newer, "version 1, the keeper 2 to 3"), (&older, "version 0, Podium 1 to 1")] {
        let node = Node::new();
        let socket = sandbox(&node, "a");
        let mut keeper = KeeperProcess::start(&node, "a");
        let reply = format!(r#"{{"reply":{{"id":1,"result":{answer}}}}}"#);
        let serve = std::thread::spawn(move || {
            let client = accept(&socket).unwrap();
            let mut buffer = [0; 1024];
            recv(&client, &mut buffer, RecvFlags::empty()).unwrap();
            send(&client, reply.as_bytes(), SendFlags::NOSIGNAL).unwrap();
        });
        let error = node.open().await.err().unwrap().to_string();
        serve.join().unwrap();
        assert!(
            error.contains("default/p (a)") && error.contains(expected) && error.contains("podium down"),
            "{error}"
        );
        assert!(!keeper.has_ended());
    }
}

#[tokio::test]
async fn start_does_not_wait_for_network_of_incomplete_sandbox() {
    let node = Node::new();
    let dir = node.path("data/engine/pods/incomplete");
    fs::create_dir_all(&dir).unwrap();
    let network = Arc::new(NoAddresses::default());
    node.open_with(network.clone()).await.unwrap();
    assert!(!dir.exists());
    assert_eq!(network.releases(), ["retain []"]);
}
