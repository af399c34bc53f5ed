//! The official Python client: tests/clients/python/walk.py.

use crate::Shared;
use tests::{Cluster, Shell};

pub(crate) const TESTS: &[Shared] = &[("the Python client reads, writes, watches, executes and applies", walk)];

const WALK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/python/walk.py");

fn walk(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let shell = Shell::new(kubectl.clone()).with("python", "python3".into());
    let path = tests::tool("python");
    let line = format!(
        "PYTHONPATH={} NAMESPACE={} IMAGE={} python {WALK}",
        path.display(),
        kubectl.namespace(),
        test_images::BUSYBOX
    );
    shell.check(&[(&line, 0, "all done")]);
}
