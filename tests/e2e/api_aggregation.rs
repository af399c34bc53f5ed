//! Aggregated APIs: an APIService whose server runs in the test.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
};
use tests::{Cluster, Kubectl, e2e_test, eventually};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_rustls::TlsAcceptor;

const GROUP: &str = "aggregated.example.com";

fn answer(request: &Request<Incoming>) -> (u16, Value) {
    let version = format!("{GROUP}/v1");
    let user = request.headers().get("x-remote-user").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let path = request.uri().path();
    let namespace = path.split('/').nth(5).unwrap_or_default();
    let thing = json!({"apiVersion": version, "kind": "Thing", "metadata": {"name": "one", "namespace": namespace, "uid": "uid-of-one"}, "asked": user});
    let answer = match path.strip_prefix(&format!("/apis/{version}")).unwrap_or_default() {
        "" => json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get", "list", "watch", "delete"], "shortNames": ["agg"]}]}),
        path if path.ends_with("/things/one") => thing,
        path if path.ends_with("/things/none") => {
            return (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
            );
        }
        // Each namespace has one object; a list of all namespaces is not needed.
        _ => {
            let items = if namespace.is_empty() { Vec::new() } else { vec![thing] };
            json!({"kind": "ThingList", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": items})
        }
    };
    (200, answer)
}

/// Starts the server and returns its address and certificate.
fn start(runtime: &Runtime, names: Vec<String>) -> (SocketAddr, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = runtime.block_on(TcpListener::bind((own_ip(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request| async move {
                    let (status, body) = answer(&request);
                    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                    // A watch has no events and ends at once.
                    let text = Bytes::from(if is_watch { String::new() } else { body.to_string() });
                    let response = Response::builder().status(status).header("content-type", "application/json");
                    Ok::<_, Infallible>(response.body(Full::new(text)).unwrap())
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, certificate.pem())
}

/// Returns a non-loopback address of this machine.
fn own_ip() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Connecting a UDP socket sends nothing.
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

fn prepare(kubectl: &Kubectl, to: SocketAddr, bundle: &str) {
    let namespace = kubectl.namespace();
    let all = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "more"}, "spec": {"ports": [{"port": 443, "targetPort": to.port()}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "more", "labels": {"kubernetes.io/service-name": "more"}},
            "addressType": "IPv4", "endpoints": [{"addresses": [to.ip().to_string()]}], "ports": [{"name": "", "port": to.port()}]},
        {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": format!("v1.{GROUP}")},
            "spec": {"group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "service": {"namespace": namespace, "name": "more"}, "caBundle": STANDARD.encode(bundle)}}]});
    kubectl.apply(&all.to_string());
}

/// An APIService, which is deleted also when the test fails: without its server, no namespace can be deleted.
struct ApiService<'a>(&'a Kubectl, &'a str);

impl Drop for ApiService<'_> {
    fn drop(&mut self) {
        self.0.run(&format!("delete {} --ignore-not-found", self.1));
    }
}

#[e2e_test("an aggregated API is discovered and used like a built-in one")]
fn aggregated_api_is_discovered_and_proxied(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let local = kubectl.run("get apiservices v1. v1.apps v1.rbac.authorization.k8s.io --no-headers").ok();
    let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    let expected = ["v1.", "v1.apps", "v1.rbac.authorization.k8s.io"]
        .map(|name| vec![name.to_owned(), "Local".into(), "True".into()]);
    assert_eq!(local.lines().map(words).collect::<Vec<_>>(), expected);

    let runtime = Runtime::new().unwrap();
    let (to, bundle) = start(&runtime, vec![format!("more.{}.svc", kubectl.namespace())]);
    let service = format!("apiservice/v1.{GROUP}");
    let _deleted = ApiService(&kubectl, &service);
    prepare(&kubectl, to, &bundle);
    kubectl.run(&format!("wait --for=condition=Available --timeout=90s {service}")).ok();
    let found = kubectl.run(&format!("api-resources --api-group={GROUP} --no-headers")).ok();
    assert_eq!(
        found.split_whitespace().collect::<Vec<_>>(),
        ["things", "agg", &format!("{GROUP}/v1"), "true", "Thing"]
    );
    assert!(kubectl.run("get agg --no-headers").ok().starts_with("one "));
    assert_eq!(kubectl.value("thing/one", "/asked"), "kubernetes-admin");
    owns(&kubectl);

    drop(runtime);
    eventually("the APIService to be unavailable", || {
        kubectl.value(&service, "/status/conditions/0/status") == "False" || {
            // A changed APIService is checked at once; a failing server causes no event.
            kubectl.run("label service more --overwrite looked=again").ok();
            kubectl.run("label service more looked-").ok();
            false
        }
    });
    assert_eq!(kubectl.value(&service, "/status/conditions/0/reason"), "FailedDiscoveryCheck");
    // By path, because kubectl's discovery cache is shared between tests.
    let refused = kubectl.run(&format!("get --raw /apis/{GROUP}/v1/things")).failed();
    assert!(refused.contains("the server is currently unable to handle the request"), "{refused}");

    // Without the server, its objects in the namespace cannot be listed.
    let (all, namespace) = (cluster.kubectl_in("default"), format!("{}-aggregated", kubectl.namespace()));
    all.run(&format!("create namespace {namespace}")).ok();
    all.run(&format!("delete namespace {namespace} --wait=false")).ok();
    let has_condition = |kind: &str| {
        let status = all.value(&format!("namespace/{namespace}"), "/status/conditions");
        let conditions = status.as_array().cloned().unwrap_or_default();
        conditions.into_iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    eventually("the namespace to report why it is not deleted", || has_condition("NamespaceDeletionDiscoveryFailure"));
    kubectl.run(&format!("delete {service}")).ok();
    eventually("the namespace to be deleted", || {
        all.run(&format!("get namespace {namespace} --ignore-not-found")).is_ok_and(str::is_empty)
    });
}

/// Checks that a dependent of an object of the aggregated API lives as long as its owner.
fn owns(kubectl: &Kubectl) {
    let owned = |name: &str, owner: &str| {
        let owner = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "name": owner, "uid": format!("uid-of-{owner}")});
        let metadata = json!({"name": name, "ownerReferences": [owner]});
        kubectl.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string());
    };
    owned("stays", "one");
    owned("goes", "none");
    eventually("the dependent without owner to be deleted", || {
        kubectl.run("get configmap goes --ignore-not-found").is_ok_and(str::is_empty)
    });
    kubectl.run("get configmap stays").ok();
}
