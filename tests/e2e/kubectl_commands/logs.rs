//! `logs` with its flags.

use super::shell;
use serde_json::json;
use tests::{Cluster, PodBuilder, Shell, e2e_test};

fn two_containers(shell: &Shell) {
    let container = |name: &str, n: u8| {
        let script = format!("for i in $(seq {n}); do echo {name} $i; done");
        tests::container(name, &script)
    };
    let containers = json!([container("a", 3), container("b", 2)]);
    let pod =
        PodBuilder::new("two").label("app", "logs").restart_policy("Never").spec(&json!({"containers": containers}));
    shell.file("two.json", pod.to_string());
    shell.check(&[
        ("kubectl apply -f two.json", 0, "pod/two created"),
        ("kubectl wait --for=jsonpath='{.status.phase}'=Succeeded --timeout=60s pod/two", 0, "pod/two condition met"),
    ]);
}

#[e2e_test("kubectl logs obeys its flags for tail, since and follow")]
fn logs_obey_their_flags(cluster: &Cluster) {
    let shell = shell(cluster);
    two_containers(&shell);
    shell.check(&[
        ("kubectl logs two -c a", 0, "a 1 a 2 a 3"),
        ("kubectl logs two b", 0, "b 1 b 2"),
        ("kubectl logs pod/two -c a --tail=2", 0, "a 2 a 3"),
        ("kubectl logs two -c a --tail=0", 0, ""),
        ("kubectl logs two -c a --tail=-1", 0, "a 1 a 2 a 3"),
        ("kubectl logs two -c a --limit-bytes=5", 0, "a 1 a"),
        ("kubectl logs two -c a --since=1h", 0, "a 1 a 2 a 3"),
        ("kubectl logs two -c a --since-time=2020-01-01T00:00:00Z", 0, "a 1 a 2 a 3"),
        ("kubectl logs two -c a --since-time=2999-01-01T00:00:00Z", 0, ""),
        ("kubectl logs two -c a -f", 0, "a 1 a 2 a 3"),
        ("kubectl logs two -c a -f --tail=1", 0, "a 3"),
        ("kubectl logs two", 0, "a 1 a 2 a 3 Defaulted container \"a\" out of: a, b"),
    ]);
    let line = shell.run("kubectl logs two -c a --timestamps --tail=1").ok();
    let (time, text) = line.split_once(' ').unwrap();
    assert_eq!(text, "a 3\n");
    assert!(time.starts_with("20") && time.contains('T') && time.ends_with('Z'), "{time}");
}

#[e2e_test("kubectl logs prefixes lines of several containers and Pods")]
fn logs_of_several_containers_are_prefixed(cluster: &Cluster) {
    let shell = shell(cluster);
    two_containers(&shell);
    // kubectl reads the containers one after another, in its own order.
    for (line, expected) in [
        ("kubectl logs two --all-containers", ["a 1", "a 2", "a 3", "b 1", "b 2"].as_slice()),
        ("kubectl logs two --all-containers --prefix --tail=1", &["[pod/two/a] a 3", "[pod/two/b] b 2"]),
        ("kubectl logs -l app=logs --all-containers --prefix --tail=1", &["[pod/two/a] a 3", "[pod/two/b] b 2"]),
    ] {
        let seen = shell.run(line).ok();
        let mut seen: Vec<&str> = seen.lines().collect();
        seen.sort_unstable();
        assert_eq!(seen, expected, "{line}");
    }
    shell.check(&[("kubectl logs -l app=nobody", 0, "No resources found in test-... namespace.")]);
}

#[e2e_test("kubectl logs --previous shows the previous instance")]
fn previous_logs_show_previous_instance(cluster: &Cluster) {
    let shell = shell(cluster);
    let script = "echo life $(cat /v/n || echo 1); [ -e /v/n ] && sleep 100000; echo 2 > /v/n; exit 1";
    let pod = PodBuilder::new("p")
        .grace_period(0)
        .script(&format!("({script}) 2>/dev/null"))
        .volume("v", &json!({"emptyDir": {}}))
        .mount("v", "/v");
    shell.file("pod.json", pod.to_string());
    shell.check(&[
        ("kubectl apply -f pod.json", 0, "pod/p created"),
        (
            "kubectl wait --for=jsonpath='{.status.containerStatuses[0].restartCount}'=1 --timeout=60s pod/p",
            0,
            "pod/p condition met",
        ),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
        ("kubectl logs p --previous", 0, "life 1"),
        ("kubectl logs p -p --timestamps", 0, "20...Z life 1"),
    ]);
    tests::eventually("the first line of the second instance", || {
        shell.run("kubectl logs p").is_ok_and(|output| output == "life 2\n")
    });
}

#[e2e_test("kubectl logs names Pods and containers without logs")]
fn logs_name_missing_sources(cluster: &Cluster) {
    let shell = shell(cluster);
    two_containers(&shell);
    let image =
        PodBuilder::new("waits").image("docker.io/library/nothing:1").container(&json!({"imagePullPolicy": "Never"}));
    shell.file("waits.json", image.to_string());
    let gated = PodBuilder::new("gated").image("x").spec(&json!({"schedulingGates": [{"name": "example.com/gate"}]}));
    shell.file("gated.json", gated.to_string());
    shell.check(&[
        ("kubectl apply -f waits.json -f gated.json", 0, "pod/waits created pod/gated created"),
        ("kubectl wait --for=jsonpath='{.status.containerStatuses[0].state.waiting.reason}'=ErrImageNeverPull pod/waits --timeout=60s", 0, "pod/waits condition met"),
        (
            "kubectl logs waits",
            1,
            "Error from server (BadRequest): container \"c\" in pod \"waits\" is waiting to start: ErrImageNeverPull",
        ),
        ("kubectl logs gated", 0, ""),
        ("kubectl logs two -c nobody", 1, "error: container nobody is not valid for pod two"),
        ("kubectl logs two -c a --previous", 1, "Error from server (BadRequest): previous terminated container \"a\" in pod \"two\" not found"),
        ("kubectl logs nobody", 1, "error: error from server (NotFound): pods \"nobody\" not found in namespace \"test-...\""),
        ("kubectl logs two -c a --tail=-2", 1, "error: --tail must be greater than or equal to -1"),
        ("kubectl get --raw /api/v1/namespaces/default/pods/nobody/log", 1, "Error from server (NotFound): pods \"nobody\" not found"),
    ]);
    let namespace = shell.kubectl().namespace();
    let raw = |query: &str| format!("kubectl get --raw '/api/v1/namespaces/{namespace}/pods/two/log?{query}'");
    shell.check(&[
        (
            &raw(""),
            1,
            "Error from server (BadRequest): a container name must be specified for pod two, choose one of: [a b]",
        ),
        (&raw("container=nobody"), 1, "Error from server (BadRequest): container nobody is not valid for pod two"),
        (&raw("container=a&tailLines=1"), 0, "a 3"),
        (
            &raw("container=a&tailLines=-5"),
            1,
            "The PodLogOptions \"two\" is invalid: tailLines: Invalid value: -5: must be greater than or equal to 0",
        ),
        (
            &raw("container=a&stream=Stderr"),
            1,
            "The PodLogOptions \"two\" is invalid: stream: Forbidden: may not be specified",
        ),
        (
            &raw("container=a&limitBytes=0"),
            1,
            "The PodLogOptions \"two\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
        ),
    ]);
}
