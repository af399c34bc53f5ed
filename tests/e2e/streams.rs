//! Streams: exec, attach, cp and port-forward with kubectl and kube-rs.

use kube::{
    Api,
    api::{AttachParams, AttachedProcess},
};
use serde_json::json;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Script that echoes its input, and serves a greeting on a port of loopback only.
const SCRIPT: &str = "mkdir -p /www; echo greetings > /www/index.html; httpd -p 127.0.0.1:8080 -h /www; \
                      while read line; do echo got $line; done; sleep 100000 & wait";

fn ready(cluster: &Cluster) -> Kubectl {
    let kubectl = cluster.kubectl();
    let pod = PodBuilder::new("p").grace_period(0).script(SCRIPT).container(&json!({"stdin": true}));
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");
    kubectl
}

/// Returns kubectl with the Pod, whose server on port 8080 listens.
fn serving(cluster: &Cluster) -> Kubectl {
    let kubectl = ready(cluster);
    eventually("the server to listen", || kubectl.run("exec p -- grep -q :1F90 /proc/net/tcp").code == 0);
    kubectl
}

/// Returns kubectl with WebSockets, and with SPDY like older clients.
fn both_ways(cluster: &Cluster) -> [Kubectl; 2] {
    let kubectl = ready(cluster);
    [kubectl.without_websockets(), kubectl]
}

#[e2e_test("exec carries stdout, stderr and exit codes")]
fn exec_carries_stdout_stderr_and_exit_codes(cluster: &Cluster) {
    both_ways(cluster).iter().for_each(carries_output_errors_and_exit_codes);
}

fn carries_output_errors_and_exit_codes(kubectl: &Kubectl) {
    assert_eq!(kubectl.run("exec p -- echo hello").ok(), "hello\n");
    let outcome = kubectl.args(&["exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 42"], "");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (42, "out\n"));
    assert!(outcome.stderr.starts_with("err\n") && outcome.stderr.contains("exit code 42"), "{}", outcome.stderr);
}

#[e2e_test("exec carries all of stdin until EOF")]
fn exec_carries_stdin_until_eof(cluster: &Cluster) {
    let large = "0123456789abcde\n".repeat(200_000);
    for kubectl in both_ways(cluster) {
        assert_eq!(kubectl.args(&["exec", "-i", "p", "--", "cat"], "one\ntwo\n").ok(), "one\ntwo\n", "{kubectl:?}");
        let counted = kubectl.args(&["exec", "-i", "p", "--", "sh", "-c", "wc -c; sleep 0"], &large).ok();
        assert_eq!(counted.trim(), large.len().to_string(), "{kubectl:?}");
    }
}

/// containerd would wait until the unread input is consumed.
#[e2e_test("exec ends with its command despite unread stdin")]
fn exec_ends_with_its_command(cluster: &Cluster) {
    both_ways(cluster).iter().for_each(ends_with_its_command);
}

fn ends_with_its_command(kubectl: &Kubectl) {
    let large = "0123456789abcde\n".repeat(200_000);
    for _ in 0..3 {
        let echoed = kubectl.args(&["exec", "-i", "p", "--", "head", "-c", "1000000"], &large).ok();
        assert!(echoed == large[..1_000_000], "{} bytes came back", echoed.len());
    }
    let outcome = kubectl.args(&["exec", "-i", "p", "--", "sh", "-c", "echo enough; exit 7"], &large);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (7, "enough\n"));
    // Several at once in one container: each ends, and none loses output of another.
    std::thread::scope(|all| {
        for size in (1..=6).map(|n| n * 100_000) {
            let (kubectl, large) = (&kubectl, &large);
            all.spawn(move || {
                let echoed = kubectl.args(&["exec", "-i", "p", "--", "head", "-c", &size.to_string()], large).ok();
                assert!(echoed == large[..size], "{} of {size} bytes came back", echoed.len());
            });
        }
    });
}

#[e2e_test("exec sets and resizes the terminal")]
fn exec_sets_and_resizes_terminal(cluster: &Cluster) {
    both_ways(cluster).iter().for_each(gives_a_terminal_its_size);
}

fn gives_a_terminal_its_size(kubectl: &Kubectl) {
    let inside = "until [ \"$(stty size)\" = '33 99' ]; do sleep 0.1; done; echo first; touch /tmp/first; \
                  until [ \"$(stty size)\" = '44 111' ]; do sleep 0.1; done; echo second; test -t 1 && exit 5";
    let mut command = kubectl.command(&["exec", "-it", "p", "--", "sh", "-c", "$INSIDE"]);
    let line = |command: &Command| {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| format!("\"{}\"", word.to_string_lossy())).collect::<Vec<_>>().join(" ")
    };
    kubectl.run("exec p -- rm -f /tmp/first").ok();
    let variables: Vec<_> = command.get_envs().filter_map(|(n, v)| Some((n.to_owned(), v?.to_owned()))).collect();
    let seen = kubectl.command(&["exec", "p", "--", "test", "-e", "/tmp/first"]);
    let resize = format!("until {}; do sleep 0.1; done; stty rows 44 cols 111 < /dev/tty", line(&seen));
    let outside = format!("stty rows 33 cols 99; ({resize}) & {}", line(&command));
    command = Command::new("timeout");
    command.args(["--foreground", "60", "script", "--quiet", "--return", "--command", &outside, "/dev/null"]);
    let output = command.envs(variables).env("INSIDE", inside).stdin(Stdio::null()).output().expect("script starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("first") && text.contains("second"), "{text}");
    assert_eq!(output.status.code(), Some(5), "{text}");
}

#[e2e_test("exec names a missing Pod, container or command")]
fn exec_names_missing_target(cluster: &Cluster) {
    let kubectl = ready(cluster);
    let check = |line: &str, expected: &str| {
        let reported = kubectl.run(line).failed();
        assert!(reported.contains(expected), "{line}: {reported}");
    };
    check("exec nobody -- true", "pods \"nobody\" not found");
    check("exec p -c other -- true", "container other is not valid for pod p");
    let missing = kubectl.run("exec p -- no-such-program").failed();
    // The texts of `runc` and `crun`.
    let texts = ["executable file not found", "executable file `no-such-program` not found"];
    assert!(texts.iter().any(|text| missing.contains(text)), "{missing}");
    let half = PodBuilder::new("half")
        .restart_policy("Never")
        .grace_period(0)
        .container(&json!({"name": "ended"}))
        .command(&["true"])
        .add_container(json!({"name": "runs", "image": test_images::BUSYBOX, "command": ["sleep", "100000"]}));
    kubectl.apply(&half.to_string());
    let ended = "wait --for=jsonpath={.status.containerStatuses[0].state.terminated.reason}=Completed pod/half";
    kubectl.run(&format!("{ended} --timeout=60s")).ok();
    for kubectl in [kubectl.without_websockets(), kubectl] {
        let reported = kubectl.run("exec half -c ended -- true").failed();
        assert_eq!(
            reported.trim(),
            "error: unable to upgrade connection: container not found (\"ended\")",
            "{kubectl:?}"
        );
    }
}

#[e2e_test("attach connects to the container's process")]
fn attach_connects_to_container_process(cluster: &Cluster) {
    both_ways(cluster).iter().for_each(joins_the_containers_process);
}

fn joins_the_containers_process(kubectl: &Kubectl) {
    let mut child = spawn_piped(kubectl.command(&["attach", "-i", "p"]));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    child.stdin.as_mut().unwrap().write_all(b"a word\n").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "got a word\n");
    child.kill().unwrap();
    child.wait().unwrap();
    // Without stdinOnce the input is still open for another attach.
    assert!(kubectl.run("logs p").ok().contains("got a word"));
}

#[e2e_test("kubectl run --rm -i exits with the container's exit code")]
fn run_exits_with_container_exit_code(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let args = ["run", "r", "--rm", "-i", "--restart=Never", "--image", test_images::BUSYBOX, "--", "sh", "-c"];
    let outcome = kubectl.args(&[&args[..], &["read line; echo got $line; exit 3"]].concat(), "a word\n");
    assert_eq!(outcome.code, 3, "{outcome:?}");
    assert!(outcome.stdout.contains("got a word"), "{outcome:?}");
    wait_for("the Pod to be removed", Duration::from_secs(60), || match kubectl.get("pod/r") {
        None => Ok(()),
        Some(pod) => Err(pod.to_string()),
    });
}

#[e2e_test("cp copies a file in both directions unchanged")]
fn cp_copies_in_both_directions(cluster: &Cluster) {
    let kubectl = ready(cluster);
    let dir = tempfile::tempdir().unwrap();
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| u8::try_from(i.wrapping_mul(i) % 251).unwrap()).collect();
    std::fs::write(&there, &bytes).unwrap();
    let text = |p: &Path| p.display().to_string();
    kubectl.args(&["cp", &text(&there), "p:/tmp/copy"], "").ok();
    kubectl.args(&["cp", "p:/tmp/copy", &text(&back)], "").ok();
    assert!(std::fs::read(&back).unwrap() == bytes, "the copy differs");
}

pub(crate) fn spawn_piped(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("kubectl starts")
}

/// Starts `kubectl port-forward` and returns the local port.
pub(crate) fn start_port_forward(kubectl: &Kubectl, port: u16) -> (Child, u16) {
    let mut child =
        spawn_piped(kubectl.command(&["port-forward", "pod/p", &format!(":{port}"), "--address", "127.0.0.1"]));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let local = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|p| p.parse().ok());
    (child, local.unwrap_or_else(|| panic!("kubectl says {line:?}")))
}

pub(crate) fn get(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the forwarded port is open");
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    // A connection that is refused in the Pod may be reset.
    let _ = stream.read_to_string(&mut text);
    text
}

#[e2e_test("port-forward reaches a port on the Pod's loopback")]
fn port_forward_reaches_pod_loopback(cluster: &Cluster) {
    let kubectl = serving(cluster);
    let (mut child, port) = start_port_forward(&kubectl, 8080);
    std::thread::scope(|scope| {
        let many: Vec<_> = (0..20).map(|_| scope.spawn(|| get(port))).collect();
        for answer in many {
            let answer = answer.join().unwrap();
            assert!(answer.ends_with("greetings\n"), "{answer}");
        }
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[e2e_test("port-forward reports a closed port")]
fn port_forward_reports_closed_port(cluster: &Cluster) {
    let kubectl = ready(cluster);
    let (mut child, port) = start_port_forward(&kubectl, 9999);
    assert_eq!(get(port), "");
    let mut reported = String::new();
    child.stderr.take().unwrap().read_to_string(&mut reported).unwrap();
    assert!(reported.contains("an error occurred forwarding") && reported.contains("connection refused"), "{reported}");
    child.wait().unwrap();
}

#[e2e_test("kube-rs executes, writes, and forwards ports")]
fn kube_rs_executes_and_forwards(cluster: &Cluster) {
    let kubectl = serving(cluster);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = cluster.client(&runtime);
    let all = async {
        let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, kubectl.namespace());
        kube_rs_exec(&pods).await;
        let mut forwarder = pods.portforward("p", &[8080]).await.unwrap();
        let mut stream = forwarder.take_stream(8080).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("greetings\n"), "{text}");
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), all).await.expect("streams end") });
}

async fn kube_rs_exec(pods: &Api<k8s_openapi::api::core::v1::Pod>) {
    let command = ["sh", "-c", "read line; echo got $line; exit 6"];
    let params = AttachParams::default().stdin(true).stderr(false);
    let mut process: AttachedProcess = pods.exec("p", command, &params).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    let status = process.take_status().unwrap();
    stdin.write_all(b"a word\n").await.unwrap();
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "got a word\n");
    let status = status.await.unwrap();
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"), "{status:?}");
    process.join().await.unwrap();
}
