//! Secrets with tokens of accounts, against a small API server on a paused clock.

use controllers::{Options, TokenMaker};
use fake_api::FakeApi;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const ACCOUNT: &str = "api/v1/namespaces/x/serviceaccounts/app";
const SECRET: &str = "api/v1/namespaces/x/secrets/s";

fn start() -> FakeApi {
    let api = FakeApi::new();
    let made = TokenMaker::new(|of| Some(format!("{}/{}/{}/{}", of.namespace, of.account, of.uid, of.secret)));
    let options = Options { token_maker: Some(made), root_ca_pem: Some("PEM".into()), ..Options::default() };
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
async fn a_secret_is_given_a_token_and_goes_with_its_account() {
    let api = start();
    api.put(ACCOUNT, account("1"));
    api.put(SECRET, secret(None));
    api.until("it is filled", |api| api.get(SECRET).is_some_and(|s| !s["data"].is_null())).await;
    let filled = api.get(SECRET).expect("a Secret");
    // In base64: `PEM`, `x` and `x/app/1/s`.
    assert_eq!(filled["data"], json!({"ca.crt": "UEVN", "namespace": "eA==", "token": "eC9hcHAvMS9z"}));
    assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], "1");
    api.remove(ACCOUNT);
    api.until("it is deleted", |api| api.get(SECRET).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_another_account_of_that_name_goes() {
    let api = start();
    api.put(ACCOUNT, account("2"));
    api.put(SECRET, secret(Some("1")));
    api.until("it is deleted", |api| api.get(SECRET).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_account_does_not_name_a_secret_that_has_gone() {
    let api = start();
    api.put(ACCOUNT, account("1"));
    api.put(SECRET, secret(None));
    api.until("it is filled", |api| api.get(SECRET).is_some_and(|s| !s["data"].is_null())).await;
    api.remove(SECRET);
    let names = |api: &FakeApi| api.get(ACCOUNT).expect("an account")["secrets"].clone();
    api.until("it is not named", |api| names(api) == json!([{"name": "t"}])).await;
}
