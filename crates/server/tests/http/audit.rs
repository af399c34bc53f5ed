//! Audit log with upstream's event format.

use crate::{
    common::{CONFIG_MAPS, PODS, TestApi, TestRequest, compare, get, merge_patch, post},
    validating_admission_policies,
    webhook_server::WebhookServer,
    webhooks::{self, review_response},
};
use audit::{AuditLog, AuditPolicy, AuditRotation};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

const POLICY_HEADER: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: ";

/// A test API server that writes an audit log with these rules.
struct AuditedApi {
    api: TestApi,
    log: Arc<AuditLog>,
    dir: TempDir,
}

impl AuditedApi {
    async fn with(rules: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let policy = AuditPolicy::parse(&format!("{POLICY_HEADER}{rules}}}")).unwrap();
        let log = AuditLog::open(policy, &dir.path().join("audit.log"), AuditRotation::default(), |path| {
            std::fs::File::create(path)
        })
        .unwrap();
        let (mut api, log) = (TestApi::new().await, Arc::new(log));
        api.server = api.server.clone().with_audit(log.clone());
        Self { api, log, dir }
    }

    async fn events(&self) -> Vec<Value> {
        self.log.flush().await;
        let text = std::fs::read_to_string(self.dir.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that each event contains the expected JSON.
    #[track_caller]
    fn check(events: &[Value], expected: &[Value]) {
        assert_eq!(events.len(), expected.len(), "{events:#?}");
        for (event, expected) in events.iter().zip(expected) {
            let mut mismatches = Vec::new();
            compare(expected, event, "", &mut mismatches);
            assert!(mismatches.is_empty(), "{}\n{event:#}", mismatches.join("\n"));
        }
    }
}

fn as_ann(request: TestRequest) -> TestRequest {
    request.with_user("ann", &["devs"])
}

#[tokio::test]
async fn audit_events_have_received_and_complete_stages() {
    let audited = AuditedApi::with("[{level: Metadata}]").await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    let request =
        post(CONFIG_MAPS, &map).header("user-agent", "test/1").header("x-forwarded-for", "192.0.2.1, 192.0.2.2");
    let response = audited.api.send(&request).await;
    assert_eq!(response.status, 201);
    let id = response.headers["audit-id"].to_str().unwrap();
    let about = json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1", "apiGroup": null});
    let received = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": id, "stage": "RequestReceived",
        "requestURI": CONFIG_MAPS, "verb": "create", "objectRef": about, "responseStatus": null, "annotations": null,
        "user": {"username": "test", "groups": ["system:masters", "system:authenticated"]}, "userAgent": "test/1",
        "sourceIPs": ["192.0.2.1", "192.0.2.2", "127.0.0.1"],
    });
    let complete = json!({
        "auditID": id, "stage": "ResponseComplete", "responseStatus": {"metadata": {}, "code": 201},
        "objectRef": {"resource": "configmaps", "name": "m"}, "requestObject": null, "responseObject": null,
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    });
    let events = audited.events().await;
    AuditedApi::check(&events, &[received, complete]);
    // metav1.MicroTime.
    let time = events[1]["stageTimestamp"].as_str().unwrap();
    assert_eq!((time.len(), &time[time.len() - 1..]), ("2026-01-01T00:00:00.000000Z".len(), "Z"));
    assert_eq!(events[0]["requestReceivedTimestamp"], events[0]["stageTimestamp"]);
}

#[tokio::test]
async fn audit_bodies_are_logged_by_policy_level() {
    let rules = "[{level: Request, verbs: [create]}, {level: RequestResponse, omitStages: [RequestReceived], omitManagedFields: true}]";
    let audited = AuditedApi::with(rules).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    audited.api.check(post(CONFIG_MAPS, &map), 201, json!({})).await;
    let sent = json!({"stage": "ResponseComplete", "requestObject": map, "responseObject": null});
    AuditedApi::check(&audited.events().await, &[json!({"requestObject": null}), sent]);
    let patch = json!({"data": {"k": "w"}});
    audited.api.check(merge_patch(format!("{CONFIG_MAPS}/m"), &patch), 200, json!({"data": {"k": "w"}})).await;
    let object = json!({"data": {"k": "w"}, "metadata": {"name": "m", "managedFields": null}});
    let patched =
        json!({"stage": "ResponseComplete", "verb": "patch", "requestObject": patch, "responseObject": object});
    AuditedApi::check(&audited.events().await[2..], &[patched]);
    audited.api.check(get(CONFIG_MAPS), 200, json!({})).await;
    let listed = audited.events().await.pop().unwrap();
    assert_eq!(listed["responseObject"]["items"][0]["metadata"]["name"], "m", "{listed:#}");
    assert!(!listed.to_string().contains("managedFields"));
}

#[tokio::test]
async fn audit_logs_authorization_decision_and_reason() {
    let audited = AuditedApi::with("[{level: Metadata, omitStages: [RequestReceived]}]").await;
    audited.api.check(as_ann(get(format!("{PODS}/p"))), 403, json!({})).await;
    let status =
        json!({"status": "Failure", "reason": "Forbidden", "code": 403, "details": {"name": "p", "kind": "pods"}});
    let rejected = json!({"user": {"username": "ann"}, "responseStatus": status, "annotations": {"authorization.k8s.io/decision": "forbid"}});
    AuditedApi::check(&audited.events().await, &[rejected]);
    audited
        .api
        .grant_cluster_role(
            "r",
            json!([{"kind": "User", "name": "ann"}]),
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]),
        )
        .await;
    audited.api.check(as_ann(get(format!("{PODS}/p"))), 404, json!({})).await;
    let reason = r#"RBAC: allowed by ClusterRoleBinding "r" of ClusterRole "r" to User "ann""#;
    let allowed = json!({"responseStatus": {"code": 404, "reason": "NotFound"}, "annotations": {"authorization.k8s.io/reason": reason}});
    AuditedApi::check(&audited.events().await[3..], &[allowed]);
    audited.api.check(get(PODS).header("impersonate-user", "bob"), 403, json!({})).await;
    let acting = json!({"user": {"username": "test"}, "impersonatedUser": {"username": "bob", "groups": ["system:authenticated"]}});
    AuditedApi::check(&audited.events().await[4..], &[acting]);
}

#[tokio::test]
async fn audit_logs_failed_authentication_methods() {
    let audited = AuditedApi::with("[{level: Metadata}]").await;
    for (token, message) in [
        (None, "Authentication failed, no credentials provided"),
        (Some("Bearer x"), "Authentication failed, attempted: bearer"),
    ] {
        let mut request = http::Request::get(PODS);
        request = token.into_iter().fold(request, |r, token| r.header("authorization", token));
        let body = http_body_util::Empty::<bytes::Bytes>::new();
        assert_eq!(audited.api.server.handle(None, request.body(body).unwrap()).await.status(), 401, "{token:?}");
        let event = audited.events().await.pop().unwrap();
        let expected = json!({"stage": "ResponseStarted", "responseStatus": {"code": 401, "message": message}});
        AuditedApi::check(&[event], &[expected]);
    }
    assert_eq!(audited.events().await.len(), 2);
}

#[tokio::test]
async fn audit_logs_watch_start_and_end() {
    let audited = AuditedApi::with("[{level: RequestResponse, verbs: [watch]}]").await;
    let mut watch = audited.api.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    audited.api.create_config_map("m", json!({})).await;
    watch.check("ADDED", json!({})).await;
    let started = json!({"stage": "ResponseStarted", "responseStatus": {"code": 200}, "responseObject": null});
    AuditedApi::check(&audited.events().await, &[json!({"stage": "RequestReceived", "verb": "watch"}), started]);
    drop(watch);
    AuditedApi::check(
        &audited.events().await[2..],
        &[json!({"stage": "ResponseComplete", "responseStatus": {"code": 200}})],
    );
}

#[tokio::test]
async fn legacy_watch_path_is_audited_as_its_resource() {
    let rules = r#"[{level: Metadata, verbs: [watch], resources: [{group: "", resources: [secrets]}]}]"#;
    for path in [
        "/api/v1/watch/namespaces/default/secrets",
        "//api/v1/watch//namespaces/default/secrets",
        "/api/v1/%77atch/namespaces/default/secrets",
        "/%61pi/v1/watch/namespaces/default/secret%73",
    ] {
        let audited = AuditedApi::with(rules).await;
        drop(audited.api.watch(path).await);
        let about = json!({"resource": "secrets", "namespace": "default", "apiVersion": "v1"});
        let received = json!({
            "stage": "RequestReceived", "level": "Metadata", "verb": "watch", "objectRef": about, "requestURI": path,
        });
        let stages = [received, json!({"stage": "ResponseStarted"}), json!({"stage": "ResponseComplete"})];
        AuditedApi::check(&audited.events().await, &stages);
    }
}

#[tokio::test]
async fn unmatched_request_is_not_audited_and_audit_id_is_kept() {
    let audited = AuditedApi::with("[{level: Metadata, nonResourceURLs: ['/version']}]").await;
    audited.api.check(get(PODS), 200, json!({})).await;
    assert!(audited.events().await.is_empty());
    let response = audited.api.send(&get("/version").header("audit-id", "mine")).await;
    assert_eq!(response.headers["audit-id"], "mine");
    let recorded = json!({"auditID": "mine", "verb": "get", "requestURI": "/version", "objectRef": null});
    AuditedApi::check(&audited.events().await[1..], &[recorded]);
    let unnoted = TestApi::new().await.send(&get("/version")).await;
    assert!(unnoted.headers.contains_key("audit-id"));
}

#[tokio::test]
async fn admission_policies_add_audit_annotations() {
    let audited = AuditedApi::with("[{level: Metadata, omitStages: [RequestReceived]}]").await;
    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "false", "message": "never"}],
        "auditAnnotations": [{"key": "name", "valueExpression": "'it is ' + object.metadata.name"},
                             {"key": "nothing", "valueExpression": "null"}],
    });
    validating_admission_policies::create_policy(&audited.api, "p", spec).await;
    validating_admission_policies::create_binding(&audited.api, "b", "p", json!({"validationActions": ["Audit"]}))
        .await;
    audited.api.check(post(CONFIG_MAPS, &json!({"metadata": {"name": "m"}})), 201, json!({})).await;
    let event = audited.events().await.pop().unwrap();
    let reported = &event["annotations"];
    assert_eq!((&reported["p/name"], &reported["p/nothing"]), (&json!("it is m"), &Value::Null));
    let failure = reported["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    let expected =
        r#"[{"message":"never","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Audit"]}]"#;
    assert_eq!(failure, expected);
}

#[tokio::test]
async fn pod_security_audit_annotations_are_logged() {
    let audited =
        AuditedApi::with("[{level: Metadata, verbs: [create], resources: [{group: '', resources: [pods]}]}]").await;
    let prefix = "pod-security.kubernetes.io";
    let labels = json!({format!("{prefix}/enforce"): "baseline", format!("{prefix}/audit"): "restricted", format!("{prefix}/audit-version"): "v1.30"});
    audited
        .api
        .check(merge_patch("/api/v1/namespaces/default", &json!({"metadata": {"labels": labels}})), 200, json!({}))
        .await;
    assert_eq!(audited.api.send(&post(PODS, &crate::common::pod("p"))).await.status, 201);
    let mut bad = crate::common::pod("q");
    bad["spec"]["hostNetwork"] = json!(true);
    assert_eq!(audited.api.send(&post(PODS, &bad)).await.status, 403);
    let events = audited.events().await;
    let ends = events.iter().filter(|e| e["stage"] == "ResponseComplete");
    let expected: Vec<(&Value, &str)> = ends
        .map(|e| {
            let message = |name: &str| &e["annotations"][format!("{prefix}/{name}")];
            (message("enforce-policy"), message("audit-violations").as_str().unwrap_or(""))
        })
        .collect();
    assert_eq!(expected.len(), 2, "{events:#?}");
    let begins = "would violate PodSecurity \"restricted:v1.30\": allowPrivilegeEscalation != false";
    assert!(expected[0].0 == "baseline:latest" && expected[0].1.starts_with(begins), "{expected:?}");
    assert!(expected[1].1.contains("host namespaces (hostNetwork=true)"), "{expected:?}");
}

#[tokio::test]
async fn webhook_mutations_and_failures_are_audited() {
    for (level, patch) in [("Request", Some("JSONPatch")), ("Metadata", None)] {
        let audited =
            AuditedApi::with(&format!("[{{level: {level}, resources: [{{resources: [configmaps]}}]}}]")).await;
        let hook = WebhookServer::new(|path, review| match path {
            "/down" => (500, json!("")),
            "/changes" => {
                let patch = json!([{"op": "add", "path": "/data", "value": {"a": "b"}}]).to_string();
                let recorded = json!({"k": "v", "no/key": "x"});
                review_response(
                    review,
                    json!({"patch": STANDARD.encode(patch), "patchType": "JSONPatch", "auditAnnotations": recorded}),
                )
            }
            _ => review_response(review, json!({"auditAnnotations": {"seen": "yes"}})),
        })
        .await;
        let rules = || json!({"rules": webhooks::rule_for("configmaps"), "failurePolicy": "Ignore"});
        webhooks::create_mutating_webhook(&audited.api, "a", hook.client_config("/changes"), rules()).await;
        webhooks::create_mutating_webhook(&audited.api, "b", hook.client_config("/down"), rules()).await;
        webhooks::create_validating_webhook(&audited.api, "c", hook.client_config("/down"), rules()).await;
        webhooks::create_validating_webhook(&audited.api, "d", hook.client_config("/looks"), rules()).await;
        audited
            .api
            .check(post(CONFIG_MAPS, &json!({"metadata": {"name": "m"}})), 201, json!({"data": {"a": "b"}}))
            .await;
        let reported = audited.events().await.pop().unwrap()["annotations"].clone();
        let expected = json!({
            "mutation.webhook.admission.k8s.io/round_0_index_0": r#"{"configuration":"a","webhook":"a.example.com","mutated":true}"#,
            "mutation.webhook.admission.k8s.io/round_0_index_1": r#"{"configuration":"b","webhook":"b.example.com","mutated":false}"#,
            "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "b.example.com",
            "failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "c.example.com",
            "a.example.com/k": "v",
            "d.example.com/seen": "yes",
            "a.example.com/no/key": null,
        });
        let mut mismatches = Vec::new();
        compare(&expected, &reported, "", &mut mismatches);
        assert!(mismatches.is_empty(), "{level}: {mismatches:?} {reported:#}");
        let recorded = reported["patch.webhook.admission.k8s.io/round_0_index_0"].as_str();
        let recorded =
            recorded.map(|text| serde_json::from_str::<Value>(text).unwrap()["patchType"].as_str().unwrap().to_owned());
        assert_eq!(recorded.as_deref(), patch, "{level}");
    }
}

#[tokio::test]
async fn deprecated_api_use_is_audited() {
    let audited = AuditedApi::with("[{level: Metadata, omitStages: [RequestReceived]}]").await;
    audited.api.check(get("/api/v1/namespaces/default/endpoints"), 200, json!({})).await;
    audited.api.check(get(CONFIG_MAPS), 200, json!({})).await;
    let events = audited.events().await;
    let recorded: Vec<&Value> = events.iter().map(|event| &event["annotations"]["k8s.io/deprecated"]).collect();
    assert_eq!(recorded, [&json!("true"), &Value::Null]);
}
