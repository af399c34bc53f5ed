//! Service account tokens: requests, authentication and invalidation.

mod legacy;

use crate::common::*;
use auth::{
    pki::Pki,
    tokens::{TokenFile, TokenLifetime},
};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use server::ApiServer;
use std::time::Duration;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Starts a server that issues tokens, with the service account `app`.
pub(crate) async fn api() -> TestApi {
    let mut api = TestApi::new().await;
    let dir = tempfile::tempdir().unwrap();
    let key = Pki::load_or_create(dir.path(), &[], &[]).unwrap().signing_key().unwrap();
    api.server = api.server.with_signing_key(key);
    api.check(post(ACCOUNTS, &json!({"metadata": {"name": "app"}})), 201, json!({})).await;
    api
}

fn request(spec: Value) -> TestRequest {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    post(format!("{ACCOUNTS}/app/token"), &body)
}

async fn token(api: &TestApi, spec: Value) -> String {
    let response = api.check(request(spec), 201, json!({"kind": "TokenRequest"})).await;
    response.body["status"]["token"].as_str().unwrap().to_owned()
}

/// Sends a request with only this token, and returns the status code and the message.
async fn send_with_token(server: &ApiServer, token: &str, method: &str, path: &str) -> (u16, String) {
    let request = http::Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    let response = server.handle(None, request.body(Full::<bytes::Bytes>::default()).unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    (code, body["message"].as_str().unwrap_or_default().to_owned())
}

#[track_caller]
fn check(returned: (u16, String), code: u16, message: &str) {
    assert_eq!(returned, (code, message.to_owned()));
}

/// Decodes the claims without verification.
fn claims(token: &str) -> Value {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn token_request_returns_claims_and_expiration() {
    let api = api().await;
    let claims = claims(&token(&api, json!({"audiences": ["a"], "expirationSeconds": 700})).await);
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("system:serviceaccount:default:app"), &json!(["a"])));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 700);
    let account = api.send(&get(format!("{ACCOUNTS}/app"))).await.body;
    assert_eq!(claims["kubernetes.io"]["serviceaccount"]["uid"], account["metadata"]["uid"]);
    let usual = self::claims(&token(&api, json!({})).await);
    assert_eq!(usual["exp"].as_i64().unwrap() - usual["iat"].as_i64().unwrap(), 3600);
    assert_eq!((&usual["aud"][0], usual["iss"].is_string()), (&usual["iss"], true));
}

#[tokio::test]
async fn requested_token_lifetime_is_capped_at_one_year() {
    let lifetime = |token: &str| {
        let claims = claims(token);
        claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap()
    };
    let longest = || request(json!({"expirationSeconds": 4_294_967_296_i64}));
    let year = 365 * 24 * 3600;
    let mut api = api().await;
    let response = api.check(longest(), 201, json!({"spec": {"expirationSeconds": year}})).await;
    assert_eq!(lifetime(response.body["status"]["token"].as_str().unwrap()), year);
    let shortened = "299 - \"requested expiration of 4294967296 seconds shortened to 31536000 seconds\"";
    assert_eq!(response.warnings(), [shortened]);
    let max = |seconds: u64, extend: bool| TokenLifetime::new(Duration::from_secs(seconds), extend).unwrap();
    api.server = api.server.with_token_lifetime(max(3600, false));
    assert_eq!(lifetime(&token(&api, json!({"expirationSeconds": 700})).await), 700);
    // Tokens that admission mounts would otherwise be valid for a year.
    let mut object = pod("p");
    object["spec"]["serviceAccountName"] = json!("app");
    api.check(post(PODS, &object), 201, json!({})).await;
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p"});
    let mounted = json!({"expirationSeconds": 3607, "boundObjectRef": bound});
    assert_eq!(lifetime(&token(&api, mounted.clone()).await), 3600);
    api.server = api.server.with_token_lifetime(max(7200, true));
    assert_eq!(lifetime(&token(&api, mounted).await), year);
    api.server = api.server.with_token_lifetime(max(0, true));
    assert_eq!(lifetime(&token(&api, json!({"expirationSeconds": 4_294_967_296_i64})).await), 4_294_967_296);
}

#[tokio::test]
async fn invalid_token_request_is_rejected() {
    let api = api().await;
    let elsewhere = "TokenRequest.authentication.k8s.io \"app\" is invalid: metadata.name: Invalid value: \"b\": must match the service account name if specified";
    let other = json!({"metadata": {"name": "b"}, "spec": {}});
    api.check(post(format!("{ACCOUNTS}/app/token"), &other), 422, json!({"message": elsewhere})).await;
    let far = "the namespace of the provided object does not match the namespace sent on the request";
    let other = json!({"metadata": {"namespace": "far"}, "spec": {}});
    api.check(post(format!("{ACCOUNTS}/app/token"), &other), 400, json!({"message": far})).await;
    let short = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes";
    api.check(request(json!({"expirationSeconds": 599})), 422, json!({"message": short})).await;
    let missing = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "none"}});
    api.check(request(missing), 404, json!({"message": "pods \"none\" not found"})).await;
    let nameless = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod"}});
    api.check(request(nameless), 400, json!({"message": "Name parameter required."})).await;
    api.create_pod("other").await;
    let other = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "other"}});
    let message = "cannot bind token for serviceaccount \"app\" to pod running with different serviceaccount name.";
    api.check(request(other), 400, json!({"message": message})).await;
    for body in [json!({"spec": 5}), json!({"spec": "x"}), json!([]), json!({"metadata": 1})] {
        let response = api.send(&post(format!("{ACCOUNTS}/app/token"), &body)).await;
        assert_eq!(response.status, 400, "{body}: {}", response.body);
    }
    api.check(
        post(format!("{ACCOUNTS}/none/token"), &json!({})),
        404,
        json!({"message": "serviceaccounts \"none\" not found"}),
    )
    .await;
}

#[tokio::test]
async fn token_request_for_another_uid_or_kind_is_rejected() {
    let api = api().await;
    let account = api.send(&get(format!("{ACCOUNTS}/app"))).await.body;
    let uid = account["metadata"]["uid"].as_str().unwrap();
    let token_request =
        |uid: &str| post(format!("{ACCOUNTS}/app/token"), &json!({"metadata": {"uid": uid}, "spec": {}}));
    let message = format!(
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"app\": the UID in the token request \
         (other) does not match the UID of the service account ({uid})"
    );
    let details = json!({"name": "app", "group": "authentication.k8s.io", "kind": "TokenRequest"});
    api.check(token_request("other"), 409, json!({"reason": "Conflict", "message": message, "details": details})).await;
    let metadata = json!({"name": "app", "namespace": "default", "uid": uid});
    api.check(token_request(uid), 201, json!({"metadata": metadata})).await;
    api.check(request(json!({})), 201, json!({"metadata": metadata})).await;
    let bound = |reference: Value| request(json!({"boundObjectRef": reference}));
    for (api_version, kind, returned) in [
        ("v1", "ConfigMap", "/v1, Kind=ConfigMap"),
        ("apps/v1", "Pod", "apps/v1, Kind=Pod"),
        ("a/b/c", "Job", "/, Kind=Job"),
        ("", "", "/, Kind="),
    ] {
        let reference = json!({"apiVersion": api_version, "kind": kind, "name": "x"});
        let message = format!("cannot bind token to object of type {returned}");
        api.check(bound(reference), 400, json!({"reason": "BadRequest", "message": message})).await;
    }
    api.check(post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})), 201, json!({})).await;
    // The API version of the reference is optional.
    api.check(bound(json!({"kind": "Secret", "name": "s"})), 201, json!({})).await;
    let message = "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (other) does not \
                 match the UID in record. The object might have been deleted and then recreated";
    let other = json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "other"});
    api.check(bound(other), 409, json!({"message": message, "details": {"name": "s", "kind": "Secret"}})).await;
}

#[tokio::test]
async fn token_authenticates_and_is_authorized_by_bindings() {
    let api = api().await;
    let token = token(&api, json!({})).await;
    let user = "User \"system:serviceaccount:default:app\" cannot";
    let pods = "/api/v1/namespaces/default/pods";
    for (method, path, expected) in [
        (
            "GET",
            pods.to_owned(),
            format!("pods is forbidden: {user} list resource \"pods\" in API group \"\" in the namespace \"default\""),
        ),
        (
            "GET",
            format!("{pods}/p/log"),
            format!(
                "pods \"p\" is forbidden: {user} get resource \"pods/log\" in API group \"\" in the namespace \"default\""
            ),
        ),
        (
            "GET",
            "/api/v1/nodes?watch=true".to_owned(),
            format!("nodes is forbidden: {user} watch resource \"nodes\" in API group \"\" at the cluster scope"),
        ),
        (
            "DELETE",
            pods.to_owned(),
            format!(
                "pods is forbidden: {user} deletecollection resource \"pods\" in API group \"\" in the namespace \"default\""
            ),
        ),
        (
            "PATCH",
            "/apis/coordination.k8s.io/v1/namespaces/x/leases/l".to_owned(),
            format!(
                "leases.coordination.k8s.io \"l\" is forbidden: {user} patch resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"x\""
            ),
        ),
        ("GET", "/metrics".to_owned(), format!("forbidden: {user} get path \"/metrics\"")),
    ] {
        check(send_with_token(&api.server, &token, method, &path).await, 403, &expected);
    }
    let named = json!([{"kind": "ServiceAccount", "name": "app", "namespace": "default"}]);
    api.grant_cluster_role("b", named, json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}])).await;
    check(send_with_token(&api.server, &token, "GET", pods).await, 200, "");
    assert_eq!(send_with_token(&api.server, &token, "DELETE", pods).await.0, 403);
    check(send_with_token(&api.server, "nonsense", "GET", pods).await, 401, "Unauthorized");
    let other = self::token(&api, json!({"audiences": ["somebody.else"]})).await;
    check(send_with_token(&api.server, &other, "GET", pods).await, 401, "Unauthorized");
}

#[tokio::test]
async fn token_is_invalid_after_account_or_pod_is_deleted() {
    let api = api().await;
    let mut object = pod("p");
    object["spec"]["serviceAccountName"] = json!("app");
    let uid = api.check(post(PODS, &object), 201, json!({})).await.body["metadata"]["uid"].clone();
    let reference =
        |uid: &Value| json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}});
    api.check(request(reference(&json!("another"))), 409, json!({"reason": "Conflict"})).await;
    let (bound, free) = (token(&api, reference(&uid)).await, token(&api, json!({})).await);
    assert_eq!(claims(&bound)["kubernetes.io"]["pod"], json!({"name": "p", "uid": uid}));
    assert_eq!(send_with_token(&api.server, &bound, "GET", PODS).await.0, 403);
    api.check(delete(format!("{PODS}/p")), 200, json!({})).await;
    assert_eq!(send_with_token(&api.server, &bound, "GET", PODS).await.0, 401);
    // A recreated Pod has another UID.
    api.check(post(PODS, &object), 201, json!({})).await;
    assert_eq!(send_with_token(&api.server, &bound, "GET", PODS).await.0, 401);
    assert_eq!(send_with_token(&api.server, &free, "GET", PODS).await.0, 403);
    api.check(delete(format!("{ACCOUNTS}/app")), 200, json!({})).await;
    assert_eq!(send_with_token(&api.server, &free, "GET", PODS).await.0, 401);
}

#[tokio::test]
async fn token_volume_is_mounted_into_every_container() {
    let api = api().await;
    let mut object = pod("p");
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    object["spec"]["initContainers"] = json!([{"name": "i", "image": "x"}]);
    object["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
    let own = json!([{"name": "own", "mountPath": path}]);
    object["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "d", "image": "x", "volumeMounts": own}));
    let created = api.check(post(PODS, &object), 201, json!({})).await.body["spec"].clone();
    let name = created["volumes"][1]["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-xxxxx".len(), "{name}");
    let expected = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    assert_eq!(created["volumes"][1], expected);
    let mounted = json!([{"name": name, "readOnly": true, "mountPath": path}]);
    assert_eq!(
        (&created["containers"][0]["volumeMounts"], &created["initContainers"][0]["volumeMounts"]),
        (&mounted, &mounted)
    );
    assert_eq!(created["containers"][1]["volumeMounts"], json!([{"name": "own", "mountPath": path}]));
}

#[tokio::test]
async fn automount_can_be_disabled_by_pod_or_account() {
    let api = api().await;
    let mut object = pod("none");
    object["spec"]["automountServiceAccountToken"] = json!(false);
    api.check(post(PODS, &object), 201, json!({"spec": {"volumes": null}})).await;
    let switch = json!({"automountServiceAccountToken": false});
    api.check(merge_patch(format!("{ACCOUNTS}/app"), &switch), 200, json!({})).await;
    let mut object = pod("account");
    object["spec"]["serviceAccountName"] = json!("app");
    api.check(post(PODS, &object), 201, json!({"spec": {"volumes": null}})).await;
    // The Pod's field takes precedence.
    let mut object = pod("own");
    object["spec"]["serviceAccountName"] = json!("app");
    object["spec"]["automountServiceAccountToken"] = json!(true);
    let created = api.check(post(PODS, &object), 201, json!({})).await;
    assert_eq!(created.body["spec"]["volumes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn tokens_verify_with_published_oidc_keys() {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let mut api = api().await;
    api.server = api.server.with_address("10.0.0.1:6443");
    let location = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]);
    api.check(get("/api"), 200, json!({"serverAddressByClientCIDRs": location})).await;
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let configuration = json!({"issuer": issuer, "jwks_uri": "https://10.0.0.1:6443/openid/v1/jwks", "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]});
    let response = api.check(get("/.well-known/openid-configuration"), 200, configuration).await;
    assert_eq!(response.headers["cache-control"], "public, max-age=3600");
    let response =
        api.check(get("/openid/v1/jwks"), 200, json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig"}]})).await;
    assert_eq!(response.headers["content-type"], "application/jwk-set+json");
    let key = response.body["keys"][0].clone();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let half = |name: &str| decode(key[name].as_str().unwrap());
    let point = [vec![4], half("x"), half("y")].concat();
    let token = token(&api, json!({})).await;
    let (text, signature) = token.rsplit_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decode(text.split('.').next().unwrap())).unwrap();
    assert_eq!(header["kid"], key["kid"]);
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    key.verify(text.as_bytes(), &decode(signature)).unwrap();
    // The JWKS URI is the endpoint of the kubernetes Service.
    api.server.bootstrap_service("10.201.0.1:8443".parse().unwrap()).await;
    let configuration = json!({"issuer": issuer, "jwks_uri": "https://10.201.0.1:8443/openid/v1/jwks"});
    api.check(get("/.well-known/openid-configuration"), 200, configuration).await;
    // Only service accounts may read the discovery documents.
    api.server.bootstrap_rbac().await;
    assert_eq!(send_with_token(&api.server, &token, "GET", "/openid/v1/jwks").await.0, 200);
    api.check(get("/openid/v1/jwks").with_user("ann", &[]), 403, json!({})).await;
    api.check(delete("/openid/v1/jwks"), 405, json!({})).await;
}

/// Returns the user of this token, by a SelfSubjectReview.
async fn whoami(server: &ApiServer, token: &str) -> (u16, Value) {
    let request = http::Request::builder().method("POST").uri("/apis/authentication.k8s.io/v1/selfsubjectreviews");
    let request = request.header("authorization", format!("bearer {token}")).body(Full::<bytes::Bytes>::from("{}"));
    let response = server.handle(None, request.unwrap()).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    (code, body["status"]["userInfo"].clone())
}

#[tokio::test]
async fn token_auth_file_authenticates() {
    let mut api = api().await;
    api.server = api.server.with_tokens(TokenFile::parse("abc,ann,7,\"devs,ops\"").unwrap());
    api.server.bootstrap_rbac().await;
    let groups = json!(["devs", "ops", "system:authenticated"]);
    let ann = json!({"username": "ann", "uid": "7", "groups": groups});
    assert_eq!(whoami(&api.server, "abc").await, (201, ann.clone()));
    assert_eq!(whoami(&api.server, "abcd").await.0, 401);
    let review = |spec: Value| post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({"spec": spec}));
    let status = json!({"authenticated": true, "user": ann});
    api.check(review(json!({"token": "abc"})), 201, json!({"status": status})).await;
    let other = review(json!({"token": "abc", "audiences": ["vault"]}));
    api.check(other, 201, json!({"status": {"authenticated": null}})).await;
}

#[tokio::test]
async fn bootstrap_token_authenticates_until_expiration() {
    let api = api().await;
    api.server.bootstrap_rbac().await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let secret = |id: &str, fields: Value| {
        let mut data =
            json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"});
        fields.as_object().unwrap().iter().for_each(|(k, v)| data[k] = v.clone());
        let name = format!("bootstrap-token-{id}");
        json!({"metadata": {"name": name}, "type": "bootstrap.kubernetes.io/token", "stringData": data})
    };
    let cases = [
        ("aaaaaa", json!({}), 201),
        (
            "bbbbbb",
            json!({"auth-extra-groups": "system:bootstrappers:kubeadm", "expiration": "2999-01-01T00:00:00Z"}),
            201,
        ),
        ("cccccc", json!({"expiration": "2001-01-01T00:00:00Z"}), 401),
        ("dddddd", json!({"expiration": "soon"}), 401),
        ("eeeeee", json!({"usage-bootstrap-authentication": "false"}), 401),
        ("ffffff", json!({"auth-extra-groups": "system:masters"}), 401),
        ("gggggg", json!({"token-secret": "fedcba9876543210"}), 401),
        ("hhhhhh", json!({"token-id": "aaaaaa"}), 401),
    ];
    for (id, fields, code) in cases {
        api.check(post(secrets, &secret(id, fields.clone())), 201, json!({})).await;
        assert_eq!(whoami(&api.server, &format!("{id}.0123456789abcdef")).await.0, code, "{id} {fields}");
    }
    let groups = json!(["system:bootstrappers", "system:bootstrappers:kubeadm", "system:authenticated"]);
    let user = json!({"username": "system:bootstrap:bbbbbb", "groups": groups});
    assert_eq!(whoami(&api.server, "bbbbbb.0123456789abcdef").await.1, user);
    let mut opaque = secret("iiiiii", json!({}));
    opaque["type"] = json!("Opaque");
    api.check(post(secrets, &opaque), 201, json!({})).await;
    api.check(delete(format!("{secrets}/bootstrap-token-aaaaaa")), 200, json!({})).await;
    for invalid in [
        "iiiiii.0123456789abcdef",
        "aaaaaa.0123456789abcdef",
        "zzzzzz.0123456789abcdef",
        "AAAAAA.0123456789abcdef",
        "a.b",
    ] {
        assert_eq!(whoami(&api.server, invalid).await.0, 401, "{invalid}");
    }
}
