//! The kubelet's HTTPS server.

use crate::test_users::{authority, kubeconfig};
use serde_json::json;
use std::net::TcpListener;
use tests::{ClusterBuilder, Kubectl, PodBuilder, e2e_test};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[e2e_test("the kubelet serves HTTPS and authenticates and authorizes clients")]
fn kubelet_server_authenticates_and_authorizes() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let (others, others_key) = authority();
    let mut cluster = ClusterBuilder::default().kubelet_config(json!({"address": "127.0.0.1", "port": port})).start();
    let kubectl = cluster.kubectl_in("default");
    let output = kubectl.run("get nodes -o jsonpath={.items[0].status.daemonEndpoints.kubeletEndpoint.Port}").ok();
    assert_eq!(output, port.to_string());
    let pod = PodBuilder::new("p").script("echo said; sleep 100000");
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("p");

    let pki = |file: &str| std::fs::read_to_string(cluster.data_dir().join("pki").join(file)).unwrap();
    let (ca, key) = (pki("ca.crt"), pki("ca.key"));
    let as_user = |name: &str, signer: Option<(&str, &str)>, group: &str| {
        let server = format!("https://127.0.0.1:{port}");
        Kubectl::new(kubeconfig(dir.path(), name, &server, &ca, signer, group), "default")
    };
    let admin = as_user("admin", Some((&ca, &key)), "system:masters");
    assert_eq!(admin.run("get --raw /healthz").ok(), "ok");
    assert!(admin.run("get --raw /pods").ok().contains("\"name\":\"p\""));
    admin.wait_for_output("get --raw /containerLogs/default/p/c", "said\n");
    let node = as_user("somebody", Some((&ca, &key)), "system:nodes").run("get --raw /metrics").failed();
    assert!(node.contains("Forbidden (user=somebody, verb=get, resource=nodes, subresource=metrics)"), "{node}");
    let nobody = as_user("nobody", None, "").run("get --raw /healthz").failed();
    assert!(nobody.contains("You must be logged in"), "{nobody}");
    as_user("stranger", Some((&others, &others_key)), "system:masters").run("get --raw /healthz").failed();

    // A client with a token and a role.
    kubectl.run("create serviceaccount scraper").ok();
    kubectl.run("create clusterrole scraper --verb=get --resource=nodes/metrics").ok();
    kubectl.run("create clusterrolebinding scraper --clusterrole=scraper --serviceaccount=default:scraper").ok();
    let token = kubectl.run("create token scraper").ok();
    let config = std::fs::read_to_string(dir.path().join("nobody.kubeconfig")).unwrap();
    std::fs::write(dir.path().join("scraper.kubeconfig"), config.replace("of-nobody", token.trim())).unwrap();
    let scraper = Kubectl::new(dir.path().join("scraper.kubeconfig"), "default");
    assert!(scraper.run("get --raw /metrics/resource").ok().contains("node_memory_working_set_bytes"));
    let refused = scraper.run("get --raw /pods").failed();
    let words = "Forbidden (user=system:serviceaccount:default:scraper, verb=get, resource=nodes, subresource=pods)";
    assert!(refused.contains(words), "{refused}");

    // Clients with certificates of another CA, if the configuration allows it.
    std::fs::write(dir.path().join("others.crt"), &others).unwrap();
    let file = dir.path().join("others.crt");
    let authentication = json!({"x509": {"clientCAFile": file}});
    cluster.set_kubelet_config(json!({"address": "127.0.0.1", "port": port, "authentication": authentication}));
    cluster.stop_podium(nix::sys::signal::Signal::SIGTERM);
    cluster.start_podium();
    let client = Kubectl::new(dir.path().join("stranger.kubeconfig"), "default");
    assert_eq!(client.run("get --raw /healthz").ok(), "ok");
    admin.run("get --raw /healthz").failed();
}
