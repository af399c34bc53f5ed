//! API priority and fairness.

use tests::{Cluster, e2e_test, eventually};

#[e2e_test("default FlowSchemas and priority levels exist and classify requests")]
fn default_flow_schemas_classify_requests(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    // They are created after the API starts to serve.
    eventually("every FlowSchema to have its priority level", || {
        let table = kubectl.run("get flowschemas --no-headers").ok();
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        rows.len() == 11 && rows.iter().all(|row| row.last() == Some(&"False"))
    });
    let levels = kubectl.run("get prioritylevelconfigurations -o name").ok();
    let mut names: Vec<&str> = levels.lines().filter_map(|line| line.rsplit('/').next()).collect();
    names.sort_unstable();
    let expected = [
        "catch-all",
        "exempt",
        "global-default",
        "leader-election",
        "node-high",
        "system",
        "workload-high",
        "workload-low",
    ];
    assert_eq!(names, expected);
    let uid = kubectl.value("flowschema/global-default", "/metadata/uid");
    let output = kubectl.run("get pods --as=somebody -v=8");
    let output = format!("{}{}", output.stdout, output.stderr).to_lowercase();
    assert!(output.contains("x-kubernetes-pf-flowschema-uid") && output.contains(uid.as_str().unwrap()), "{output}");
    let refused =
        kubectl.run("patch flowschema catch-all --type=merge -p {\"spec\":{\"matchingPrecedence\":5}}").failed();
    assert!(refused.contains("must equal the fixed value"), "{refused}");
}
