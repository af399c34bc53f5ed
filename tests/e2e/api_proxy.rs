//! The proxy subresources of Pods and Services.

use serde_json::json;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
};
use tests::{Cluster, PodBuilder, e2e_test, eventually};

#[e2e_test("the API proxies requests to Pods and Services")]
fn api_proxies_requests_to_pods_and_services(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let command = "mkdir -p /tmp/w/sub && echo hello > /tmp/w/index.html && echo deep > /tmp/w/sub/index.html && exec httpd -f -p 8080 -h /tmp/w";
    let probe = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "timeoutSeconds": 30});
    let pod = PodBuilder::new("web")
        .label("app", "web")
        .grace_period(0)
        .script(command)
        .container(&json!({"ports": [{"containerPort": 8080}], "readinessProbe": probe}));
    kubectl.apply(&pod.to_string());
    let service = |name: &str, app: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": app}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
    };
    kubectl.apply(&service("web", "web").to_string());
    kubectl.apply(&service("nobody", "nobody").to_string());
    kubectl.wait_ready("web");
    let namespace = format!("/api/v1/namespaces/{}", kubectl.namespace());
    let raw = |path: &str| kubectl.run(&format!("get --raw {namespace}/{path}"));
    assert_eq!(raw("pods/web/proxy/").ok(), "hello\n");
    assert_eq!(raw("pods/web:8080/proxy/sub/").ok(), "deep\n");
    // The server redirects, and kubectl follows.
    assert_eq!(raw("pods/web/proxy/sub").ok(), "deep\n");
    eventually("the Service to have its endpoint", || raw("services/web:http/proxy/").code == 0);
    assert_eq!(raw("services/web:80/proxy/sub/index.html").ok(), "deep\n");
    let refused = raw("services/nobody:http/proxy/").failed();
    assert!(refused.contains("no endpoints available for service \"nobody:http\""), "{refused}");
    let refused = raw("pods/web:8081/proxy/").failed();
    assert!(
        refused.contains("error trying to reach service: dial tcp") && refused.contains("connection refused"),
        "{refused}"
    );

    // The same by another client, through `kubectl proxy`.
    let mut proxy = kubectl.command(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    let path = format!("{namespace}/services/web:http/proxy/");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("hello"), "{answer}");
}
