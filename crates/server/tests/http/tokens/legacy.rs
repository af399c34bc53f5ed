//! Legacy service account tokens in Secrets.

use super::*;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Starts a server with a service account and its token Secret, and returns the token.
async fn api_with_legacy_token() -> (TestApi, String) {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let mut api = TestApi::new().await;
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
    api.server = api.server.with_signing_key(pki.signing_key().unwrap());
    let account = api.check(post(ACCOUNTS, &json!({"metadata": {"name": "app"}})), 201, json!({})).await.body;
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let token = pki.signing_key().unwrap().legacy_token("default", "app", uid, "s").unwrap();
    let annotations = json!({"kubernetes.io/service-account.name": "app"});
    let secret = json!({"metadata": {"name": "s", "annotations": annotations},
        "type": "kubernetes.io/service-account-token", "data": {"token": STANDARD.encode(&token)}});
    api.check(post(SECRETS, &secret), 201, json!({})).await;
    (api, token)
}

async fn review(api: &TestApi, token: &str, audiences: Value) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
    api.check(post("/apis/authentication.k8s.io/v1/tokenreviews", &body), 201, json!({})).await.body["status"].clone()
}

#[tokio::test]
async fn legacy_token_is_valid_while_its_secret_exists() {
    let (api, token) = api_with_legacy_token().await;
    let expected = claims(&token);
    assert_eq!(expected["iss"], "kubernetes/serviceaccount");
    assert_eq!(expected["kubernetes.io/serviceaccount/secret.name"], "s");
    assert_eq!((expected.get("exp"), expected.get("aud")), (None, None));
    let status = review(&api, &token, Value::Null).await;
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:app");
    let (code, message) = send_with_token(&api.server, &token, "GET", "/api/v1/namespaces/default/pods").await;
    assert_eq!(code, 403, "{message}");
    // The token is valid for the API server's audience only.
    let other = review(&api, &token, json!(["other"])).await;
    assert!(other["error"].as_str().unwrap().contains("is invalid for the target audiences [\"other\"]"), "{other}");
    let mark = |since: Value| {
        let labels = json!({"kubernetes.io/legacy-token-invalid-since": since});
        merge_patch(format!("{SECRETS}/s"), &json!({"metadata": {"labels": labels}}))
    };
    api.check(mark(json!("2026-01-01")), 200, json!({})).await;
    let marked = review(&api, &token, Value::Null).await;
    assert!(marked["error"].as_str().unwrap().contains("has been marked invalid"), "{marked}");
    api.check(mark(Value::Null), 200, json!({})).await;
    assert_eq!(review(&api, &token, Value::Null).await["authenticated"], true);
    api.check(delete(format!("{SECRETS}/s")), 200, json!({})).await;
    let gone = review(&api, &token, Value::Null).await;
    assert!(gone["error"].as_str().unwrap().contains("service account token has been invalidated"), "{gone}");
}

#[tokio::test]
async fn legacy_token_use_sets_the_last_used_label() {
    let (api, token) = api_with_legacy_token().await;
    let path = format!("{SECRETS}/s");
    let used = async || {
        let labels = api.check(get(&path), 200, json!({})).await.body["metadata"]["labels"].clone();
        labels["kubernetes.io/legacy-token-last-used"].as_str().unwrap_or("").to_owned()
    };
    assert_eq!(used().await, "");
    let day = |days: i64| {
        let then = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        then.strftime("%Y-%m-%d").to_string()
    };
    let mark = |name: &str, at: Value| {
        let labels = json!({format!("kubernetes.io/legacy-token-{name}"): at});
        merge_patch(&path, &json!({"metadata": {"labels": labels}}))
    };
    let recorded = async |before: &str| {
        for _ in 0..1000 {
            if used().await != before {
                break;
            }
            tokio::task::yield_now().await;
        }
        used().await
    };
    let (code, message) = send_with_token(&api.server, &token, "GET", "/api/v1/namespaces/default/pods").await;
    assert_eq!(code, 403, "{message}");
    // The test may run over midnight.
    assert!([day(0), day(-1)].contains(&recorded("").await));
    // An old date is updated even if the token is invalidated.
    api.check(mark("last-used", json!("2020-01-01")), 200, json!({})).await;
    api.check(mark("invalid-since", json!("2021-01-01")), 200, json!({})).await;
    assert_eq!(send_with_token(&api.server, &token, "GET", "/api").await.0, 401);
    assert!([day(0), day(-1)].contains(&recorded("2020-01-01").await));
    // A later date, of another server, is kept.
    let ahead = day(1);
    api.check(mark("last-used", json!(ahead)), 200, json!({})).await;
    assert_eq!(send_with_token(&api.server, &token, "GET", "/api").await.0, 401);
    assert_eq!(recorded(&ahead).await, ahead);
}

#[tokio::test]
async fn legacy_token_tracking_config_map_has_a_date() {
    let api = TestApi::new().await;
    let path = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
    let since = async || {
        api.server.bootstrap_token_tracking().await;
        api.check(get(path), 200, json!({})).await.body["data"]["since"].as_str().unwrap().to_owned()
    };
    let first = since().await;
    assert!(first.parse::<jiff::civil::Date>().is_ok() && first.len() == 10, "{first}");
    // The date is kept if it is valid.
    api.check(merge_patch(path, &json!({"data": {"since": "2024-02-29"}})), 200, json!({})).await;
    assert_eq!(since().await, "2024-02-29");
    api.check(merge_patch(path, &json!({"data": {"since": "2023-02-29"}})), 200, json!({})).await;
    assert!(since().await >= first);
}

#[tokio::test]
async fn legacy_token_must_match_secret_and_account() {
    let (api, token) = api_with_legacy_token().await;
    api.check(merge_patch(format!("{SECRETS}/s"), &json!({"data": {"token": "eA=="}})), 200, json!({})).await;
    let other = review(&api, &token, Value::Null).await;
    assert!(other["error"].as_str().unwrap().contains("token does not match server's copy"), "{other}");
    let (api, token) = api_with_legacy_token().await;
    api.check(delete(format!("{ACCOUNTS}/app")), 200, json!({})).await;
    api.check(post(ACCOUNTS, &json!({"metadata": {"name": "app"}})), 201, json!({})).await;
    assert_eq!(send_with_token(&api.server, &token, "GET", "/api").await.0, 401);
}
