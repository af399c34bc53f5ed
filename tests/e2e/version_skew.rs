//! Other versions of kubectl, which differ in their streams.

use crate::streams;
use std::io::{BufRead, BufReader, Write};
use tests::{Cluster, PodBuilder, Shell, e2e_test};

/// Script that echoes its input, and serves a greeting on a port.
const SCRIPT: &str = "mkdir -p /www; echo greetings > /www/index.html; httpd -p 127.0.0.1:8080 -h /www; \
                      while read line; do echo got $line; done; sleep 100000 & wait";

#[e2e_test("kubectl 1.34 creates, reads, streams and deletes")]
fn kubectl_1_34_creates_reads_streams_deletes(cluster: &Cluster) {
    walk(cluster, "1.34");
}

#[e2e_test("kubectl 1.35 creates, reads, streams and deletes")]
fn kubectl_1_35_creates_reads_streams_deletes(cluster: &Cluster) {
    walk(cluster, "1.35");
}

fn walk(cluster: &Cluster, version: &str) {
    let kubectl = cluster.kubectl().version(version);
    let shell = Shell::new(kubectl.clone());
    let pod = PodBuilder::new("p").grace_period(0).script(SCRIPT).container(&serde_json::json!({"stdin": true}));
    shell.file("pod.json", pod.to_string());
    shell.file("there", "some bytes");
    let namespace = format!("{}-own", kubectl.namespace());
    shell.check(&[
        ("kubectl version", 0, &format!("Client Version: v{version}... Server Version: v1.35...")),
        (&format!("kubectl create ns {namespace}"), 0, &format!("namespace/{namespace} created")),
        (&format!("kubectl delete ns {namespace}"), 0, &format!("namespace \"{namespace}\" deleted...")),
        ("kubectl apply -f pod.json", 0, "pod/p created"),
        ("kubectl apply -f pod.json", 0, "pod/p unchanged"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
        ("kubectl get pods", 0, "NAME READY STATUS RESTARTS AGE p 1/1 Running 0 ...s"),
        ("kubectl describe pod p", 0, "Name: p ... Events: ... Scheduled ..."),
        ("kubectl explain pod.spec.restartPolicy", 0, "KIND: Pod VERSION: v1 FIELD: restartPolicy ..."),
        ("kubectl exec p -- sh -c 'echo out; echo err >&2; exit 7'", 7, "out err command terminated with exit code 7"),
        ("kubectl exec nobody -- true", 1, "Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl cp there p:/tmp/copy", 0, ""),
        ("kubectl cp p:/tmp/copy back", 0, "..."),
    ]);
    assert_eq!(std::fs::read(shell.dir().join("back")).unwrap(), b"some bytes");
    attach(&kubectl);
    let followed = kubectl.follow(&["logs", "-f", "p"]);
    let (mut child, port) = streams::start_port_forward(&kubectl, 8080);
    let answer = streams::get(port);
    assert!(answer.ends_with("greetings\n"), "{answer}");
    child.kill().unwrap();
    child.wait().unwrap();
    shell.check(&[
        ("kubectl delete pod p", 0, "pod \"p\" deleted from test-... namespace"),
        ("kubectl get pods", 0, "No resources found in test-... namespace."),
    ]);
    assert_eq!(followed.until_end(), ["got a word"]);
}

fn attach(kubectl: &tests::Kubectl) {
    let mut child = streams::spawn_piped(kubectl.command(&["attach", "-i", "p"]));
    child.stdin.as_mut().unwrap().write_all(b"a word\n").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "got a word\n");
    child.kill().unwrap();
    child.wait().unwrap();
}
