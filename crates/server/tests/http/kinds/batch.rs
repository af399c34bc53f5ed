//! `batch/v1`.

use super::*;

fn job(more: Value) -> Value {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}},
    });
    merge_into(&mut object, &more);
    object
}

#[tokio::test]
async fn jobs() {
    let made = json!({
        "metadata": {"generation": 1},
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": false,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {"metadata": {"labels": {"job-name": "once", "batch.kubernetes.io/job-name": "once"}}}},
        "status": {},
    });
    Of {
        path: "/apis/batch/v1/namespaces/default/jobs",
        discovery: json!({"singularName": "job", "categories": ["all"], "status": true}),
        manifest: job(json!({})),
        made,
        wrong: &[
            (
                r#"{"spec": {"template": {"spec": {"restartPolicy": null}}}}"#,
                "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                r#"{"spec": {"parallelism": -1}}"#,
                "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                r#"{"spec": {"completionMode": "Indexed", "parallelism": 2}}"#,
                "spec.completions: Required value: when completion mode is Indexed",
            ),
            (r#"{"spec": {"manualSelector": true}}"#, "[spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`]"),
        ],
        columns: "Name|Status|Completions|Duration|Age|Containers|Images|Selector",
        cells: json!(["once", "Running", "0/1", "", null, "c", "busybox:1", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn a_job_selects_its_pods_by_its_uid() {
    let api = Api::new().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let made = api.check(post(path, &job(json!({}))), 201, json!({})).await.body;
    let uid = &made["metadata"]["uid"];
    let key = "batch.kubernetes.io/controller-uid";
    assert_eq!(made["spec"]["selector"], json!({"matchLabels": {key: uid}}));
    assert_eq!(&made["spec"]["template"]["metadata"]["labels"][key], uid);
    let immutable = |field: &str, shown: &str| json!({"message": format!("Job.batch \"once\" is invalid: spec.{field}: Invalid value: {shown}: field is immutable")});
    let one = format!("{path}/once");
    api.check(merge(&one, &json!({"spec": {"completions": 3}})), 422, immutable("completions", "3")).await;
    api.check(merge(&one, &json!({"spec": {"parallelism": 3}})), 200, json!({"metadata": {"generation": 2}})).await;
    // Without a word, the Pods of a Job stay when it goes.
    api.check(delete(&one), 200, json!({"metadata": {"finalizers": ["orphan"]}})).await;
}

#[tokio::test]
async fn cron_jobs() {
    Of {
        path: "/apis/batch/v1/namespaces/default/cronjobs",
        discovery: json!({"singularName": "cronjob", "shortNames": ["cj"], "categories": ["all"], "status": true}),
        manifest: json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job(json!({}))["spec"]}}}),
        made: json!({"spec": {"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"completions": null, "template": {"spec": {"dnsPolicy": "ClusterFirst"}}}}}}),
        wrong: &[
            (r#"{"spec": {"schedule": null}}"#, "spec.schedule: Required value"),
            (
                r#"{"spec": {"schedule": "often"}}"#,
                "spec.schedule: Invalid value: \"often\": expected exactly 5 fields, found 1: [often]",
            ),
            (
                r#"{"spec": {"concurrencyPolicy": "Maybe"}}"#,
                "spec.concurrencyPolicy: Unsupported value: \"Maybe\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ),
            (
                r#"{"spec": {"jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Always"}}}}}}"#,
                "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
            ),
            (
                r#"{"metadata": {"name": "a-name-that-is-longer-than-fifty-two-characters-are-xx"}}"#,
                "metadata.name: Invalid value: \"a-name-that-is-longer-than-fifty-two-characters-are-xx\": must be no more than 52 characters",
            ),
        ],
        columns: "Name|Schedule|Timezone|Suspend|Active|Last Schedule|Age|Containers|Images|Selector",
        cells: json!(["often", "*/5 * * * *", "<none>", "False", 0, "<none>", null, "c", "busybox:1", "<none>"]),
    }
    .check()
    .await;
}
