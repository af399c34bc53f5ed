//! The official Python client, and WebSockets from Python: tests/clients/python.

use crate::Shared;
use tests::{Cluster, Shell};

pub(crate) const TESTS: &[Shared] = &[
    ("the Python client reads, writes, watches, executes and applies", |cluster| run(cluster, "walk.py")),
    ("the Python client watches and reads logs over WebSockets", |cluster| run(cluster, "sockets.py")),
];

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python");

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
