//! Output and exit codes of kubectl commands.

mod delete;
mod get_and_describe;
mod kinds;
mod logs;
mod modify;
mod server_side_apply;
mod validation;
mod wait;

use tests::{Cluster, Shell};

/// Returns a shell in a new namespace, with the manifest of a Pod `p` that runs until SIGTERM.
fn shell(cluster: &Cluster) -> Shell {
    let shell = Shell::new(cluster.kubectl());
    shell.file("pod.yaml", pod("p", "front"));
    shell
}

/// Returns a Pod that runs until SIGTERM, with the labels `app=web` and `tier`.
fn pod(name: &str, tier: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: web, tier: {tier}}}}}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: c
    image: {}
    command: [sh, -c, \"trap 'exit 0' TERM; echo hello; sleep 100000 & wait\"]
",
        test_images::BUSYBOX
    )
}

/// Returns a shell with a running Pod `p`.
fn shell_with_pod(cluster: &Cluster) -> Shell {
    let shell = shell(cluster);
    shell.check(&[
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
    ]);
    shell
}
