//! Service traffic from Pods and the node: cluster IPs, DNS names, node ports and load balancers.

use crate::probe_protocols;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    time::Duration,
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, podium_binary, wait_for};

/// Returns a Pod that serves its name on port 8080, and the client's address at `/cgi-bin/who`.
fn web(name: &str) -> PodBuilder {
    let script = "mkdir -p /www/cgi-bin; hostname > /www/index.html; \
        printf '#!/bin/sh\\necho; echo $REMOTE_ADDR\\n' > /www/cgi-bin/who; chmod +x /www/cgi-bin/who; \
        touch /tmp/ready; exec httpd -f -p 8080 -h /www";
    let probe = json!({"exec": {"command": ["test", "-f", "/tmp/ready"]}, "periodSeconds": 1});
    PodBuilder::new(name)
        .label("app", "web")
        .grace_period(0)
        .script(script)
        .container(&json!({"readinessProbe": probe}))
}

fn service(spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    object
}

/// Creates Pods and their Service, and waits until they are ready.
fn start(kubectl: &Kubectl, pods: &[&str], spec: &Value) {
    kubectl.apply(&service(spec).to_string());
    pods.iter().for_each(|name| kubectl.apply(&web(name).to_string()));
    for name in pods {
        kubectl.wait_ready(name);
    }
}

/// Returns the response that a Pod gets from a URL, or an empty text on failure.
fn get(kubectl: &Kubectl, from: &str, url: &str) -> String {
    try_get(kubectl, from, url).unwrap_or_default()
}

/// Returns the response that a Pod gets from a URL; the error is what the client prints.
fn try_get(kubectl: &Kubectl, from: &str, url: &str) -> Result<String, String> {
    let reported = kubectl.args(&["exec", from, "--", "wget", "-q", "-O", "-", url], "");
    if reported.code == 0 { Ok(reported.stdout.trim().to_owned()) } else { Err(reported.stderr) }
}

/// Waits until exactly these Pods respond at a URL.
fn wait_for_responders(kubectl: &Kubectl, from: &str, url: &str, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    wait_for(&format!("{url} to be answered by {expected:?}"), Duration::from_secs(60), || {
        let reported = (0..8).map(|_| try_get(kubectl, from, url)).collect::<Result<BTreeSet<String>, String>>()?;
        if reported == expected { Ok(()) } else { Err(format!("{reported:?}")) }
    });
}

/// Returns the response that this machine gets from an address.
fn get_from_node(address: &str) -> String {
    let Ok(address) = address.parse::<SocketAddr>() else { return String::new() };
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(30)) else { return String::new() };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    let requested = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_string(&mut answer));
    requested.ok().and_then(|_| answer.split("\r\n\r\n").nth(1)).unwrap_or_default().trim().to_owned()
}

#[e2e_test("a Service balances over its ready Pods, by address and by name")]
fn service_balances_over_ready_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &["a", "b"], &json!({}));
    let ip = kubectl.value("service/web", "/spec/clusterIP");
    let ip = ip.as_str().unwrap();
    wait_for_responders(&kubectl, "a", &format!("http://{ip}"), &["a", "b"]);
    let namespace = kubectl.namespace().to_owned();
    for name in ["web".to_owned(), format!("web.{namespace}"), format!("web.{namespace}.svc.cluster.local")] {
        wait_for_responders(&kubectl, "b", &format!("http://{name}"), &["a", "b"]);
    }
    eventually("the node to reach the Service", || ["a", "b"].contains(&get_from_node(&format!("{ip}:80")).as_str()));
    // A port that the Service does not have is refused, from the node and from Pods.
    let refused = || {
        let unserved = format!("{ip}:81").parse().unwrap();
        let requested = TcpStream::connect_timeout(&unserved, Duration::from_secs(5));
        requested.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    eventually("the node to be refused at once", refused);
    let reported = kubectl.args(&["exec", "a", "--", "wget", "-O", "-", &format!("http://{ip}:81")], "");
    assert!(reported.stderr.contains("Connection refused"), "{}", reported.stderr);
    kubectl.run("exec a -- rm /tmp/ready").ok();
    wait_for_responders(&kubectl, "a", &format!("http://{ip}"), &["b"]);
    kubectl.run("exec b -- rm /tmp/ready").ok();
    eventually("clients to be refused at once", || {
        let reported = kubectl.args(&["exec", "a", "--", "wget", "-O", "-", &format!("http://{ip}")], "");
        reported.stderr.contains("Connection refused")
    });
}

#[e2e_test("a Pod sees the client's address and reaches its own Service")]
fn pod_sees_client_address_and_own_service(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &["a"], &json!({}));
    let client = PodBuilder::new("client").grace_period(0).command(&["sleep", "1000"]);
    kubectl.apply(&client.to_string());
    kubectl.wait_ready("client");
    let ip = kubectl.value("pod/client", "/status/podIP");
    let ip = ip.as_str().unwrap();
    eventually("the client's address in the response", || {
        get(&kubectl, "client", "http://web/cgi-bin/who").trim_matches(['[', ']']).trim_start_matches("::ffff:") == ip
    });
    eventually("a Pod to reach itself through the Service", || {
        !get(&kubectl, "a", "http://web/cgi-bin/who").is_empty()
    });
}

#[e2e_test("sessionAffinity ClientIP keeps a client at one Pod")]
fn session_affinity_keeps_client_at_one_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &["a", "b", "c"], &json!({"sessionAffinity": "ClientIP"}));
    eventually("a response", || !get(&kubectl, "a", "http://web").is_empty());
    // A response that is late, and then empty, is not that of another Pod.
    let answers: BTreeSet<String> = (0..20).filter_map(|_| try_get(&kubectl, "a", "http://web").ok()).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[e2e_test("a node port answers at the node's address and at 127.0.0.1")]
fn node_port_answers_at_node_and_loopback(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    for policy in ["Cluster", "Local"] {
        start(&kubectl, &["a"], &json!({"type": "NodePort", "externalTrafficPolicy": policy}));
        let port = kubectl.value("service/web", "/spec/ports/0/nodePort");
        let host = kubectl.value("pod/a", "/status/hostIP");
        for ip in ["127.0.0.1", host.as_str().unwrap()] {
            eventually(&format!("{ip}:{port} answers ({policy})"), || get_from_node(&format!("{ip}:{port}")) == "a");
        }
        kubectl.run("delete service web").ok();
        eventually("the node port to be closed with its Service", || {
            get_from_node(&format!("127.0.0.1:{port}")).is_empty()
        });
    }
}

/// The client uses one socket all the time, like DNS and metrics clients.
#[e2e_test("UDP traffic moves to another Pod when one is deleted")]
fn udp_moves_to_another_pod(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&service(&json!({"ports": [{"port": 53, "targetPort": 8081, "protocol": "UDP"}]})).to_string());
    let ip = kubectl.value("service/web", "/spec/clusterIP");
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    socket.connect((ip.as_str().unwrap(), 53)).unwrap();
    for name in ["a", "b"] {
        probe_protocols::apply(&kubectl, name, &json!({}));
        kubectl.run(&format!("label pod {name} app=web")).ok();
        eventually(&format!("{name} answers"), || {
            let mut answer = [0; 100];
            // Packets are refused while there is no endpoint.
            let reported = socket.send(b"?").and_then(|_| socket.recv(&mut answer));
            reported.is_ok_and(|length| answer.get(..length) == Some(name.as_bytes()))
        });
        kubectl.run(&format!("delete pod {name} --timeout=90s")).ok();
    }
}

/// Resolves a name in a Pod.
fn resolve(kubectl: &Kubectl, from: &str, kind: &str, name: &str) -> String {
    let reported = kubectl.args(&["exec", from, "--", "nslookup", &format!("-type={kind}"), name], "");
    format!("{}{}", reported.stdout, reported.stderr)
}

#[e2e_test("a LoadBalancer Service gets an address that Pods and node reach")]
fn load_balancer_address_is_reachable(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &["a", "b"], &json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}));
    kubectl.run("wait --for=jsonpath={.status.loadBalancer.ingress[0].ip} --timeout=60s service/web").ok();
    let ip = kubectl.value("service/web", "/status/loadBalancer/ingress/0/ip");
    let ip = ip.as_str().unwrap();
    let row = kubectl.run("get service web --no-headers").ok();
    assert_eq!(row.split_whitespace().nth(3), Some(ip), "{row}");
    wait_for_responders(&kubectl, "a", &format!("http://{ip}"), &["a", "b"]);
    eventually("the node to reach the Service", || ["a", "b"].contains(&get_from_node(&format!("{ip}:80")).as_str()));
    kubectl.run("patch service web --type=merge -p {\"spec\":{\"type\":\"ClusterIP\"}}").ok();
    kubectl.wait_value("service/web", "/status/loadBalancer", &json!({}));
    // No packet for the address leaves the node.
    eventually("clients to be refused", || {
        let requested = TcpStream::connect_timeout(&format!("{ip}:80").parse().unwrap(), Duration::from_secs(5));
        requested.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    });
}

#[e2e_test("a headless Service resolves to its Pods")]
fn headless_service_resolves_to_pods(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.apply(&service(&json!({"clusterIP": "None"})).to_string());
    for name in ["web-0", "web-1"] {
        let pod = web(name).spec(&json!({"hostname": name, "subdomain": "web"}));
        kubectl.apply(&pod.to_string());
    }
    kubectl.run("wait --for=condition=Ready --timeout=60s pod/web-0 pod/web-1").ok();
    let ip = |name: &str| kubectl.value(&format!("pod/{name}"), "/status/podIP").as_str().unwrap().to_owned();
    let (first, second) = (ip("web-0"), ip("web-1"));
    let domain = format!("web.{}.svc.cluster.local", kubectl.namespace());
    eventually("the Service's name to have both addresses", || {
        let reported = resolve(&kubectl, "web-0", "a", &domain);
        reported.contains(&first) && reported.contains(&second)
    });
    wait_for_responders(&kubectl, "web-0", "http://web-1.web:8080", &["web-1"]);
    eventually("the places of the Service", || {
        let places = resolve(&kubectl, "web-0", "srv", &format!("_http._tcp.{domain}"));
        places.contains(&format!("8080 web-0.{domain}")) && places.contains(&format!("web-1.{domain}"))
    });
    eventually("the name of an address", || {
        kubectl.run(&format!("exec web-0 -- nslookup {second}")).stdout.contains(&format!("web-1.{domain}"))
    });
    kubectl.run("exec web-1 -- rm /tmp/ready").ok();
    eventually("a Pod that is not ready to have no name", || {
        resolve(&kubectl, "web-0", "a", &format!("web-1.{domain}")).contains("NXDOMAIN")
    });
}

#[e2e_test("an ExternalName Service resolves to a CNAME")]
fn external_name_service_resolves_to_cname(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    start(&kubectl, &["a"], &json!({}));
    let name = format!("web.{}.svc.cluster.local", kubectl.namespace());
    kubectl.run(&format!("create service externalname other --external-name={name}")).ok();
    wait_for_responders(&kubectl, "a", "http://other", &["a"]);
    let nobody = format!("nobody.{}.svc.cluster.local", kubectl.namespace());
    eventually("a name that does not exist", || resolve(&kubectl, "a", "a", &nobody).contains("NXDOMAIN"));
}

/// Runs the real kubectl in a Pod, with the Pod's ServiceAccount token only.
#[e2e_test("a Pod reaches the API with its ServiceAccount token")]
fn pod_reaches_api_with_its_token(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    kubectl.run("create role reader --verb=list --resource=pods").ok();
    kubectl
        .run(&format!("create rolebinding reader --role=reader --serviceaccount={}:default", kubectl.namespace()))
        .ok();
    let tools = tests::tool("kubectl-1.35");
    let tools = tools.canonicalize().unwrap();
    let dir = tools.parent().unwrap_or(Path::new("/"));
    let program = format!("/tools/{}", tools.file_name().unwrap().to_string_lossy());
    let pod = |name: &str, command: &[&str]| {
        PodBuilder::new(name)
            .restart_policy("Never")
            .command(command)
            .volume("tools", &json!({"hostPath": {"path": dir}}))
            .container(&json!({"volumeMounts": [{"name": "tools", "mountPath": "/tools", "readOnly": true}]}))
    };
    let operator = pod("operator", &[&program, "get", "pods", "-o", "name"]);
    assert_eq!(kubectl.output_of(&operator), "pod/operator\n");
    let command = [
        &program,
        "--server=https://kubernetes.default.svc",
        "get",
        "pods",
        "-o",
        "name",
        "--token=$(TOKEN)",
        "--certificate-authority=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
    ];
    let token = kubectl.run("create token default").ok();
    kubectl.apply(&pod("by-name", &command).env("TOKEN", token.trim()).to_string());
    kubectl.wait_value("pod/by-name", "/status/phase", &json!("Succeeded"));
}

/// Lists the nftables tables of Services.
fn tables() -> BTreeSet<String> {
    let reported = std::process::Command::new("nft").args(["list", "tables"]).output().unwrap();
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    reported.lines().filter(|line| line.ends_with("-services")).map(str::to_owned).collect()
}

/// Returns the network name of a data directory, which distinguishes it from other clusters.
pub(crate) fn network(data_dir: &Path) -> String {
    // The alias of the bridge names the data directory.
    let mut links = std::fs::read_dir("/sys/class/net").unwrap().map(|link| link.unwrap().path());
    let alias = format!("podium {}\n", data_dir.display());
    let is_own = |link: &PathBuf| std::fs::read_to_string(link.join("ifalias")).is_ok_and(|text| text == alias);
    let bridge = links.find(is_own).expect("the cluster has a bridge");
    bridge.file_name().unwrap().to_str().unwrap().to_owned()
}

#[e2e_test("Service rules act while Podium is down and are removed with the cluster")]
fn service_rules_act_while_podium_is_down() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    start(&kubectl, &["a"], &json!({"type": "NodePort"}));
    let port = kubectl.value("service/web", "/spec/ports/0/nodePort");
    let address = format!("127.0.0.1:{port}");
    eventually("a response", || get_from_node(&address) == "a");
    cluster.stop_podium(Signal::SIGKILL);
    assert_eq!(get_from_node(&address), "a", "while Podium is down");
    cluster.start_podium();
    assert_eq!(get_from_node(&address), "a", "when it is back");
    wait_for_responders(&kubectl, "a", "http://web", &["a"]);
    let data_dir = cluster.data_dir();
    let own = format!("table ip {}-services", network(&data_dir));
    assert!(tables().contains(&own), "{own}");
    cluster.stop_podium(Signal::SIGTERM);
    let down =
        std::process::Command::new(podium_binary()).args(["down", "--data-dir"]).arg(&data_dir).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    assert!(!tables().contains(&own), "{own}");
}
