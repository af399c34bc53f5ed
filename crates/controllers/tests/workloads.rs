//! Tests of workload controllers against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::{Clock, Options};
use fake_api::FakeApi;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Midnight, the start of the test.
fn clock() -> Clock {
    let (began, midnight) = (Instant::now(), "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time"));
    let now = move || midnight + SignedDuration::try_from(began.elapsed()).expect("a duration");
    Clock::new(now, TimeZone::UTC)
}

fn run(api: &FakeApi, clock: &Clock) -> CancellationToken {
    let stop = CancellationToken::new();
    let options = Options { clock: clock.clone(), ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, stop.clone()));
    stop
}

fn names(api: &FakeApi, collection: &str) -> Vec<String> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    api.list(collection).iter().map(name).collect()
}

const PODS: &str = "api/v1/namespaces/x/pods";
const JOBS: &str = "apis/batch/v1/namespaces/x/jobs";
const SET: &str = "apis/apps/v1/namespaces/x/statefulsets/web";
const RC: &str = "api/v1/namespaces/x/replicationcontrollers/web";

fn stateful_set(api: &FakeApi, image: &str) {
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}});
    let known = api.get(SET).unwrap_or_else(|| json!({"metadata": {"name": "web", "namespace": "x"}}));
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}});
    let mut set = known;
    set["spec"] = json!({"replicas": 2, "serviceName": "web", "selector": {"matchLabels": labels},
        "template": template, "updateStrategy": rolling, "podManagementPolicy": "OrderedReady"});
    api.put(SET, set);
}

/// Sets the Pod to running and ready.
fn ready(api: &FakeApi, pod: &str) {
    let mut object = api.get(&format!("{PODS}/{pod}")).expect("a Pod");
    let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    object["status"] = json!({"phase": "Running", "conditions": conditions});
    api.put(&format!("{PODS}/{pod}"), object);
}

fn image(api: &FakeApi, pod: &str) -> Value {
    api.get(&format!("{PODS}/{pod}")).unwrap_or_default()["spec"]["containers"][0]["image"].clone()
}

#[tokio::test(start_paused = true)]
async fn stateful_set_creates_in_order_and_updates_in_reverse() {
    let api = FakeApi::new();
    run(&api, &clock());
    stateful_set(&api, "one");
    api.wait_until("the first is made", |api| names(api, PODS) == ["web-0"]).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(names(&api, PODS), ["web-0"], "the second waits for the first");
    ready(&api, "web-0");
    api.wait_until("the second is made", |api| names(api, PODS) == ["web-0", "web-1"]).await;
    ready(&api, "web-1");
    api.wait_until("all are counted", |api| api.get(SET).is_some_and(|set| set["status"]["readyReplicas"] == 2)).await;
    stateful_set(&api, "two");
    api.wait_until("the last is new", |api| image(api, "web-1") == "two").await;
    assert_eq!(image(&api, "web-0"), "one");
    ready(&api, "web-1");
    api.wait_until("the first is new", |api| image(api, "web-0") == "two").await;
    ready(&api, "web-0");
    api.wait_until("the rollout is over", |api| {
        let status = api.get(SET).expect("a set")["status"].clone();
        status["currentRevision"] == status["updateRevision"] && status["updatedReplicas"] == 2
    })
    .await;
    assert_eq!(api.list("apis/apps/v1/namespaces/x/controllerrevisions").len(), 2);
    // No further change follows.
    let before = api.writes().len();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(api.writes().len(), before);
}

#[tokio::test(start_paused = true)]
async fn rejected_stateful_set_pod_is_retried_before_others() {
    let api = FakeApi::new();
    run(&api, &clock());
    for code in [403, 500] {
        api.refuse_next("POST api/v1/namespaces/x/pods", code);
    }
    stateful_set(&api, "one");
    api.wait_until("it is made", |api| names(api, PODS) == ["web-0"]).await;
    let events = api.list("api/v1/namespaces/x/events");
    let failed = events.iter().filter(|event| event["reason"] == "FailedCreate").map(|event| event["message"].clone());
    assert_eq!(
        failed.collect::<Vec<_>>(),
        ["create Pod web-0 in StatefulSet web failed error: Refused"],
        "the same again counts up"
    );
}

#[tokio::test(start_paused = true)]
async fn rejected_stateful_set_pod_is_recreated_with_backoff() {
    let api = FakeApi::new();
    run(&api, &clock());
    stateful_set(&api, "one");
    let (began, mut made) = (Instant::now(), Vec::new());
    while made.len() < 6 {
        api.wait_until("it is made", |api| {
            api.get(&format!("{PODS}/web-0")).is_some_and(|pod| pod["status"].is_null())
        })
        .await;
        made.push(began.elapsed().as_secs());
        let mut pod = api.get(&format!("{PODS}/web-0")).expect("a Pod");
        pod["status"] = json!({"phase": "Failed", "reason": "NodeAffinity"});
        api.put(&format!("{PODS}/web-0"), pod);
    }
    assert_eq!(made, [0, 0, 1, 3, 7, 15]);
    // Another template is tried at once.
    stateful_set(&api, "two");
    api.wait_until("it is new", |api| image(api, "web-0") == "two").await;
    assert_eq!(began.elapsed().as_secs(), 15);
}

fn cron_job(api: &FakeApi, spec: &Value) {
    let path = "apis/batch/v1/namespaces/x/cronjobs/tick";
    // The Job controller creates no Pods of a suspended Job.
    let template = json!({"spec": {"suspend": true, "template": {"spec": {"containers": []}}}});
    let mut all = json!({"schedule": "* * * * *", "jobTemplate": template,
        "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1});
    for (field, value) in spec.as_object().expect("fields") {
        all[field] = value.clone();
    }
    let meta = json!({"name": "tick", "namespace": "x", "creationTimestamp": "2026-01-01T00:00:00Z"});
    api.put(path, json!({"metadata": meta, "spec": all, "status": {}}));
}

fn cron_status(api: &FakeApi) -> Value {
    api.get("apis/batch/v1/namespaces/x/cronjobs/tick").expect("a CronJob")["status"].clone()
}

async fn complete(api: &FakeApi, job: &str, time: &str) {
    let known = |api: &FakeApi| api.get(&format!("{JOBS}/{job}")).unwrap_or_default();
    api.wait_until("the controller of Jobs has seen it", |api| known(api)["status"]["conditions"].is_array()).await;
    let mut object = known(api);
    object["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}],
        "startTime": "2026-01-01T00:00:00Z", "completionTime": time});
    api.put(&format!("{JOBS}/{job}"), object);
}

/// Name of the Job of a minute after midnight.
fn tick(minute: i64) -> String {
    format!("tick-{}", 29_453_760 + minute)
}

#[tokio::test(start_paused = true)]
async fn cron_job_starts_a_job_each_minute_and_keeps_history() {
    let (api, clock, began) = (FakeApi::new(), clock(), Instant::now());
    let stop = run(&api, &clock);
    cron_job(&api, &json!({}));
    api.wait_until("one is started", |api| names(api, JOBS) == [tick(1)]).await;
    let waited = began.elapsed().as_millis();
    assert!((60_000..60_200).contains(&waited), "{waited} ms");
    api.wait_until("it is noted", |api| cron_status(api)["lastScheduleTime"] == "2026-01-01T00:01:00Z").await;
    let active = &cron_status(&api)["active"][0];
    assert!(active["name"] == tick(1) && active["resourceVersion"].is_string(), "{active}");
    complete(&api, &tick(1), "2026-01-01T00:01:30Z").await;
    api.wait_until("its end is noted", |api| cron_status(api)["lastSuccessfulTime"] == "2026-01-01T00:01:30Z").await;
    assert_eq!(cron_status(&api)["active"], Value::Null);
    // A restarted controller starts no Job twice.
    stop.cancel();
    run(&api, &clock);
    api.wait_until("the next is started", |api| names(api, JOBS) == [tick(1), tick(2)]).await;
    complete(&api, &tick(2), "2026-01-01T00:02:30Z").await;
    api.wait_until("the oldest goes", |api| names(api, JOBS) == [tick(2)]).await;
    let made = api.writes().iter().filter(|line| line.starts_with(&format!("POST {JOBS}"))).count();
    assert_eq!(made, 2);
}

#[tokio::test(start_paused = true)]
async fn schedule_in_seconds_starts_one_job_per_minute() {
    let api = FakeApi::new();
    run(&api, &clock());
    cron_job(&api, &json!({"schedule": "@every 20s"}));
    api.wait_until("one is started", |api| names(api, JOBS) == [tick(0)]).await;
    complete(&api, &tick(0), "2026-01-01T00:00:30Z").await;
    api.wait_until("its time has come again", |api| cron_status(api)["lastScheduleTime"] == "2026-01-01T00:00:40Z")
        .await;
    assert_eq!((names(&api, JOBS), &cron_status(&api)["active"]), (vec![tick(0)], &Value::Null));
    api.wait_until("the next minute has its own", |api| names(api, JOBS) == [tick(0), tick(1)]).await;
    let events = api.list("api/v1/namespaces/x/events");
    let ends = events.iter().filter(|event| event["reason"] == "SawCompletedJob").map(|event| event["count"].clone());
    assert_eq!(ends.collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn cron_job_forbids_or_replaces_active_jobs() {
    let api = FakeApi::new();
    run(&api, &clock());
    cron_job(&api, &json!({"concurrencyPolicy": "Forbid"}));
    api.wait_until("one is started", |api| names(api, JOBS) == [tick(1)]).await;
    let forbidden = |api: &FakeApi| {
        api.list("api/v1/namespaces/x/events").iter().any(|event| event["reason"] == "JobAlreadyActive")
    };
    api.wait_until("the second is not", forbidden).await;
    assert_eq!(names(&api, JOBS), [tick(1)]);
    // The schedule is unchanged: the skipped time is started at once.
    let mut cron = api.get("apis/batch/v1/namespaces/x/cronjobs/tick").expect("a CronJob");
    cron["spec"]["concurrencyPolicy"] = json!("Replace");
    api.put("apis/batch/v1/namespaces/x/cronjobs/tick", cron);
    api.wait_until("it takes its place", |api| names(api, JOBS) == [tick(2)]).await;
    api.wait_until("the next takes its place", |api| names(api, JOBS) == [tick(3)]).await;
}

#[tokio::test(start_paused = true)]
async fn changed_cron_schedule_has_no_missed_times() {
    let api = FakeApi::new();
    run(&api, &clock());
    cron_job(&api, &json!({"schedule": "0 0 1 1 *"}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(names(&api, JOBS), [""; 0]);
    cron_job(&api, &json!({"schedule": "*/7 * * * *"}));
    api.wait_until("the next is started", |api| names(api, JOBS) == [tick(14)]).await;
    api.wait_until("it is noted", |api| cron_status(api)["lastScheduleTime"] == "2026-01-01T00:14:00Z").await;
    // A suspended schedule does have missed times: the last one is started when it is resumed.
    cron_job(&api, &json!({"schedule": "*/7 * * * *", "suspend": true}));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(names(&api, JOBS), [tick(14)]);
    cron_job(&api, &json!({"schedule": "*/7 * * * *"}));
    api.wait_until("the last is started", |api| names(api, JOBS) == [tick(14), tick(21)]).await;
}

#[tokio::test(start_paused = true)]
async fn replication_controller_keeps_its_replicas() {
    let api = FakeApi::new();
    run(&api, &clock());
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template});
    api.put(RC, json!({"metadata": {"name": "web", "namespace": "x", "uid": "u"}, "spec": spec}));
    api.wait_until("both are made", |api| names(api, PODS).len() == 2).await;
    let made = names(&api, PODS);
    let owner = api.list(PODS)[0]["metadata"]["ownerReferences"][0].clone();
    assert_eq!((&owner["kind"], &owner["apiVersion"]), (&json!("ReplicationController"), &json!("v1")));
    made.iter().for_each(|pod| ready(&api, pod));
    api.wait_until("both are counted", |api| api.get(RC).is_some_and(|rc| rc["status"]["readyReplicas"] == 2)).await;
    api.delete(&format!("{PODS}/{}", made[0]));
    api.wait_until("another is made", |api| names(api, PODS).len() == 2 && !names(api, PODS).contains(&made[0])).await;
    let events = api.list("api/v1/namespaces/x/events");
    assert!(events.iter().all(|event| event["source"]["component"] == "replication-controller"), "{events:?}");
}
