//! `kubectl delete` with its flags and errors.

use super::{pod, shell};
use serde_json::json;
use tests::{Cluster, Shell, e2e_test};

/// Creates a Pod that ignores SIGTERM, with a grace period longer than any test.
fn create_ignoring_sigterm(shell: &Shell) {
    let create_ignoring_sigterm =
        pod("p", "front").replace("trap 'exit 0' TERM", "trap '' TERM").replace("Seconds: 60", "Seconds: 600");
    shell.file("pod.yaml", create_ignoring_sigterm);
}

fn ready(shell: &Shell) {
    shell.check(&[
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
    ]);
}

#[e2e_test("kubectl delete obeys its grace period, force and wait flags")]
fn delete_obeys_its_flags(cluster: &Cluster) {
    let shell = shell(cluster);
    create_ignoring_sigterm(&shell);
    let now = "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. \
               The resource may continue to run on the cluster indefinitely.";
    let forced = format!("pod \"p\" force deleted...{now}");
    for (line, expected) in [
        ("kubectl delete pod p --now", "pod \"p\" deleted..."),
        ("kubectl delete pod p --grace-period=1", "pod \"p\" deleted..."),
        ("kubectl delete pod p --grace-period=0 --force", forced.as_str()),
        ("kubectl delete pod p --force", forced.as_str()),
        ("kubectl delete pod p --grace-period=1 --cascade=foreground", "pod \"p\" deleted..."),
        ("kubectl delete pod p --grace-period=1 --cascade=background", "pod \"p\" deleted..."),
        ("kubectl delete pod p --grace-period=1 --cascade=orphan", "pod \"p\" deleted..."),
        ("kubectl delete -f pod.yaml --grace-period=1", "pod \"p\" deleted..."),
        ("kubectl delete pod/p --grace-period=1 -o name", "pod/p"),
    ] {
        ready(&shell);
        shell.check(&[
            (line, 0, expected),
            ("kubectl get pod p", 1, "Error from server (NotFound): pods \"p\" not found"),
        ]);
    }
    ready(&shell);
    shell.check(&[
        ("kubectl delete pod p --dry-run=client", 0, "pod \"p\" deleted...(dry run)"),
        ("kubectl delete pod p --dry-run=server", 0, "pod \"p\" deleted...(server dry run)"),
        ("kubectl delete pod p --wait=false", 0, "pod \"p\" deleted..."),
        ("kubectl get pod p --no-headers", 0, "p 1/1 Terminating 0 ...s"),
        (
            "kubectl delete pod p --timeout=5s",
            1,
            "pod \"p\" deleted...error: timed out waiting for the condition on pods/p",
        ),
        ("kubectl delete pod p --grace-period=1", 0, "pod \"p\" deleted..."),
    ]);
}

#[e2e_test("kubectl delete selects objects by label and field")]
fn delete_selects_by_label_and_field(cluster: &Cluster) {
    let shell = shell(cluster);
    let item = |name: &str, tier: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"tier": tier}}});
    let items = [item("one", "a"), item("two", "a"), item("three", "b"), item("four", "c"), item("five", "c")];
    shell.file("list.json", json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    shell.check(&[
        ("kubectl create -f list.json -o name", 0, "secret/one secret/two secret/three secret/four secret/five"),
        ("kubectl delete secrets -l tier=a", 0, "secret \"one\" deleted...secret \"two\" deleted..."),
        ("kubectl delete secrets -l tier=a", 0, "No resources found"),
        ("kubectl delete secrets --field-selector metadata.name=three", 0, "secret \"three\" deleted..."),
        ("kubectl get secrets -o name", 0, "secret/five secret/four"),
        ("kubectl delete secrets --all", 0, "secret \"five\" deleted...secret \"four\" deleted..."),
        ("kubectl get secrets", 0, "No resources found in test-... namespace."),
    ]);
}

#[e2e_test("kubectl delete names objects that do not exist")]
fn delete_names_missing_objects(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.check(&[
        ("kubectl delete pod nobody", 1, "Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl delete pod nobody --ignore-not-found", 0, ""),
        (
            "kubectl delete -f pod.yaml",
            1,
            "Error from server (NotFound): error when deleting \"pod.yaml\": pods \"p\" not found",
        ),
        ("kubectl delete pods --all", 0, "No resources found"),
        ("kubectl delete pods", 1, "error: resource(s) were provided, but no name was specified"),
        (
            "kubectl delete pod p --cascade=sideways",
            1,
            "error: invalid cascade value (sideways). Must be \"background\", \"foreground\", or \"orphan\"",
        ),
        ("kubectl delete ns nowhere", 1, "...Error from server (NotFound): namespaces \"nowhere\" not found"),
    ]);
}

#[e2e_test("deleting a namespace deletes every object in it")]
fn namespace_deletion_deletes_its_objects(cluster: &Cluster) {
    let shell = shell(cluster);
    let namespace = format!("{}-doomed", shell.kubectl().namespace());
    let line = |text: &str| text.replace("NS", &namespace);
    shell.check(&[
        (&line("kubectl create ns NS"), 0, &line("namespace/NS created")),
        (&line("kubectl apply -n NS -f pod.yaml"), 0, "pod/p created"),
        (&line("kubectl create -n NS secret generic held --from-literal=k=v"), 0, "secret/held created"),
        (&line(r#"kubectl patch -n NS secret held -p '{"metadata": {"finalizers": ["example.com/hold"]}}'"#), 0, "secret/held patched"),
        (&line("kubectl wait -n NS --for=condition=Ready --timeout=60s pod/p"), 0, "pod/p condition met"),
        (&line("kubectl delete ns NS --wait=false"), 0, &line("namespace \"NS\" deleted...")),
        (&line("kubectl wait -n NS --for=delete --timeout=60s pod/p"), 0, "..."),
        (&line("kubectl get ns NS --no-headers"), 0, &line("NS Terminating ...s")),
        (
            &line("kubectl create -n NS cm late"),
            1,
            &line("error: failed to create configmap: configmaps \"late\" is forbidden: unable to create new content in namespace NS because it is being terminated"),
        ),
        (&line(r#"kubectl patch -n NS secret held -p '{"metadata": {"finalizers": null}}'"#), 0, "secret/held patched"),
        (&line("kubectl wait --for=delete --timeout=60s ns/NS"), 0, "..."),
        (&line("kubectl get ns NS"), 1, &line("Error from server (NotFound): namespaces \"NS\" not found")),
    ]);
}
