//! Proxy subresources of Pods, Services and nodes.

use crate::{common::*, echo_server};
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use request::UserInfo;
use serde_json::{Value, json};
use server::{ApiServer, DialedStream, NodeDialer};
use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};
use store::{MemoryEngine, Options, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Creates a Pod with this Pod IP.
async fn create_pod_with_ip(api: &TestApi, name: &str, to: SocketAddr) {
    let mut object = pod(name);
    object["spec"]["containers"][0]["ports"] = json!([{"containerPort": to.port()}]);
    api.check(post(PODS, &object), 201, json!({})).await;
    let ip = to.ip().to_string();
    let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
    api.check(merge_patch(format!("{PODS}/{name}/status"), &status), 200, json!({})).await;
}

async fn create_service(api: &TestApi, name: &str, endpoints: Value, port: u16) {
    let ports = json!([{"name": "web", "port": 80, "targetPort": port}, {"name": "other", "port": 81}]);
    let service = json!({"metadata": {"name": name}, "spec": {"ports": ports}});
    api.check(post(SERVICES, &service), 201, json!({})).await;
    let slice = json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": [{"name": "web", "port": port}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    api.check(post(slices, &slice), 201, json!({})).await;
}

fn endpoint(to: SocketAddr, pod: &str) -> Value {
    json!({"addresses": [to.ip().to_string()], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "namespace": "default", "name": pod}})
}

#[tokio::test]
async fn pod_proxy_forwards_the_whole_request() {
    let (api, to) = (TestApi::new().await, echo_server::start(None).await);
    create_pod_with_ip(&api, "p", to).await;
    let requests = TestRequest { method: "PATCH", ..get(format!("{PODS}/p/proxy/a%2Fb//c/?watch=1&timeout=x")) };
    let requests =
        requests.text("text/x", "what is sent").header("x-own", "1").header("authorization", "Bearer secret");
    let requests = requests.header("connection", "x-hop").header("x-hop", "1").header("host", "asked");
    let headers = json!({"x-own": "1", "host": "asked", "authorization": null, "x-hop": null, "content-type": "text/x",
        "x-forwarded-uri": format!("{PODS}/p/proxy/a%2Fb//c/")});
    let expected =
        json!({"method": "PATCH", "uri": "/a%2Fb//c/?watch=1&timeout=x", "body": "what is sent", "headers": headers});
    let response = api.check(requests, 200, expected).await;
    assert!(!response.headers.contains_key("keep-alive"));
    // The default is the first container port.
    api.check(get(format!("{PODS}/http:p:{}/proxy/x", to.port())), 200, json!({"uri": "/x"})).await;
    let closed = format!("error trying to reach service: dial tcp {}:1: connect: connection refused", to.ip());
    let unavailable = json!({"reason": "ServiceUnavailable", "message": closed});
    api.check(get(format!("{PODS}/p:1/proxy/x")), 503, unavailable).await;
    let (_, text) = api.text(&TestRequest { method: "GET", ..get(format!("{PODS}/p/proxy/")) }).await;
    assert!(text.contains("\"uri\":\"/\""), "{text}");
}

#[tokio::test]
async fn proxy_returns_responses_unchanged() {
    let (api, to) = (TestApi::new().await, echo_server::start(None).await);
    create_pod_with_ip(&api, "p", to).await;
    let teapot = api.send(&get(format!("{PODS}/p/proxy/teapot"))).await;
    assert_eq!(teapot.status, 418);
    let moved = api.send(&get(format!("{PODS}/p/proxy/moved"))).await;
    assert_eq!((moved.status, &moved.headers["location"]), (302, &format!("{PODS}/p/proxy/there").parse().unwrap()));
    let (_, page) = api.text(&get(format!("{PODS}/p/proxy/page"))).await;
    assert_eq!(page, format!("<a href=\"{PODS}/p/proxy/there\">"));
    let rooted = api.send(&get(format!("{PODS}/p/proxy?a=b"))).await;
    assert_eq!((rooted.status, &rooted.headers["location"]), (301, &format!("{PODS}/p/proxy/?a=b").parse().unwrap()));
    let yaml = get(format!("{PODS}/p/proxy/x")).header("accept", "application/yaml");
    api.check(yaml, 200, json!({"uri": "/x"})).await;
}

#[tokio::test]
async fn invalid_proxy_targets_are_rejected() {
    let api = TestApi::new().await;
    let rejected = |message: &str| json!({"kind": "Status", "message": message});
    let message = rejected("pods \"p\" not found");
    api.check(get(format!("{PODS}/p/proxy/")), 404, message).await;
    api.create_pod("p").await;
    api.check(get(format!("{PODS}/p/proxy/")), 400, rejected("address not allowed")).await;
    create_pod_with_ip(&api, "local", "127.0.0.1:1".parse().unwrap()).await;
    api.check(get(format!("{PODS}/local/proxy/")), 400, rejected("address not allowed")).await;
    api.check(get(format!("{PODS}/ftp:p:1/proxy/")), 400, rejected("invalid pod request \"ftp:p:1\"")).await;
    api.check(TestRequest { method: "TRACE", ..get(format!("{PODS}/p/proxy/")) }, 405, json!({})).await;
    api.check(get("/api/v1/nodes/n/proxy/"), 404, rejected("nodes \"n\" not found")).await;
}

#[tokio::test]
async fn service_proxy_uses_a_ready_endpoint() {
    let (api, to) = (TestApi::new().await, echo_server::start(None).await);
    create_pod_with_ip(&api, "p", to).await;
    let mut closed = endpoint("10.99.99.99:1".parse().unwrap(), "p");
    closed["conditions"]["ready"] = json!(false);
    // Endpoints whose address is not that of their target Pod are not used.
    let other = json!({"addresses": ["10.99.99.98"], "targetRef": {"kind": "Pod", "name": "p"}});
    let nobody = json!({"addresses": ["10.99.99.97"]});
    create_service(&api, "s", json!([closed, other, nobody, endpoint(to, "p")]), to.port()).await;
    for id in ["s:80", "s:web", "http:s:web"] {
        for _ in 0..10 {
            api.check(get(format!("{SERVICES}/{id}/proxy/x")), 200, json!({"uri": "/x"})).await;
        }
    }
    create_service(&api, "none", json!([]), 1).await;
    let rejected = |message: &str| json!({"reason": "ServiceUnavailable", "code": 503, "message": message});
    for (id, message) in [
        ("none:web", "no endpoints available for service \"none:web\""),
        ("s", "no endpoints available for service \"s\""),
        ("s:other", "no endpoints available for service \"s:other\""),
        ("s:82", "no service port 82 found for service \"s\""),
    ] {
        api.check(get(format!("{SERVICES}/{id}/proxy/")), 503, rejected(message)).await;
    }
    api.check(get(format!("{SERVICES}/gone/proxy/")), 404, json!({"message": "services \"gone\" not found"})).await;
}

#[tokio::test]
async fn proxy_authorization_maps_methods_to_verbs() {
    let (api, to) = (TestApi::new().await, echo_server::start(None).await);
    create_pod_with_ip(&api, "p", to).await;
    let rules = json!([{"verbs": ["get", "update"], "apiGroups": [""], "resources": ["pods/proxy"]}]);
    api.grant_cluster_role("r", json!([{"kind": "User", "name": "ann"}]), rules).await;
    let path = format!("{PODS}/p/proxy/x?watch=true");
    for (method, status) in [("GET", 200), ("HEAD", 200), ("PUT", 200), ("POST", 403), ("PATCH", 403), ("DELETE", 403)]
    {
        let response = api.send(&TestRequest { method, ..get(&path) }.with_user("ann", &[])).await;
        assert_eq!(response.status, status, "{method}");
    }
    let message = "cannot create resource \"pods/proxy\" in API group \"\" in the namespace \"default\"";
    let rejected = api.send(&TestRequest { method: "POST", ..get(&path) }.with_user("ann", &[])).await.body;
    assert!(rejected["message"].as_str().unwrap().contains(message), "{rejected}");
}

/// Sends an upgrade request and returns its response.
async fn send_upgrade(
    api: &TestApi,
    user: UserInfo,
    method: &str,
    path: &str,
) -> http::Response<hyper::body::Incoming> {
    let (client, server) = tokio::io::duplex(4096);
    let api = api.server.clone();
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let (api, user) = (api.clone(), user.clone());
            async move { Ok::<_, Infallible>(api.handle(Some(user), request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
        connection.with_upgrades().await.unwrap();
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    let request =
        Request::builder().method(method).uri(path).header("connection", "Upgrade").header("upgrade", "shout");
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn upgraded_proxy_connection_is_joined() {
    let (api, to) = (TestApi::new().await, echo_server::start(None).await);
    create_pod_with_ip(&api, "p", to).await;
    let response = send_upgrade(&api, UserInfo::component("test"), "GET", &format!("{PODS}/p/proxy/upgrade")).await;
    assert_eq!((response.status().as_u16(), &response.headers()["upgrade"]), (101, &"shout".parse().unwrap()));
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut message = [0; 5];
    stream.read_exact(&mut message).await.unwrap();
    assert_eq!(&message, b"HELLO");
}

/// Kubelet of the node `n`, without a listening port.
struct Kubelet;

impl NodeDialer for Kubelet {
    fn dial<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn DialedStream>>> {
        async move {
            if node != "n" {
                return Err(io::Error::new(io::ErrorKind::NotFound, format!("no kubelet of {node}")));
            }
            let (ours, theirs) = tokio::io::duplex(4096);
            tokio::spawn(echo_server::serve(theirs, ""));
            Ok(Box::new(ours) as Box<dyn DialedStream>)
        }
        .boxed()
    }
}

/// Starts a server with the nodes `n`, `m` (its kubelet is unreachable) and `o` (its kubelet has another port).
async fn api_with_nodes() -> TestApi {
    let engine = MemoryEngine::new();
    let store = Store::open(engine.clone(), Options::default()).unwrap();
    let api = TestApi { server: ApiServer::new(store, Arc::new(Kubelet)), engine };
    api.server.bootstrap().await;
    for (name, port) in [("n", 0), ("m", 10250), ("o", 10251)] {
        let status = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        api.check(post("/api/v1/nodes", &json!({"metadata": {"name": name}})), 201, json!({})).await;
        api.check(merge_patch(format!("/api/v1/nodes/{name}/status"), &status), 200, json!({})).await;
    }
    api
}

#[tokio::test]
async fn node_proxy_reaches_the_kubelet_of_the_named_node_only() {
    let api = api_with_nodes().await;
    for id in ["n", "n:10250", "https:n:10250", "https:n:"] {
        api.check(get(format!("/api/v1/nodes/{id}/proxy/x")), 200, json!({"uri": "/x"})).await;
    }
    for id in ["none", "none:10250", "https:none:10250"] {
        let message = json!({"reason": "NotFound", "message": "nodes \"none\" not found"});
        api.check(get(format!("/api/v1/nodes/{id}/proxy/x")), 404, message).await;
    }
    for (id, node) in [("m", "m"), ("m:10250", "m"), ("o:10251", "o")] {
        let message = format!("error trying to reach service: no kubelet of {node}");
        let unavailable = json!({"reason": "ServiceUnavailable", "message": message});
        api.check(get(format!("/api/v1/nodes/{id}/proxy/x")), 503, unavailable).await;
    }
    // The port is not that of the kubelet, and the node has no address.
    for id in ["n:80", "o:10250"] {
        let message = json!({"message": "address not allowed"});
        api.check(get(format!("/api/v1/nodes/{id}/proxy/x")), 400, message).await;
    }
}

#[tokio::test]
async fn logs_and_exec_of_a_pod_on_another_node_name_the_node() {
    let api = api_with_nodes().await;
    let spec = json!({"nodeName": "m", "containers": [{"name": "c", "image": "i"}]});
    api.check(
        post("/api/v1/namespaces/default/pods", &json!({"metadata": {"name": "p"}, "spec": spec})),
        201,
        json!({}),
    )
    .await;
    let expected_message =
        "node \"m\" is another one than this API server's, which does not reach its kubelet: no kubelet of m";
    let path = "/api/v1/namespaces/default/pods/p";
    let message = json!({"reason": "ServiceUnavailable", "message": expected_message});
    api.check(get(format!("{path}/log")), 503, message).await;
    let response =
        send_upgrade(&api, UserInfo::component("admin"), "POST", &format!("{path}/exec?command=id&stdout=1")).await;
    assert_eq!(response.status().as_u16(), 503);
    let status = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&status).contains("no kubelet of m"), "{status:?}");
}

/// kubectl reads a text with a colon as a YAML mapping, and loses it.
#[tokio::test]
async fn errors_of_streams_with_a_colon_are_statuses() {
    let api = api_with_nodes().await;
    let spec =
        json!({"nodeName": "n", "containers": [{"name": "ended", "image": "i"}, {"name": "absent", "image": "i"}]});
    api.check(
        post("/api/v1/namespaces/default/pods", &json!({"metadata": {"name": "p"}, "spec": spec})),
        201,
        json!({}),
    )
    .await;
    let exec = async |container: &str| {
        let path = format!("/api/v1/namespaces/default/pods/p/exec?container={container}&command=id&stdout=1");
        let response = send_upgrade(&api, UserInfo::component("admin"), "POST", &path).await;
        let (code, kind) = (response.status().as_u16(), response.headers()["content-type"].clone());
        (code, kind.to_str().unwrap().to_owned(), response.into_body().collect().await.unwrap().to_bytes())
    };
    let (code, kind, body) = exec("absent").await;
    assert_eq!((code, &*kind, &*body), (404, "text/plain; charset=utf-8", &b"pod does not exist"[..]));
    let (code, kind, body) = exec("ended").await;
    assert_eq!((code, &*kind), (500, "application/json"));
    let status: Value = serde_json::from_slice(&body).unwrap();
    let message = "failed to exec in container: container c is stopped";
    assert_eq!(
        (&status["kind"], &status["reason"], &status["message"]),
        (&json!("Status"), &json!("InternalError"), &json!(message))
    );
}

#[tokio::test]
async fn node_proxy_upgrade_needs_create_whatever_the_method() {
    let api = api_with_nodes().await;
    let ann = || UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
    let rule = |verbs: Value| json!([{"verbs": verbs, "apiGroups": [""], "resources": ["nodes/proxy"]}]);
    api.grant_cluster_role("looks", json!([{"kind": "User", "name": "ann"}]), rule(json!(["get", "update", "delete"])))
        .await;
    api.check(get("/api/v1/nodes/n/proxy/metrics").with_user("ann", &[]), 200, json!({"uri": "/metrics"})).await;
    let requests = [
        ("GET", "exec/default/p/c/upgrade"),
        ("GET", "//exec/default/p/c/upgrade"),
        ("GET", "%65xec/default/p/c/upgrade"),
        ("GET", "upgrade"),
        ("PUT", "exec/default/p/c/upgrade"),
        ("DELETE", "exec/default/p/c/upgrade"),
    ];
    for (method, path) in requests {
        let response = send_upgrade(&api, ann(), method, &format!("/api/v1/nodes/n/proxy/{path}")).await;
        assert_eq!(response.status().as_u16(), 403, "{method} {path}");
        let status = response.into_body().collect().await.unwrap().to_bytes();
        let message = "cannot create resource \\\"nodes/proxy\\\" in API group";
        assert!(String::from_utf8_lossy(&status).contains(message), "{method} {path}: {status:?}");
    }
    api.grant_cluster_role("acts", json!([{"kind": "User", "name": "ann"}]), rule(json!(["create"]))).await;
    for (method, path) in requests {
        let response = send_upgrade(&api, ann(), method, &format!("/api/v1/nodes/n/proxy/{path}")).await;
        assert_eq!(response.status().as_u16(), 101, "{method} {path}");
    }
}
