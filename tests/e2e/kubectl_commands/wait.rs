//! `wait` for conditions, values and deletions.

use super::{shell, shell_with_pod};
use tests::{Cluster, e2e_test};

#[e2e_test("kubectl wait waits for conditions, values and deletions")]
fn wait_waits_for_conditions_values_and_deletions(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    shell.check(&[
        ("kubectl wait --for=condition=Ready pod --all", 0, "pod/p condition met"),
        ("kubectl wait --for=condition=Ready=True pod -l app=web", 0, "pod/p condition met"),
        // kubectl may print before that its watch was short.
        (
            "kubectl wait --for=condition=Ready=False pod/p --timeout=5s",
            1,
            "...error: timed out waiting for the condition on pods/p",
        ),
        (
            "kubectl wait --for=condition=Nothing pod/p --timeout=5s",
            1,
            "...error: timed out waiting for the condition on pods/p",
        ),
        ("kubectl wait --for=condition=Ready pod/p --timeout=0", 0, "pod/p condition met"),
        ("kubectl wait --for=jsonpath='{.status.phase}'=Running pod/p", 0, "pod/p condition met"),
        ("kubectl wait --for=jsonpath='{.status.podIP}' pod/p", 0, "pod/p condition met"),
        (
            "kubectl wait --for=jsonpath='{.status.phase}'=Failed pod/p --timeout=5s",
            1,
            "...error: timed out waiting for the condition on pods/p",
        ),
        ("kubectl wait --for=delete pod/p --timeout=5s", 1, "...error: timed out waiting for the condition on pods/p"),
        ("kubectl wait --for=condition=Ready pod/nobody", 1, "Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl wait --for=condition=Ready pod -l app=nobody", 1, "error: no matching resources found"),
        ("kubectl wait --for=something pod/p", 1, "error: unrecognized condition: \"something\""),
        ("kubectl wait --for=condition=Ready nodes --all", 0, "node/... condition met"),
    ]);
}

#[e2e_test("kubectl wait sees changes that happen during the wait")]
fn wait_sees_later_changes(cluster: &Cluster) {
    let shell = shell(cluster);
    let waiting = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        shell.kubectl().command(&words).stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let output = |child: std::process::Child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    shell.check(&[("kubectl apply -f pod.yaml", 0, "pod/p created")]);
    let ready = waiting("wait --for=condition=Ready --timeout=60s pod/p");
    assert_eq!(output(ready), "pod/p condition met\n");
    let labelled = waiting("wait --for=jsonpath={.metadata.labels.seen}=yes --timeout=60s pod/p");
    shell.check(&[("kubectl label pod p seen=yes", 0, "pod/p labeled")]);
    assert_eq!(output(labelled), "pod/p condition met\n");
    let gone = waiting("wait --for=delete --timeout=60s pod/p");
    shell.check(&[("kubectl delete pod p", 0, "pod \"p\" deleted...")]);
    // A wait that starts after the deletion prints nothing.
    assert!(["pod/p condition met\n", ""].contains(&output(gone).as_str()));
}
