//! Jobs.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

fn job(kubectl: &Kubectl, spec: &Value, script: &str) {
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", script]});
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    let mut all = json!({"template": {"spec": pod}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work"}, "spec": all});
    kubectl.apply(&object.to_string());
}

fn pods(kubectl: &Kubectl) -> Vec<Value> {
    kubectl.list("pods", "batch.kubernetes.io/job-name=work")
}

fn status(kubectl: &Kubectl) -> Value {
    kubectl.value("job/work", "/status")
}

fn condition(kubectl: &Kubectl, kind: &str) -> Value {
    let conditions = status(kubectl)["conditions"].clone();
    let found = conditions.as_array().into_iter().flatten().find(|c| c["type"] == kind && c["status"] == "True");
    found.cloned().unwrap_or_default()
}

fn ended(kubectl: &Kubectl, kind: &str) -> Value {
    kubectl.run(&format!("wait --for=condition={kind} job/work --timeout=120s")).ok();
    // All Pods are counted and have no finalizer.
    assert_eq!(status(kubectl)["uncountedTerminatedPods"], json!({}));
    let held = |pod: &Value| !pod["metadata"]["finalizers"].is_null();
    assert!(!pods(kubectl).iter().any(held), "{:?}", pods(kubectl));
    condition(kubectl, kind)
}

fn delete_and_wait(kubectl: &Kubectl) {
    kubectl.run("delete job work").ok();
    eventually("its Pods to be deleted", || pods(kubectl).is_empty());
}

#[e2e_test("a Job completes after enough Pods have succeeded")]
fn job_completes_after_enough_successes(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"completions": 3, "parallelism": 2}), "exit 0");
    let complete = ended(&kubectl, "Complete");
    assert_eq!(complete["message"], "Reached expected number of succeeded pods");
    let status = status(&kubectl);
    assert_eq!((&status["succeeded"], &status["failed"], &status["active"]), (&json!(3), &Value::Null, &Value::Null));
    assert_eq!((pods(&kubectl).len(), &status["terminating"]), (3, &json!(0)));
    assert_eq!(condition(&kubectl, "SuccessCriteriaMet")["reason"], "CompletionsReached");
    let table = kubectl.run("get job work --no-headers").ok();
    assert!(table.contains("Complete") && table.contains("3/3"), "{table}");
    let output = kubectl.run("describe job work").ok();
    assert!(output.contains("SuccessfulCreate") && output.contains("Job completed"), "{output}");
    delete_and_wait(&kubectl);
}

#[e2e_test("an Indexed Job gives each Pod its completion index")]
fn indexed_job_gives_pods_their_index(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(
        &kubectl,
        &json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"}),
        "echo $JOB_COMPLETION_INDEX $(hostname)",
    );
    ended(&kubectl, "Complete");
    assert_eq!((&status(&kubectl)["completedIndexes"], &status(&kubectl)["succeeded"]), (&json!("0-2"), &json!(3)));
    let mut reported: Vec<String> = pods(&kubectl)
        .iter()
        .map(|pod| kubectl.run(&format!("logs {}", pod["metadata"]["name"].as_str().unwrap())).ok().trim().to_owned())
        .collect();
    reported.sort();
    assert_eq!(reported, ["0 work-0", "1 work-1", "2 work-2"]);
    delete_and_wait(&kubectl);
}

#[e2e_test("a Job fails above its backoffLimit")]
fn job_fails_above_backoff_limit(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"backoffLimit": 0}), "exit 3");
    let failed = ended(&kubectl, "Failed");
    assert_eq!(
        (&failed["reason"], &failed["message"]),
        (&json!("BackoffLimitExceeded"), &json!("Job has reached the specified backoff limit"))
    );
    assert_eq!(status(&kubectl)["failed"], 1);
    let output = kubectl.run("describe job work").ok();
    assert!(output.contains("BackoffLimitExceeded"), "{output}");
    delete_and_wait(&kubectl);
}

#[e2e_test("a Job replaces a failed Pod")]
fn job_replaces_failed_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"backoffLimit": 1}), "exit 3");
    ended(&kubectl, "Failed");
    assert_eq!(status(&kubectl)["failed"], 2);
    assert_eq!(pods(&kubectl).len(), 2);
    delete_and_wait(&kubectl);
}

#[e2e_test("a podFailurePolicy fails a Job by exit code")]
fn pod_failure_policy_fails_job_by_exit_code(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let rule = json!({"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}});
    let spec =
        json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "podFailurePolicy": {"rules": [rule]}});
    // The second Pod waits until the first has failed.
    job(&kubectl, &spec, "if [ $JOB_COMPLETION_INDEX = 0 ]; then exit 42; else sleep 100000; fi");
    let failed = ended(&kubectl, "Failed");
    assert_eq!(failed["reason"], "PodFailurePolicy");
    let message = failed["message"].as_str().unwrap();
    assert!(message.ends_with("failed with exit code 42 matching FailJob rule at index 0"), "{message}");
    assert_eq!(condition(&kubectl, "FailureTarget")["message"], failed["message"]);
    assert_eq!(status(&kubectl)["failed"], 2);
    delete_and_wait(&kubectl);
}

#[e2e_test("a successPolicy ends a Job's remaining Pods")]
fn success_policy_ends_remaining_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let policy = json!({"rules": [{"succeededIndexes": "0"}]});
    let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "successPolicy": policy});
    job(&kubectl, &spec, "if [ $JOB_COMPLETION_INDEX = 0 ]; then exit 0; else sleep 100000; fi");
    let complete = ended(&kubectl, "Complete");
    assert_eq!(
        (&complete["reason"], &complete["message"]),
        (&json!("SuccessPolicy"), &json!("Matched rules at index 0"))
    );
    assert_eq!((&status(&kubectl)["succeeded"], &status(&kubectl)["failed"]), (&json!(1), &Value::Null));
    delete_and_wait(&kubectl);
}

#[e2e_test("backoffLimitPerIndex fails each index by itself")]
fn backoff_limit_per_index_fails_indexes_separately(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    job(&kubectl, &spec, "exit $JOB_COMPLETION_INDEX");
    let failed = ended(&kubectl, "Failed");
    assert_eq!((&failed["reason"], &failed["message"]), (&json!("FailedIndexes"), &json!("Job has failed indexes")));
    let status = status(&kubectl);
    assert_eq!((&status["completedIndexes"], &status["failedIndexes"]), (&json!("0"), &json!("1")));
    delete_and_wait(&kubectl);
}

#[e2e_test("a namespace is deleted while an index of a Job backs off")]
fn namespace_is_deleted_during_job_backoff(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let spec = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 5});
    job(&kubectl, &spec, "exit 1");
    eventually("a failed Pod", || pods(&kubectl).iter().any(|pod| pod["status"]["phase"] == "Failed"));
    kubectl.run(&format!("delete namespace {} --timeout=90s", kubectl.namespace())).ok();
}

#[e2e_test("a Job replaces a deleted Pod")]
fn job_replaces_deleted_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({}), "sleep 100000");
    eventually("a ready Pod", || status(&kubectl)["ready"] == 1);
    let first = pods(&kubectl)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    kubectl.run(&format!("delete pod {first}")).ok();
    eventually("another Pod, and the failure of the first", || {
        let (all, status) = (pods(&kubectl), status(&kubectl));
        all.len() == 1 && all[0]["metadata"]["name"] != first.as_str() && status["failed"] == 1 && status["ready"] == 1
    });
    delete_and_wait(&kubectl);
}

#[e2e_test("a suspended Job runs no Pods until it is resumed")]
fn suspended_job_runs_no_pods_until_resumed(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"suspend": true}), "exit 0");
    eventually("JobSuspended", || condition(&kubectl, "Suspended")["reason"] == "JobSuspended");
    assert!(pods(&kubectl).is_empty() && status(&kubectl)["startTime"].is_null());
    kubectl.args(&["patch", "job", "work", "-p", r#"{"spec": {"suspend": false}}"#], "").ok();
    ended(&kubectl, "Complete");
    let output = kubectl.run("describe job work").ok();
    assert!(output.contains("Job suspended") && output.contains("Job resumed"), "{output}");
    delete_and_wait(&kubectl);
}

#[e2e_test("a Job fails after its activeDeadlineSeconds")]
fn job_fails_after_active_deadline(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"activeDeadlineSeconds": 2}), "sleep 100000");
    let failed = ended(&kubectl, "Failed");
    assert_eq!(
        (&failed["reason"], &failed["message"]),
        (&json!("DeadlineExceeded"), &json!("Job was active longer than specified deadline"))
    );
    delete_and_wait(&kubectl);
}

#[e2e_test("ttlSecondsAfterFinished deletes a Job and its Pods")]
fn ttl_after_finished_deletes_job_and_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"ttlSecondsAfterFinished": 1}), "exit 0");
    eventually("the Job and its Pods to be deleted", || kubectl.get("job/work").is_none() && pods(&kubectl).is_empty());
}

#[e2e_test("a Job counts each Pod once through repeated SIGKILLs of Podium")]
fn job_counts_each_pod_once_through_sigkills() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl();
    job(&kubectl, &json!({"completions": 12, "parallelism": 3}), "sleep 1");
    let counted = |kubectl: &Kubectl| status(kubectl)["succeeded"].as_i64().unwrap_or(0);
    for round in 1..=3 {
        eventually("some Pods to be counted", || counted(&kubectl) >= 3 * round);
        cluster.stop_podium(Signal::SIGKILL);
        cluster.start_podium();
    }
    ended(&kubectl, "Complete");
    // An interrupted start may fail its Pod, which is then counted as failed and replaced.
    let count = |phase: &str| pods(&kubectl).iter().filter(|pod| pod["status"]["phase"] == phase).count();
    let counted = |field: &str| status(&kubectl)[field].as_u64().unwrap_or(0);
    assert_eq!((counted("succeeded"), count("Succeeded")), (12, 12));
    assert_eq!(counted("failed"), u64::try_from(count("Failed")).unwrap(), "{:?}", pods(&kubectl));
}
