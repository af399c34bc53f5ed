//! Tests of the token controller and the legacy token cleaner against a fake API server, on a paused clock.
#![expect(clippy::expect_used, reason = "a test may panic")]

use controllers::{Options, TokenIssuer};
use fake_api::FakeApi;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "api/v1/namespaces/x/serviceaccounts/app";
const SECRET: &str = "api/v1/namespaces/x/secrets/s";

fn start() -> FakeApi {
    let api = FakeApi::new();
    let made = TokenIssuer::new(|request| {
        Some(format!("{}/{}/{}/{}", request.namespace, request.account, request.uid, request.secret))
    });
    let options = Options { token_issuer: Some(made), root_ca_pem: Some("PEM".into()), ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

fn secret(uid: Option<&str>) -> Value {
    let mut annotations = json!({"kubernetes.io/service-account.name": "app"});
    if let Some(uid) = uid {
        annotations["kubernetes.io/service-account.uid"] = json!(uid);
    }
    json!({"metadata": {"name": "s", "namespace": "x", "annotations": annotations},
        "type": "kubernetes.io/service-account-token"})
}

fn account(uid: &str) -> Value {
    json!({"metadata": {"name": "app", "namespace": "x", "uid": uid}, "secrets": [{"name": "s"}, {"name": "t"}]})
}

#[tokio::test(start_paused = true)]
async fn token_secret_is_filled_and_deleted_with_its_account() {
    let api = start();
    api.put(ACCOUNT, account("1"));
    api.put(SECRET, secret(None));
    api.wait_until("it is filled", |api| api.get(SECRET).is_some_and(|s| !s["data"].is_null())).await;
    let filled = api.get(SECRET).expect("a Secret");
    // Base64 of `PEM`, `x` and `x/app/1/s`.
    assert_eq!(filled["data"], json!({"ca.crt": "UEVN", "namespace": "eA==", "token": "eC9hcHAvMS9z"}));
    assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], "1");
    api.remove(ACCOUNT);
    api.wait_until("it is deleted", |api| api.get(SECRET).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn token_secret_of_a_recreated_account_is_deleted() {
    let api = start();
    api.put(ACCOUNT, account("2"));
    api.put(SECRET, secret(Some("1")));
    api.wait_until("it is deleted", |api| api.get(SECRET).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn deleted_secret_is_removed_from_its_account() {
    let api = start();
    api.put(ACCOUNT, account("1"));
    api.put(SECRET, secret(None));
    api.wait_until("it is filled", |api| api.get(SECRET).is_some_and(|s| !s["data"].is_null())).await;
    api.remove(SECRET);
    let names = |api: &FakeApi| api.get(ACCOUNT).expect("an account")["secrets"].clone();
    api.wait_until("it is not named", |api| names(api) == json!([{"name": "t"}])).await;
}

const TRACKING: &str = "api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";

/// Runs the cleaner at a time, with a token created on 2020-01-01 and tracking since 2024.
fn cleaned(now: &str, labels: Value) -> FakeApi {
    let api = FakeApi::new();
    api.put(TRACKING, json!({"metadata": {"name": "t", "namespace": "kube-system"}, "data": {"since": "2024-01-01"}}));
    api.put(ACCOUNT, account("1"));
    let mut secret = secret(Some("1"));
    secret["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    secret["metadata"]["labels"] = labels;
    api.put(SECRET, secret);
    let now = now.parse().expect("a time");
    let clock = controllers::Clock::new(move || now, jiff::tz::TimeZone::UTC);
    let options = Options { clock, ..Options::default() };
    tokio::spawn(controllers::run(api.client(), options, CancellationToken::new()));
    api
}

fn invalid_since(api: &FakeApi) -> Option<String> {
    let secret = api.get(SECRET)?;
    secret["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn token_unused_for_a_year_is_invalidated() {
    let api = cleaned("2025-06-15T00:00:00Z", json!({"kubernetes.io/legacy-token-last-used": "2024-06-01"}));
    api.wait_until("it is marked", |api| invalid_since(api).as_deref() == Some("2025-06-15")).await;
}

#[tokio::test(start_paused = true)]
async fn token_invalid_for_a_year_is_deleted() {
    let api = cleaned("2025-06-15T00:00:00Z", json!({"kubernetes.io/legacy-token-invalid-since": "2024-06-01"}));
    api.wait_until("it is gone", |api| api.get(SECRET).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn token_in_use_or_created_manually_is_kept() {
    // Not tracked for long enough, and used recently.
    let early = cleaned("2024-12-31T00:00:00Z", json!({}));
    let used = cleaned("2025-06-15T00:00:00Z", json!({"kubernetes.io/legacy-token-last-used": "2024-06-15"}));
    let named = cleaned("2025-06-15T00:00:00Z", json!({"a": "b"}));
    let volume = json!({"name": "v", "secret": {"secretName": "s"}});
    let spec = json!({"containers": [], "volumes": [volume]});
    named.put("api/v1/namespaces/x/pods/p", json!({"metadata": {"name": "p", "namespace": "x"}, "spec": spec}));
    let own = cleaned("2025-06-15T00:00:00Z", json!({}));
    own.put(ACCOUNT, json!({"metadata": {"name": "app", "namespace": "x", "uid": "1"}}));
    tokio::time::sleep(std::time::Duration::from_secs(3 * 24 * 60 * 60)).await;
    for (case, api) in [("early", early), ("used", used), ("named", named), ("own", own)] {
        assert!(api.get(SECRET).is_some(), "{case}");
        assert_eq!(invalid_since(&api), None, "{case}");
    }
}
