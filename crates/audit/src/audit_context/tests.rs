use super::*;
use crate::{AuditPolicy, AuditRotation};

#[tokio::test]
async fn panic_is_logged_with_its_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
    let policy = AuditPolicy::parse(policy).unwrap();
    let log =
        Arc::new(AuditLog::open(policy, &path, AuditRotation::default(), |path| std::fs::File::create(path)).unwrap());
    let (head, ()) = http::Request::get("/api/v1/pods?limit=1").body(()).unwrap().into_parts();
    let audit_context = AuditContext::begin(Some(&log), &head);
    let info = RequestInfo::new(&head.method, &head.uri);
    audit_context.process_request_received(&UserInfo::component("c"), &info).await;
    audit_context.log_panic("boom").await;
    drop(audit_context.log_response(response::text(500, "")).await);
    log.flush().await;
    let text = std::fs::read_to_string(path).unwrap();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let stages: Vec<&str> = events.iter().filter_map(|e| e["stage"].as_str()).collect();
    assert_eq!(stages, ["RequestReceived", "Panic"]);
    let status = json!({"metadata": {}, "status": "Failure", "message": "APIServer panic'd: boom", "reason": "InternalError", "code": 500});
    assert_eq!((&events[1]["responseStatus"], &events[1]["requestURI"]), (&status, &json!("/api/v1/pods?limit=1")));
}
