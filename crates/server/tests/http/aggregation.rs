//! Aggregated APIs: APIServices and the proxy to their servers.

use crate::{common::*, echo_server};
use auth::pki::Pki;
use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc};
use tempfile::TempDir;

const APIS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A test API server that proxies `more.io/v1` to a backend with its own CA.
struct AggregatedApi {
    api: TestApi,
    to: SocketAddr,
    authority: String,
    _dir: TempDir,
}

/// Returns a serving certificate, its key and the CA in PEM. A self-signed certificate is its own CA.
fn serving_certificate(self_signed: bool) -> (CertificateDer<'static>, KeyPair, String) {
    let names = || vec!["more.default.svc".to_owned()];
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = params.self_signed(&key).unwrap();
    let authority = signed.pem();
    if self_signed {
        return (signed.der().clone(), key, authority);
    }
    let issuer = Issuer::from_ca_cert_pem(&authority, key).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(names()).unwrap().signed_by(&key, &issuer).unwrap();
    (own.der().clone(), key, authority)
}

/// Returns the TLS configuration of a backend that requires client certificates of this CA, and the backend's CA.
fn server_tls(clients: &str, self_signed: bool) -> (Arc<ServerConfig>, String) {
    let (own, key, authority) = serving_certificate(self_signed);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier).with_single_cert(vec![own], key).unwrap();
    (Arc::new(config), authority)
}

impl AggregatedApi {
    async fn new() -> Self {
        Self::with(false).await
    }

    async fn with(self_signed: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::load_or_create(dir.path(), &[], &[]).unwrap();
        let (config, authority) = server_tls(&pki.front_proxy().ca_pem, self_signed);
        let to = echo_server::start(Some(config)).await;
        let mut api = TestApi::new().await;
        api.server = api.server.clone().with_front_proxy(pki.front_proxy(), pki.ca_pem());
        api.server.bootstrap().await;
        tokio::spawn(api.server.clone().aggregate());
        Self { api, to, authority, _dir: dir }
    }

    /// Creates the Service of the backend and its EndpointSlice.
    async fn create_service(&self) {
        let service = json!({"metadata": {"name": "more"}, "spec": {"ports": [{"port": 443}]}});
        self.api.check(post(SERVICES, &service), 201, json!({})).await;
        self.create_endpoint_slice().await;
    }

    async fn create_endpoint_slice(&self) {
        let slice = json!({"metadata": {"name": "more", "labels": {"kubernetes.io/service-name": "more"}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [self.to.ip().to_string()]}], "ports": [{"name": "", "port": self.to.port()}]});
        self.api.check(post(SLICES, &slice), 201, json!({})).await;
    }

    fn api_service(&self, fields: Value) -> Value {
        let mut spec = json!({"group": "more.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "default", "name": "more"}, "caBundle": STANDARD.encode(&self.authority)});
        fields.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
        json!({"metadata": {"name": "v1.more.io"}, "spec": spec})
    }

    /// Waits until the `Available` condition of `v1.more.io` has this status and reason.
    #[track_caller]
    fn wait_for_condition<'a>(&'a self, status: &'a str, reason: &'a str) -> impl Future<Output = Value> + 'a {
        self.wait_for_condition_of("v1.more.io", status, reason)
    }

    /// Waits until the `Available` condition of this APIService has this status and reason.
    #[track_caller]
    fn wait_for_condition_of<'a>(
        &'a self,
        name: &'a str,
        status: &'a str,
        reason: &'a str,
    ) -> impl Future<Output = Value> + 'a {
        let location = std::panic::Location::caller();
        async move {
            let path = format!("{APIS}?watch=1&fieldSelector=metadata.name%3D{name}");
            let mut events = self.api.watch(&path).await;
            loop {
                let event = events.next().await;
                let condition = event["object"]["status"]["conditions"][0].clone();
                eprintln!("{location}: {condition}");
                if condition["status"] == status && condition["reason"] == reason {
                    return condition["message"].clone();
                }
            }
        }
    }
}

#[tokio::test]
async fn aggregated_request_is_proxied_with_user_headers() {
    let setup = AggregatedApi::new().await;
    setup.create_service().await;
    let created = json!({"spec": {"service": {"port": 443}}});
    setup.api.check(post(APIS, &setup.api_service(json!({}))), 201, created).await;
    assert_eq!(setup.wait_for_condition("True", "Passed").await, "all checks passed");
    let things = "/apis/more.io/v1/namespaces/default/things?watch=false&x=a%2Fb";
    let request = TestRequest { method: "POST", ..get(things) }.text("application/json", "{}");
    let request =
        request.header("x-remote-user", "root").header("x-remote-extra-a", "b").header("authorization", "Bearer x");
    let headers = json!({"x-remote-user": "test", "x-remote-group": "system:masters; system:authenticated",
        "x-remote-extra-a": null, "authorization": null, "host": setup.to.to_string()});
    let reported = json!({"method": "POST", "uri": things, "body": "{}", "headers": headers, "certificate": "shown"});
    setup.api.check(request, 200, reported).await;
    // Requests are authorized before they are proxied.
    let path = "/apis/more.io/v1/things";
    let message = "things.more.io is forbidden: User \"ann\" cannot list resource \"things\" in API group \"more.io\" at the cluster scope";
    setup.api.check(get(path).with_user("ann", &[]), 403, json!({"message": message})).await;
    let rules = json!([{"verbs": ["list"], "apiGroups": ["more.io"], "resources": ["things"]}]);
    setup.api.grant_cluster_role("r", json!([{"kind": "User", "name": "ann"}]), rules).await;
    setup.api.check(get(path).with_user("ann", &[]), 200, json!({"headers": {"x-remote-user": "ann"}})).await;
    let row = setup.api.send(&get_table(format!("{APIS}/v1.more.io"))).await.body["rows"][0]["cells"].clone();
    assert_eq!(row.as_array().unwrap()[..3], [json!("v1.more.io"), json!("default/more"), json!("True")]);
}

#[tokio::test]
async fn aggregated_server_may_use_a_self_signed_certificate() {
    let setup = AggregatedApi::with(true).await;
    setup.create_service().await;
    setup.api.check(post(APIS, &setup.api_service(json!({}))), 201, json!({})).await;
    assert_eq!(setup.wait_for_condition("True", "Passed").await, "all checks passed");
}

#[tokio::test]
async fn aggregated_api_is_in_discovery_and_openapi() {
    let setup = AggregatedApi::new().await;
    setup.create_service().await;
    setup.api.check(post(APIS, &setup.api_service(json!({}))), 201, json!({})).await;
    setup.wait_for_condition("True", "Passed").await;
    let group = json!({"name": "more.io", "versions": [{"groupVersion": "more.io/v1", "version": "v1"}], "preferredVersion": {"version": "v1"}});
    let groups = setup.api.send(&get("/apis")).await.body["groups"].as_array().unwrap().clone();
    let mut mismatches = Vec::new();
    compare(&group, groups.last().unwrap(), "", &mut mismatches);
    assert!(mismatches.is_empty(), "{mismatches:?}");
    setup.api.check(get("/apis/more.io"), 200, json!({"kind": "APIGroup", "name": "more.io"})).await;
    setup
        .api
        .check(get("/apis/more.io/v1"), 200, json!({"kind": "APIResourceList", "groupVersion": "more.io/v1"}))
        .await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let discovered = async || {
        let list = setup.api.send(&get("/apis").header("accept", accept)).await.body;
        list["items"].as_array().unwrap().last().unwrap()["versions"][0].clone()
    };
    let kind = json!({"group": "more.io", "version": "v1", "kind": "Thing"});
    let resource = json!({"resource": "things", "responseKind": kind, "scope": "Namespaced", "singularResource": "thing",
        "verbs": ["get", "list"], "shortNames": ["th"],
        "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}]});
    assert_eq!(discovered().await, json!({"version": "v1", "freshness": "Current", "resources": [resource]}));
    let url = json!({"serverRelativeURL": "/openapi/v3/apis/more.io/v1?hash=x"});
    let document = async || setup.api.send(&get("/openapi/v3")).await;
    assert_eq!(document().await.body["paths"]["apis/more.io/v1"], url);
    setup
        .api
        .check(get("/openapi/v3/apis/more.io/v1?hash=x"), 200, json!({"uri": "/openapi/v3/apis/more.io/v1?hash=x"}))
        .await;
    setup.api.check(delete(format!("{SLICES}/more")), 200, json!({})).await;
    setup.wait_for_condition("False", "EndpointsNotFound").await;
    assert_eq!(document().await.body["paths"]["apis/more.io/v1"], Value::Null);
    assert_eq!(discovered().await["freshness"], "Stale");
    setup.api.check(delete(format!("{APIS}/v1.more.io")), 200, json!({})).await;
    setup.api.check(get("/apis/more.io"), 404, json!({})).await;
    setup.api.check(get("/apis/more.io/v1/things"), 404, json!({})).await;
}

#[tokio::test]
async fn unreachable_api_service_is_unavailable_with_reason() {
    let setup = AggregatedApi::new().await;
    setup.api.check(post(APIS, &setup.api_service(json!({"caBundle": null}))), 201, json!({})).await;
    assert_eq!(
        setup.wait_for_condition("False", "ServiceNotFound").await,
        "service/more in \"default\" is not present"
    );
    let unable = json!({"kind": "Status", "reason": "ServiceUnavailable", "message": "the server is currently unable to handle the request"});
    setup.api.check(get("/apis/more.io/v1/things"), 503, unable).await;
    let service = json!({"metadata": {"name": "more"}, "spec": {"ports": [{"port": 80}]}});
    setup.api.check(post(SERVICES, &service), 201, json!({})).await;
    assert_eq!(
        setup.wait_for_condition("False", "ServicePortError").await,
        "service/more in \"default\" is not listening on port 443"
    );
    setup.api.check(delete(format!("{SERVICES}/more")), 200, json!({})).await;
    setup.create_service().await;
    // The backend's certificate is signed by an unknown CA.
    let reason = setup.wait_for_condition("False", "FailedDiscoveryCheck").await;
    let start = format!("failing or missing response from https://{}/apis/more.io/v1: ", setup.to);
    assert!(reason.as_str().unwrap().starts_with(&start), "{reason}");
    let insecure = json!({"spec": {"insecureSkipTLSVerify": true}});
    setup.api.check(merge_patch(format!("{APIS}/v1.more.io"), &insecure), 200, json!({})).await;
    setup.wait_for_condition("True", "Passed").await;
    setup.api.check(get("/apis/more.io/v1/things"), 200, json!({})).await;
}

#[tokio::test]
async fn local_groups_and_crds_have_api_services() {
    let setup = AggregatedApi::new().await;
    let mut events = setup.api.watch(&format!("{APIS}?watch=1&fieldSelector=metadata.name%3Dv1.apps")).await;
    let condition = json!({"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available"});
    let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "onstart"});
    let spec = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17_800, "versionPriority": 15});
    events
        .check("ADDED", json!({"metadata": {"labels": labels}, "spec": spec, "status": {"conditions": [condition]}}))
        .await;
    let row = setup.api.send(&get_table(format!("{APIS}/v1.apps"))).await.body["rows"][0]["cells"].clone();
    assert_eq!(row.as_array().unwrap()[..3], [json!("v1.apps"), json!("Local"), json!("True")]);
    // APIServices of custom kinds are created and deleted with their definition.
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": "things.own.io"}, "spec": {"group": "own.io", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let mut events = setup.api.watch(&format!("{APIS}?watch=1&fieldSelector=metadata.name%3Dv1.own.io")).await;
    setup.api.check(post(definitions, &definition), 201, json!({})).await;
    let labels = json!({"kube-aggregator.kubernetes.io/automanaged": "true"});
    events
        .check(
            "ADDED",
            json!({"metadata": {"labels": labels}, "spec": {"groupPriorityMinimum": 1000, "versionPriority": 100}}),
        )
        .await;
    setup.api.check(delete(format!("{definitions}/things.own.io")), 200, json!({})).await;
    events.check("DELETED", json!({})).await;
}

#[tokio::test]
async fn built_in_groups_ignore_changed_api_services() {
    let api = TestApi::new().await;
    let spec = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"namespace": "default", "name": "nobody"}});
    api.check(post(APIS, &json!({"metadata": {"name": "v1.apps"}, "spec": spec})), 201, json!({})).await;
    api.check(get("/apis/apps/v1/deployments"), 200, json!({"kind": "DeploymentList"})).await;
    api.check(delete(format!("{APIS}/v1.apps")), 200, json!({})).await;
    api.check(get("/apis/apps/v1/deployments"), 200, json!({"kind": "DeploymentList"})).await;
}

#[tokio::test]
async fn metrics_api_service_can_be_replaced_and_restored() {
    let setup = AggregatedApi::new().await;
    setup.create_service().await;
    let name = "v1beta1.metrics.k8s.io";
    let (own, nodes) = (format!("{APIS}/{name}"), "/apis/metrics.k8s.io/v1beta1/nodes");
    let local = json!({"spec": {"groupPriorityMinimum": 100, "versionPriority": 100, "service": null},
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}});
    let mut events = setup.api.watch(&format!("{APIS}?watch=1&fieldSelector=metadata.name%3D{name}")).await;
    events.check("ADDED", local.clone()).await;
    setup.api.check(get(nodes), 200, json!({"kind": "NodeMetricsList"})).await;
    // Like `kubectl apply` to an existing APIService.
    let service = json!({"spec": {"service": {"namespace": "default", "name": "more"}, "insecureSkipTLSVerify": true}});
    setup.api.check(merge_patch(&own, &service), 200, json!({})).await;
    setup.wait_for_condition_of(name, "True", "Passed").await;
    setup.api.check(get(nodes), 200, json!({"uri": nodes, "kind": null})).await;
    let version = json!({"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"});
    setup.api.check(get("/apis/metrics.k8s.io"), 200, json!({"versions": [version]})).await;
    let documents = setup.api.send(&get("/openapi/v3")).await.body["paths"].clone();
    assert_eq!(documents["apis/metrics.k8s.io/v1beta1"], Value::Null, "the backend has no OpenAPI document");
    setup.api.check(delete(&own), 200, json!({})).await;
    setup.api.check(get(nodes), 200, json!({"kind": "NodeMetricsList"})).await;
    while events.next().await["type"] != "DELETED" {}
    events.check("ADDED", local.clone()).await;
    // An APIService that is changed back to local is served locally again.
    setup.api.check(merge_patch(&own, &service), 200, json!({})).await;
    setup.wait_for_condition_of(name, "True", "Passed").await;
    let back = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    setup.api.check(merge_patch(&own, &back), 200, local).await;
    setup.api.check(get(nodes), 200, json!({"kind": "NodeMetricsList"})).await;
}

#[tokio::test]
async fn extension_apiserver_config_map_has_both_cas() {
    let setup = AggregatedApi::new().await;
    let map =
        setup.api.send(&get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")).await.body;
    let data = &map["data"];
    for field in ["client-ca-file", "requestheader-client-ca-file"] {
        assert!(data[field].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"), "{field}: {data}");
    }
    assert_ne!(data["client-ca-file"], data["requestheader-client-ca-file"]);
    assert_eq!(data["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert_eq!(data["requestheader-username-headers"], "[\"X-Remote-User\"]");
}

#[tokio::test]
async fn invalid_api_service_is_rejected() {
    let api = TestApi::new().await;
    let spec = |fields: Value| {
        let mut spec = json!({"group": "more.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10});
        fields.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
        spec
    };
    for (fields, reason) in [
        (
            json!({"version": "v2"}),
            "metadata.name: Invalid value: \"v1.more.io\": must be `spec.version+\".\"+spec.group`: \"v2.more.io\"",
        ),
        (
            json!({"groupPriorityMinimum": 0}),
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
        ),
        (
            json!({"versionPriority": 1001}),
            "spec.versionPriority: Invalid value: 1001: must be positive and less than 1000",
        ),
        (
            json!({"insecureSkipTLSVerify": true}),
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ),
        (json!({"service": {"name": "s"}}), "spec.service.namespace: Required value"),
        (
            json!({"service": {"name": "s", "namespace": "n", "port": 0}}),
            "spec.service.port: Invalid value: 0: port is not valid:must be between 1 and 65535, inclusive",
        ),
    ] {
        let object = json!({"metadata": {"name": "v1.more.io"}, "spec": spec(fields)});
        let message = format!("APIService.apiregistration.k8s.io \"v1.more.io\" is invalid: {reason}");
        api.check(post(APIS, &object), 422, json!({"message": message})).await;
    }
}
