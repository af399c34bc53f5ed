//! The official Python client, and WebSockets from Python: tests/clients/python.

use tests::{Cluster, Shell, e2e_test};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python");

#[e2e_test("the Python client reads, writes, watches, executes and applies")]
fn python_client_reads_writes_watches_executes(cluster: &Cluster) {
    run(cluster, "walk.py");
}

#[e2e_test("the Python client watches and reads logs over WebSockets")]
fn python_client_uses_websockets(cluster: &Cluster) {
    run(cluster, "sockets.py");
}

fn run(cluster: &Cluster, program: &str) {
    let kubectl = cluster.kubectl();
    let shell = Shell::new(kubectl.clone()).with("python", "python3".into());
    let path = tests::tool("python");
    let line = format!(
        "PYTHONPATH={} NAMESPACE={} IMAGE={} python {PROGRAMS}/{program}",
        path.display(),
        kubectl.namespace(),
        test_images::BUSYBOX
    );
    shell.check(&[(&line, 0, "all done")]);
}
