//! CronJobs.
//!
//! No test waits for a minute: the schedule `@every 1s` is soon due, and a missed time is due at once.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tests::{Cluster, Kubectl, e2e_test, eventually};

/// Applies a CronJob `tick` whose Pods run a script.
fn cron_job(kubectl: &Kubectl, spec: &Value, script: &str) {
    let container = json!({"name": "c", "image": test_images::BUSYBOX, "command": ["sh", "-c", script]});
    let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    let template =
        json!({"metadata": {"labels": {"of": "tick"}}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}});
    let mut all = json!({"schedule": "@every 1s", "jobTemplate": template});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let object = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": all});
    kubectl.apply(&object.to_string());
}

fn jobs(kubectl: &Kubectl) -> Vec<String> {
    let names = kubectl.run("get jobs -o name").ok();
    names.lines().map(|line| line.trim_start_matches("job.batch/").to_owned()).collect()
}

fn status(kubectl: &Kubectl) -> Value {
    kubectl.value("cronjob/tick", "/status")
}

fn suspend(kubectl: &Kubectl, suspended: bool) {
    let patch = json!({"spec": {"suspend": suspended}}).to_string();
    kubectl.args(&["patch", "cronjob", "tick", "-p", &patch], "").ok();
}

/// Returns the name of the only Job; `None` while there is none or another one, too.
fn only_job(kubectl: &Kubectl) -> Option<String> {
    match jobs(kubectl).as_slice() {
        [job] => Some(job.clone()),
        _ => None,
    }
}

fn has_event(kubectl: &Kubectl, reason: &str, message: &str) -> bool {
    kubectl.events("tick").iter().any(|(known, text)| known == reason && text.contains(message))
}

/// Sets the last schedule time so that an hourly schedule was due this many minutes ago.
fn set_due(kubectl: &Kubectl, minutes: i64) {
    let last = Timestamp::now() - SignedDuration::from_mins(60 + minutes);
    let last = last.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({"status": {"lastScheduleTime": last}}).to_string();
    kubectl.args(&["patch", "cronjob", "tick", "--subresource=status", "--type=merge", "-p", &patch], "").ok();
}

fn delete_and_wait(kubectl: &Kubectl) {
    kubectl.run("delete cronjob tick").ok();
    eventually("the Jobs and Pods to be deleted", || kubectl.run("get jobs,pods -o name").is_ok_and(str::is_empty));
}

#[e2e_test("a CronJob starts a Job on schedule and records its end")]
fn cron_job_starts_job_on_schedule(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    cron_job(&kubectl, &json!({"timeZone": "Europe/Berlin"}), "true");
    eventually("a Job", || !jobs(&kubectl).is_empty());
    suspend(&kubectl, true);
    let name = jobs(&kubectl).remove(0);
    let object = kubectl.get(&format!("job/{name}")).unwrap();
    let minute: i64 = name.trim_start_matches("tick-").parse().unwrap();
    let scheduled = &object["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    let scheduled = scheduled.as_str().unwrap();
    assert!(scheduled.ends_with("+01:00") || scheduled.ends_with("+02:00"), "{scheduled}");
    assert_eq!(scheduled.parse::<Timestamp>().unwrap().as_second() / 60, minute);
    assert_eq!(object["metadata"]["labels"]["of"], "tick");
    assert_eq!(object["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    kubectl.run(&format!("wait --for=condition=complete job/{name} --timeout=120s")).ok();
    eventually("the end in the status", || {
        let status = status(&kubectl);
        status["active"].is_null() && status["lastScheduleTime"].is_string() && status["lastSuccessfulTime"].is_string()
    });
    eventually("the Events", || {
        has_event(&kubectl, "SuccessfulCreate", &format!("Created job {name}"))
            && has_event(&kubectl, "SawCompletedJob", &format!("Saw completed job: {name}, condition: Complete"))
    });
    let table = kubectl.run("get cronjob tick --no-headers").ok();
    let cells: Vec<&str> = table.split_whitespace().take(6).collect();
    assert_eq!(cells, ["tick", "@every", "1s", "Europe/Berlin", "True", "0"], "{table}");
    delete_and_wait(&kubectl);
}

#[e2e_test("a CronJob keeps the finished Jobs of its history limits")]
fn cron_job_keeps_history_limits(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let limits = json!({"schedule": "@every 1h", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
    cron_job(&kubectl, &limits, "true");
    set_due(&kubectl, 30);
    eventually("one Job", || jobs(&kubectl).len() == 1);
    let first = jobs(&kubectl).remove(0);
    kubectl.run(&format!("wait --for=condition=complete job/{first} --timeout=120s")).ok();
    set_due(&kubectl, 20);
    eventually("only the next Job", || only_job(&kubectl).is_some_and(|job| job != first));
    let next = jobs(&kubectl).remove(0);
    kubectl.wait_for_event("tick", "SuccessfulDelete", &format!("Deleted job {first}"));
    cron_job(&kubectl, &limits, "false");
    set_due(&kubectl, 10);
    eventually("a failed Job to be created and deleted", || {
        let events = kubectl.events("tick");
        let delete_and_wait = events.iter().filter(|(reason, _)| reason == "SuccessfulDelete").count();
        delete_and_wait == 2 && jobs(&kubectl) == [next.clone()]
    });
    delete_and_wait(&kubectl);
}

#[e2e_test("a CronJob obeys its concurrencyPolicy while a Job runs")]
fn cron_job_obeys_concurrency_policy(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    cron_job(&kubectl, &json!({"schedule": "@every 1h", "concurrencyPolicy": "Forbid"}), "sleep 100000");
    set_due(&kubectl, 30);
    eventually("one Job", || jobs(&kubectl).len() == 1);
    eventually("the active Job in the status", || status(&kubectl)["active"][0]["name"].is_string());
    let first = jobs(&kubectl).remove(0);
    set_due(&kubectl, 20);
    eventually("the JobAlreadyActive Event", || {
        has_event(&kubectl, "JobAlreadyActive", "concurrency policy is Forbid")
    });
    assert_eq!(jobs(&kubectl), std::slice::from_ref(&first));
    let replace = json!({"spec": {"concurrencyPolicy": "Replace"}}).to_string();
    kubectl.args(&["patch", "cronjob", "tick", "-p", &replace], "").ok();
    eventually("another Job to replace it", || only_job(&kubectl).is_some_and(|job| job != first));
    eventually("the new active Job in the status", || {
        only_job(&kubectl).is_some_and(|job| status(&kubectl)["active"][0]["name"] == job.as_str())
    });
    delete_and_wait(&kubectl);
}

#[e2e_test("kubectl create job --from=cronjob runs a Job at once")]
fn job_from_cron_job_runs_at_once(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    cron_job(&kubectl, &json!({"schedule": "0 0 1 1 *", "suspend": true}), "true");
    kubectl.run("create job now --from=cronjob/tick").ok();
    kubectl.run("wait --for=condition=complete job/now --timeout=120s").ok();
    let annotation = kubectl.value("job/now", "/metadata/annotations/cronjob.kubernetes.io~1instantiate");
    assert_eq!(annotation, "manual");
    eventually("lastSuccessfulTime", || status(&kubectl)["lastSuccessfulTime"].is_string());
    assert_eq!(status(&kubectl)["active"], Value::Null);
    delete_and_wait(&kubectl);
}
