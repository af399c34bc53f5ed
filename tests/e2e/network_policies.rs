//! NetworkPolicies. They use their own clusters, because NetworkPolicies delay the start of other Pods.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually, podium_binary};

/// Applies a Pod that serves on ports 8080 (`web`) and 8081, and is ready when it serves.
fn apply(kubectl: &Kubectl, name: &str, app: &str) {
    let script = "mkdir -p /www; hostname > /www/index.html; httpd -p 8081 -h /www; exec httpd -f -p 8080 -h /www";
    let probe = json!({"httpGet": {"port": 8080}, "periodSeconds": 1});
    let ports = json!([{"name": "web", "containerPort": 8080}]);
    let pod = PodBuilder::new(name)
        .label("app", app)
        .grace_period(0)
        .script(script)
        .container(&json!({"readinessProbe": probe, "ports": ports}));
    kubectl.apply(&pod.to_string());
}

fn ready(kubectl: &Kubectl, name: &str) -> String {
    kubectl.wait_ready(name);
    kubectl.value(&format!("pod/{name}"), "/status/podIP").as_str().unwrap().to_owned()
}

fn policy(kubectl: &Kubectl, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec});
    kubectl.apply(&object.to_string());
}

/// Returns whether a Pod gets a response from an address.
fn gets(kubectl: &Kubectl, from: &str, at: &str) -> bool {
    kubectl.args(&["exec", from, "--", "timeout", "2", "wget", "-q", "-O", "-", &format!("http://{at}/")], "").code == 0
}

/// Waits until each Pod reaches an address or does not. A case is a client Pod, an address, and whether it is reachable.
#[track_caller]
fn check(description: &str, cases: &[(&Kubectl, &str, &str, bool)]) {
    for (kubectl, from, at, expected) in cases {
        let expected_word = if *expected { "reaches" } else { "does not reach" };
        eventually(&format!("{description}: {from} {expected_word} {at}"), || gets(kubectl, from, at) == *expected);
    }
}

/// Returns whether this machine reaches an address.
fn is_reachable_from_node(at: &str) -> bool {
    TcpStream::connect_timeout(&at.parse::<SocketAddr>().unwrap(), Duration::from_secs(5)).is_ok()
}

#[e2e_test("NetworkPolicies restrict ingress until they are deleted")]
fn ingress_is_restricted_until_policy_is_deleted() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    kubectl.run("create namespace bank").ok();
    let bank = cluster.kubectl_in("bank");
    for (kubectl, name) in [(&kubectl, "web"), (&kubectl, "friend"), (&kubectl, "stranger"), (&bank, "teller")] {
        apply(kubectl, name, name);
    }
    let ip = ready(&kubectl, "web");
    for (kubectl, name) in [(&kubectl, "friend"), (&kubectl, "stranger"), (&bank, "teller")] {
        ready(kubectl, name);
    }
    kubectl.run("expose pod web --port=80 --target-port=8080").ok();
    let service = kubectl.value("service/web", "/spec/clusterIP").as_str().unwrap().to_owned();
    let (web, other) = (&format!("{ip}:8080"), &format!("{ip}:8081"));
    let all = |expected: bool| {
        [(&kubectl, "friend"), (&kubectl, "stranger"), (&bank, "teller")]
            .map(|(k, from)| (k, from, web.as_str(), expected))
    };
    check("no policy", &all(true));
    policy(&kubectl, "deny", &json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    check("everybody is denied", &all(false));
    check("by way of its Service, too", &[(&kubectl, "friend", &service, false)]);
    check("it reaches itself", &[(&kubectl, "web", &service, true), (&kubectl, "web", web, true)]);
    assert!(is_reachable_from_node(web), "the node must reach its Pods");
    apply(&kubectl, "late", "late");
    ready(&kubectl, "late");

    let selector = json!({"matchLabels": {"app": "web"}});
    let friend = json!({"podSelector": {"matchLabels": {"app": "friend"}}});
    policy(
        &kubectl,
        "friend",
        &json!({"podSelector": selector, "ingress": [{"from": [friend], "ports": [{"port": "web"}]}]}),
    );
    check(
        "a friend at a named port",
        &[
            (&kubectl, "friend", web, true),
            (&kubectl, "friend", &service, true),
            (&kubectl, "friend", other, false),
            (&kubectl, "stranger", web, false),
        ],
    );
    let near = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "bank"}}});
    policy(
        &kubectl,
        "bank",
        &json!({"podSelector": selector, "ingress": [{"from": [near], "ports": [{"port": 8081}]}]}),
    );
    check(
        "another namespace at another port",
        &[
            (&bank, "teller", other, true),
            (&bank, "teller", web, false),
            (&kubectl, "friend", web, true),
            (&kubectl, "stranger", other, false),
        ],
    );
    kubectl.run("label pod stranger app=friend --overwrite").ok();
    check("who becomes a friend", &[(&kubectl, "stranger", web, true)]);
    kubectl.run("delete networkpolicy --all").ok();
    check("all policies are gone", &all(true));
}

#[e2e_test("NetworkPolicies restrict egress from a Pod's start on")]
fn egress_is_restricted_from_pod_start() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    ["web", "other", "client"].iter().for_each(|name| apply(&kubectl, name, name));
    let [ip, other, _] = ["web", "other", "client"].map(|name| ready(&kubectl, name));
    let (web, other_web) = (format!("{ip}:8080"), format!("{other}:8080"));
    let client = json!({"matchLabels": {"app": "client"}});
    policy(&kubectl, "deny", &json!({"podSelector": client, "policyTypes": ["Egress"]}));
    check("nothing goes out", &[(&kubectl, "client", &web, false), (&kubectl, "other", &web, true)]);
    check("but it may be asked", &[(&kubectl, "web", &format!("{}:8080", ready(&kubectl, "client")), true)]);
    let resolve = "exec client -- nslookup -type=a kubernetes.default.svc.cluster.local";
    eventually("the node to resolve names", || kubectl.run(resolve).stdout.contains("10.96.0.1"));

    // It connects at once, before its status is published, and for two seconds.
    let script = format!("for i in 1 2 3 4; do timeout 1 wget -q -O - http://{web}/ && exit 1; done; exit 0");
    let early = PodBuilder::new("early").label("app", "client").restart_policy("Never").script(&script);
    kubectl.apply(&early.to_string());
    kubectl.wait_value("pod/early", "/status/phase", &json!("Succeeded"));

    let block = json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": [format!("{other}/32")]}});
    let to = json!([{"to": [block], "ports": [{"port": 8000, "endPort": 8080}]}]);
    policy(&kubectl, "block", &json!({"podSelector": client, "policyTypes": ["Egress"], "egress": to}));
    check(
        "a block but one address, and a range of ports",
        &[
            (&kubectl, "client", &web, true),
            (&kubectl, "client", &other_web, false),
            (&kubectl, "client", &format!("{ip}:8081"), false),
        ],
    );
    let to = json!([{"to": [{"podSelector": {"matchLabels": {"app": "other"}}}], "ports": [{"port": "web"}]}]);
    policy(&kubectl, "named", &json!({"podSelector": client, "policyTypes": ["Egress"], "egress": to}));
    check(
        "what others call a port",
        &[(&kubectl, "client", &other_web, true), (&kubectl, "client", &format!("{other}:8081"), false)],
    );
}

/// Number of Pods that try to reach a forbidden address from their start on.
const ATTACKERS: usize = 5;
/// Number of attempts of each Pod before it is ready.
const TRIES: usize = 40;

#[e2e_test("NetworkPolicies are enforced before a Pod starts, even at boot")]
fn policies_are_enforced_before_pod_starts() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let external = crate::external_host::ExternalHost::new();
    let address = external.address();
    apply(&kubectl, "friend", "friend");
    ready(&kubectl, "friend");
    let connect = |from: &str| {
        kubectl.args(&["exec", from, "--", "timeout", "2", "wget", "-q", "-O", "-", &format!("http://{address}/")], "");
    };
    // Exactly one connection: a late one of an attempt before would be taken for an attacker's.
    eventually("the address to be reachable", || {
        let count = external.connections();
        connect("friend");
        external.connections() == count + 1
    });
    let before = external.connections();
    let attack = format!(
        "n=0; while [ $n -lt {TRIES} ]; do timeout 2 wget -q -O - http://{address}/ & n=$((n+1)); usleep 50000; done; \
         touch /tmp/done; wait; sleep 3600"
    );
    // One request with the policy, so that the Pods start right after it.
    let selector = json!({"matchLabels": {"app": "attacker"}});
    let deny = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "deny"},
        "spec": {"podSelector": selector, "policyTypes": ["Egress"]}});
    let probe = json!({"exec": {"command": ["test", "-f", "/tmp/done"]}, "periodSeconds": 1});
    let attacker = |n: usize| {
        PodBuilder::new(&format!("attacker-{n}"))
            .label("app", "attacker")
            .grace_period(0)
            .script(&attack)
            .container(&json!({"readinessProbe": probe}))
            .build()
    };
    let items: Vec<Value> = std::iter::once(deny).chain((0..ATTACKERS).map(attacker)).collect();
    kubectl.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    let all_done = |restarts: i64| {
        for name in (0..ATTACKERS).map(|n| format!("attacker-{n}")) {
            kubectl.wait_value(&format!("pod/{name}"), "/status/containerStatuses/0/restartCount", &json!(restarts));
            ready(&kubectl, &name);
        }
    };
    all_done(0);
    assert_eq!(external.connections(), before, "at the first start");

    // A boot: no process and no nftables rule is left.
    let names = (0..ATTACKERS).map(|n| format!("attacker-{n}")).chain(["friend".to_owned()]);
    let uids: Vec<String> =
        names.map(|name| kubectl.value(&format!("pod/{name}"), "/metadata/uid").as_str().unwrap().to_owned()).collect();
    let bridge = crate::service_proxy::network(&cluster.data_dir());
    crate::failures::simulate_reboot(&mut cluster, &uids);
    for table in own_tables(&bridge) {
        let removed = Command::new("nft").args(["delete", "table"]).args(table.split(' ').skip(1)).status().unwrap();
        assert!(removed.success(), "{table}");
    }
    cluster.start_podium();
    all_done(1);
    assert_eq!(external.connections(), before, "after a boot");
    ready(&kubectl, "friend");
    eventually("Pods without a policy to be unrestricted", || {
        connect("friend");
        external.connections() > before
    });
}

/// Lists all nftables tables of a data directory's network.
fn own_tables(bridge: &str) -> Vec<String> {
    let reported = Command::new("nft").args(["list", "tables"]).output().unwrap();
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    reported.lines().filter(|line| line.contains(bridge)).map(str::to_owned).collect()
}

/// Lists the nftables tables of a data directory's NetworkPolicies.
fn tables(bridge: &str) -> Vec<String> {
    let reported = Command::new("nft").args(["list", "tables"]).output().unwrap();
    let reported = String::from_utf8_lossy(&reported.stdout).into_owned();
    reported.lines().filter(|line| line.ends_with(&format!(" {bridge}-policies"))).map(str::to_owned).collect()
}

#[e2e_test("NetworkPolicies act while Podium is down and are removed with the cluster")]
fn policies_act_while_podium_is_down() {
    let mut cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    ["web", "client"].iter().for_each(|name| apply(&kubectl, name, name));
    let web = format!("{}:8080", ready(&kubectl, "web"));
    ready(&kubectl, "client");
    let bridge = crate::service_proxy::network(&cluster.data_dir());
    assert_eq!(tables(&bridge), Vec::<String>::new(), "without a policy there is no table");
    policy(&kubectl, "deny", &json!({"podSelector": {"matchLabels": {"app": "web"}}}));
    let forwarded = || {
        let reported =
            Command::new("nft").args(["list", "table", "ip", &format!("{bridge}-policies")]).output().unwrap();
        String::from_utf8_lossy(&reported.stdout).into_owned()
    };
    eventually("the policy's rules", || forwarded().contains("drop"));
    check("denied", &[(&kubectl, "client", &web, false)]);
    let before = forwarded();
    cluster.stop_podium(Signal::SIGKILL);
    assert_eq!(forwarded(), before, "while Podium is down");
    cluster.start_podium();
    check("still denied", &[(&kubectl, "client", &web, false)]);
    assert!(is_reachable_from_node(&web));
    kubectl.run("delete networkpolicy deny").ok();
    check("open again", &[(&kubectl, "client", &web, true)]);
    eventually("no table without a policy", || tables(&bridge).is_empty());
    policy(&kubectl, "deny", &json!({"podSelector": {}}));
    eventually("a table again", || !tables(&bridge).is_empty());
    let data_dir = cluster.data_dir();
    cluster.stop_podium(Signal::SIGTERM);
    let down = Command::new(podium_binary()).args(["down", "--data-dir"]).arg(&data_dir).output().unwrap();
    assert!(down.status.success(), "{down:?}");
    assert_eq!(tables(&bridge), Vec::<String>::new());
}
