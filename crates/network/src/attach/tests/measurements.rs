//! Times of attach and detach, beside the CNI plugins.

use super::*;
use serde_json::{Value, json};
use std::{
    io::Write,
    process::{Command, Stdio},
    time::Instant,
};

const ROUNDS: usize = 100;
const AT_ONCE: usize = 50;

/// Prints the median and the 90th percentile.
fn report(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    println!("{name}: p50 {:?}, p90 {:?}", times[times.len() / 2], times[times.len() * 9 / 10]);
}

fn cni(command: &str, netns: &Path, sandbox: &str, config: &Value) {
    let mut child = Command::new(Path::new("/usr/lib/cni").join(config["type"].as_str().unwrap()))
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", sandbox)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_NETNS", netns)
        .env("CNI_PATH", "/usr/lib/cni")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the plugin starts");
    child.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Measures Pods that start and end together.
async fn at_once(node: &Node) {
    let names: Vec<_> = (0..AT_ONCE).map(|number| format!("together-{number}")).collect();
    let namespaces: Vec<_> = names.iter().map(|name| node.namespace(name)).collect();
    let start = Instant::now();
    let attach = names.iter().zip(&namespaces).map(|(name, netns)| node.attach(name, netns, &[]));
    for result in futures::future::join_all(attach).await {
        result.unwrap();
    }
    println!("attach {AT_ONCE} at once: {:?} in total", start.elapsed());
    let start = Instant::now();
    let detach = names.iter().map(|name| node.network.detach(name));
    for result in futures::future::join_all(detach).await {
        result.unwrap();
    }
    println!("detach {AT_ONCE} at once: {:?} in total", start.elapsed());
    for netns in namespaces {
        umount2(&netns, MntFlags::MNT_DETACH).unwrap();
    }
}

/// A first connection shows whether packets are lost: an ARP request is repeated after a second.
#[test]
#[ignore = "a measurement: cargo test --release -p network measure_attach -- --ignored --nocapture"]
fn measure_attach_and_detach() {
    test(async || {
        let node = Node::new("10.9.0.0/16").await;
        let on_node = tcp_listener(None, PORT);
        let ports = [mapping(Protocol::Tcp, 8080, None)];
        for (name, ports) in [("without host port", &[][..]), ("with host port", &ports)] {
            let (mut attach, mut detach, mut connect) = (Vec::new(), Vec::new(), Vec::new());
            for number in 0..ROUNDS {
                let sandbox = format!("pod-{number}-{}", ports.len());
                let netns = node.namespace(&sandbox);
                let start = Instant::now();
                node.attach(&sandbox, &netns, ports).await.unwrap();
                attach.push(start.elapsed());
                let start = Instant::now();
                tcp(Some(&netns), (node.network.gateway, PORT), &on_node);
                connect.push(start.elapsed());
                let start = Instant::now();
                node.network.detach(&sandbox).await.unwrap();
                detach.push(start.elapsed());
                umount2(&netns, MntFlags::MNT_DETACH).unwrap();
            }
            report(&format!("attach {name}"), attach);
            report(&format!("detach {name}"), detach);
            report(&format!("first connection {name}"), connect);
        }
        at_once(&node).await;
        if !Path::new("/usr/lib/cni/bridge").is_file() {
            return;
        }
        let config = json!({
            "cniVersion": "0.4.0", "name": "measured", "type": "bridge", "bridge": "br-cni", "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local", "dataDir": node.dir.path().join("cni"),
                "ranges": [[{ "subnet": "10.10.0.0/16" }]], "routes": [{ "dst": "0.0.0.0/0" }],
            },
        });
        let (mut add, mut del) = (Vec::new(), Vec::new());
        for number in 0..ROUNDS {
            let sandbox = format!("cni-{number}");
            let netns = node.namespace(&sandbox);
            let start = Instant::now();
            cni("ADD", &netns, &sandbox, &config);
            add.push(start.elapsed());
            let start = Instant::now();
            cni("DEL", &netns, &sandbox, &config);
            del.push(start.elapsed());
            umount2(&netns, MntFlags::MNT_DETACH).unwrap();
        }
        report("bridge ADD", add);
        report("bridge DEL", del);
        node.destroy().await;
    });
}
