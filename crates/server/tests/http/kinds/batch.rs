//! `batch/v1`.

use super::*;

fn job(fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}},
    });
    merge_into(&mut object, &fields);
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
    KindCase {
        path: "/apis/batch/v1/namespaces/default/jobs",
        discovery: json!({"singularName": "job", "categories": ["all"], "status": true}),
        manifest: job(json!({})),
        made,
        invalid: &[
            (
                r#"{"metadata": {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}, "spec": {"completionMode": "Indexed", "completions": 11}}"#,
                "metadata.name: Invalid value: \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\": will not able to create pod with invalid DNS label: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-10",
            ),
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
async fn elastic_indexed_job_is_limited_by_host_name_length() {
    let (api, path) = (TestApi::new().await, "/apis/batch/v1/namespaces/default/jobs");
    let name = "a".repeat(61);
    let with_completions =
        |count: u32| json!({"spec": {"completionMode": "Indexed", "completions": count, "parallelism": count}});
    let mut small = job(with_completions(10));
    small["metadata"]["name"] = json!(name);
    api.check(post(path, &small), 201, json!({})).await;
    api.check(merge_patch(format!("{path}/{name}"), &with_completions(11)), 200, with_completions(11)).await;
}

/// Returns a Job with these policies.
fn indexed_job(fields: &str) -> Value {
    let mut object = job(json!({"spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 1}}));
    merge_into(&mut object, &serde_json::from_str(fields).unwrap());
    object
}

/// Invalid Job specs and the expected messages.
const INVALID_JOBS: &[(&str, &str)] = &[
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "Explode", "onPodConditions": [{"type": "T", "status": "Maybe"}]}]}}}"#,
        r#"[spec.podFailurePolicy.rules[0].action: Unsupported value: "Explode": supported values: "Count", "FailIndex", "FailJob", "Ignore", spec.podFailurePolicy.rules[0].onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"]"#,
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "T"}]}]}}}"#,
        r#"spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set"#,
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore"}]}}}"#,
        "spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "T"}], "onExitCodes": {"operator": "In", "values": [1]}}]}}}"#,
        "spec.podFailurePolicy.rules[0]: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"containerName": "x", "operator": "In", "values": [3, 0, 0]}}]}}}"#,
        r#"[spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template, spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator, spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Invalid value: 0: must not be 0 for the In operator, spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 0, spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [3,0,0]: must be ordered]"#,
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "Above", "values": []}}]}}}"#,
        r#"[spec.podFailurePolicy.rules[0].onExitCodes.operator: Unsupported value: "Above": supported values: "In", "NotIn", spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: []: at least one value is required]"#,
    ),
    (
        r#"{"spec": {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed", "template": {"spec": {"restartPolicy": "OnFailure"}}}}"#,
        r#"[spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed", spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified]"#,
    ),
    (
        r#"{"spec": {"podReplacementPolicy": "Never"}}"#,
        r#"spec.podReplacementPolicy: Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed""#,
    ),
    (
        r#"{"spec": {"completionMode": "NonIndexed", "backoffLimitPerIndex": 1, "maxFailedIndexes": 2, "successPolicy": {"rules": []}}}"#,
        r#"[spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode, spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode, spec.successPolicy: Invalid value: {"rules":[]}: requires indexed completion mode]"#,
    ),
    (
        r#"{"spec": {"maxFailedIndexes": 4}}"#,
        "[spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified, spec.maxFailedIndexes: Invalid value: 4: must be less than or equal to completions]",
    ),
    (
        r#"{"spec": {"completions": 200000, "parallelism": 20000, "backoffLimitPerIndex": 1}}"#,
        "[spec.maxFailedIndexes: Required value: must be specified when completions is above 100000, spec.parallelism: Invalid value: 20000: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index]",
    ),
    (
        r#"{"spec": {"successPolicy": {"rules": []}}}"#,
        "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified",
    ),
    (
        r#"{"spec": {"successPolicy": {"rules": [{}, {"succeededIndexes": "0,9"}, {"succeededIndexes": "0-1", "succeededCount": 4}, {"succeededCount": -1}]}}}"#,
        r#"[spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified, spec.successPolicy.rules[1].succeededIndexes: Invalid value: "0,9": error parsing succeededIndexes: too large index: "9", spec.successPolicy.rules[2].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified completions), spec.successPolicy.rules[2].succeededCount: Invalid value: 4: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field), spec.successPolicy.rules[3].succeededCount: Invalid value: -1: must be greater than or equal to 0]"#,
    ),
    (
        r#"{"spec": {"managedBy": "me"}}"#,
        r#"spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")"#,
    ),
    (
        r#"{"spec": {"managedBy": "example.com/a-name-that-is-too-long-for-a-controller-of-jobs-however-nice"}}"#,
        "spec.managedBy: Too long: may not be more than 63 bytes",
    ),
];

#[tokio::test]
async fn invalid_job_policies_are_rejected() {
    let api = TestApi::new().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let check = async |object: Value, expected_message: &str| {
        let message = format!("Job.batch \"once\" is invalid: {expected_message}");
        let response = api.send(&post(path, &object)).await;
        assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{object}");
    };
    for (change, expected_message) in INVALID_JOBS {
        check(indexed_job(change), expected_message).await;
    }
    let rule = json!({"action": "Count", "onPodConditions": [{"type": "T"}]});
    let many = json!({"podFailurePolicy": {"rules": vec![rule; 21]}});
    check(job(json!({"spec": many})), "spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items").await;
    let codes: Vec<i32> = (1..=256).collect();
    let rule = json!({"action": "Count", "onExitCodes": {"operator": "In", "values": codes}});
    let expected_message =
        "spec.podFailurePolicy.rules[0].onExitCodes.values: Too many: 256: must have at most 255 items";
    check(job(json!({"spec": {"podFailurePolicy": {"rules": [rule]}}})), expected_message).await;
    let good = r#"{"spec": {"backoffLimitPerIndex": 1, "maxFailedIndexes": 2, "managedBy": "example.com/me", "successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]},
        "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "containerName": "c", "values": [0, 3]}}, {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}}"#;
    let created = json!({"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [{}, {"onPodConditions": [{"status": "True"}]}]}}});
    api.check(post(path, &indexed_job(good)), 201, created).await;
    let expected_message = "Job.batch \"once\" is invalid: spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism";
    api.check(
        merge_patch(format!("{path}/once"), &json!({"spec": {"completions": 5}})),
        422,
        json!({"message": expected_message}),
    )
    .await;
}

const START: &str = "2026-01-01T00:00:00Z";
const END: &str = "2026-01-01T00:01:00Z";

/// Returns conditions with the status True.
fn conditions(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({"type": kind, "status": "True"})).collect()
}

#[tokio::test]
async fn inconsistent_job_status_is_rejected() {
    let api = TestApi::new().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    api.check(post(path, &job(json!({}))), 201, json!({})).await;
    let one = format!("{path}/once/status");
    let check = async |status: Value, expected_message: &str| {
        let message = format!("Job.batch \"once\" is invalid: {expected_message}");
        let response = api.send(&merge_patch(&one, &json!({"status": status}))).await;
        assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{status}");
    };
    check(json!({"active": -1}), "status.active: Invalid value: -1: must be greater than or equal to 0").await;
    check(json!({"ready": 1}), "status.ready: Invalid value: 1: cannot set more ready pods than active").await;
    check(
        json!({"completedIndexes": "0"}),
        "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed completion mode",
    )
    .await;
    check(
        json!({"failedIndexes": ""}),
        "status.failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when backoffLimitPerIndex is null",
    )
    .await;
    let twice = json!({"succeeded": ["a"], "failed": ["a"]});
    check(
        json!({"uncountedTerminatedPods": twice}),
        "status.uncountedTerminatedPods.failed[0]: Duplicate value: \"a\"",
    )
    .await;
    let both = json!({"startTime": START, "completionTime": END, "conditions": conditions(&["Complete", "Failed", "FailureTarget"])});
    check(both, "[status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions, status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions, status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition]").await;
    check(
        json!({"completionTime": END}),
        &format!("status.completionTime: Invalid value: \"{END}\": cannot set completionTime when there is no Complete=True condition"),
    )
    .await;
    let done = conditions(&["SuccessCriteriaMet", "Complete"]);
    check(json!({"conditions": done, "active": 1}), "[status.completionTime: Required value: completionTime is required for Complete jobs, status.active: Invalid value: 1: active>0 is invalid for finished job, status.startTime: Required value: startTime is required for finished job]").await;
    check(
        json!({"startTime": END, "completionTime": START, "conditions": done}),
        &format!("status.completionTime: Invalid value: \"{START}\": completionTime cannot be set before startTime"),
    )
    .await;
    check(
        json!({"conditions": conditions(&["Failed"]), "startTime": START}),
        "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
    )
    .await;
    let ended = json!({"startTime": START, "completionTime": END, "succeeded": 1, "failed": 1, "conditions": done});
    api.check(merge_patch(&one, &json!({"status": ended})), 200, json!({"status": ended})).await;
    check(
        json!({"conditions": conditions(&["SuccessCriteriaMet"]), "completionTime": null}),
        "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
    )
    .await;
    check(json!({"conditions": conditions(&["Complete"])}), "[status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition, status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition]").await;
    check(json!({"failed": 0}), "status.failed: Invalid value: 0: cannot decrease the failed counter").await;
    let later = "2026-01-01T00:02:00Z";
    check(
        json!({"completionTime": later}),
        &format!("status.completionTime: Invalid value: \"{later}\": completionTime cannot be mutated"),
    )
    .await;
    check(json!({"startTime": null}), "[status.startTime: Required value: startTime cannot be removed for unsuspended job, status.startTime: Required value: startTime is required for finished job]").await;
}

#[tokio::test]
async fn job_selector_is_generated_from_its_uid() {
    let api = TestApi::new().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let created = api.check(post(path, &job(json!({}))), 201, json!({})).await.body;
    let uid = &created["metadata"]["uid"];
    let key = "batch.kubernetes.io/controller-uid";
    assert_eq!(created["spec"]["selector"], json!({"matchLabels": {key: uid}}));
    assert_eq!(&created["spec"]["template"]["metadata"]["labels"][key], uid);
    let immutable = |field: &str, returned: &str| json!({"message": format!("Job.batch \"once\" is invalid: spec.{field}: Invalid value: {returned}: field is immutable")});
    let one = format!("{path}/once");
    api.check(merge_patch(&one, &json!({"spec": {"completions": 3}})), 422, immutable("completions", "3")).await;
    api.check(merge_patch(&one, &json!({"spec": {"parallelism": 3}})), 200, json!({"metadata": {"generation": 2}}))
        .await;
    // Pods of a Job are orphaned by default.
    api.check(delete(&one), 200, json!({"metadata": {"finalizers": ["orphan"]}})).await;
}

/// Like the creation of a Job from an exported manifest.
#[tokio::test]
async fn labels_of_another_job_are_rejected() {
    let (api, path) = (TestApi::new().await, "/apis/batch/v1/namespaces/default/jobs");
    for (fields, expected) in [
        (json!({"template": {"metadata": {"labels": {"controller-uid": "x"}}}}), "[controller-uid]: Invalid value"),
        (json!({"template": {"metadata": {"labels": {"job-name": "x"}}}}), "[job-name]: Invalid value"),
        (
            json!({"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "x"}}}),
            "`selector` not auto-generated",
        ),
        (json!({"selector": {"matchLabels": {"a": "b"}}}), "`selector` not auto-generated"),
    ] {
        let response = api.check(post(path, &job(json!({"spec": fields}))), 422, json!({})).await;
        let message = response.body["message"].as_str().unwrap();
        assert!(message.contains(expected), "{fields}: {message}");
    }
    let own = json!({"template": {"metadata": {"labels": {"job-name": "once"}}}});
    let response = api.check(post(path, &job(json!({"spec": own}))), 422, json!({})).await;
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("[batch.kubernetes.io/job-name]: Required value: must be 'once'"), "{message}");
}

#[tokio::test]
async fn cron_jobs() {
    KindCase {
        path: "/apis/batch/v1/namespaces/default/cronjobs",
        discovery: json!({"singularName": "cronjob", "shortNames": ["cj"], "categories": ["all"], "status": true}),
        manifest: json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "often"},
            "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": job(json!({}))["spec"]}}}),
        made: json!({"spec": {"concurrencyPolicy": "Allow", "suspend": false, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": {"completions": null, "template": {"spec": {"dnsPolicy": "ClusterFirst"}}}}}}),
        invalid: &[
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

#[tokio::test]
async fn job_delete_warns_of_orphaned_pods() {
    let (api, path) = (TestApi::new().await, "/apis/batch/v1/namespaces/default/jobs");
    let warning_count = |response: crate::common::TestResponse| response.warnings().len();
    let one = format!("{path}/once");
    for (request, count) in [
        (delete(&one), 1),
        (delete(format!("{one}?propagationPolicy=Background")), 0),
        (delete(format!("{one}?orphanDependents=true")), 0),
        (delete(path), 1),
    ] {
        api.check(post(path, &job(json!({}))), 201, json!({})).await;
        assert_eq!(warning_count(api.check(request.clone(), 200, json!({})).await), count, "{request:?}");
        let _ = api.send(&merge_patch(&one, &json!({"metadata": {"finalizers": null}}))).await;
    }
}
