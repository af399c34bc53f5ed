//! Pods that CNI plugins connect (`--cni-conf-dir`).

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;
use tests::{Cluster, ClusterBuilder, Kubectl, PodBuilder, Process, e2e_test, eventually};

const PLUGINS: &str = "/usr/lib/cni";
const NOT_READY: &str = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
                         message:Network plugin returns error: cni plugin not initialized";

/// A CNI network of a test: configuration, plugins, and the data of host-local.
struct CniNetwork {
    dir: TempDir,
    bridge: String,
    /// First three octets of its addresses.
    prefix: String,
}

impl CniNetwork {
    /// The third octet distinguishes the tests, which run at the same time.
    fn new(third: u8) -> Self {
        let dir = tempfile::Builder::new().prefix("podium-e2e-cni-").tempdir().unwrap();
        for name in ["conf", "bin"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, bridge: format!("e2e-cni{third}"), prefix: format!("10.203.{third}") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn cluster(&self) -> Cluster {
        let (conf, bin) = (self.path("conf").display().to_string(), self.path("bin").display().to_string());
        let pods = format!("{}.0/24", self.prefix);
        let flags = ["--cni-conf-dir", &conf, "--cni-bin-dir", &bin, "--cni-bin-dir", PLUGINS, "--pod-cidr", &pods];
        ClusterBuilder::default().args(&flags).start()
    }

    /// Writes a configuration with the plugins `first`, bridge and portmap, at once.
    fn configure(&self, first: &[&str]) {
        let range = json!([[{"subnet": format!("{}.0/24", self.prefix)}]]);
        let bridge = json!({
            "type": "bridge", "bridge": self.bridge, "isGateway": true, "ipMasq": true, "hairpinMode": true,
            "ipam": {
                "type": "host-local", "dataDir": self.path("ipam"), "ranges": range, "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}, "snat": true});
        let first = first.iter().map(|name| json!({"type": name}));
        let plugins: Vec<Value> = [bridge, portmap].into_iter().chain(first).collect();
        let list = json!({"cniVersion": "1.0.0", "name": self.bridge, "plugins": plugins});
        let file = self.path("conf/10-test.conflist");
        fs::write(file.with_extension("new"), list.to_string()).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    /// Writes a plugin that is a shell script.
    fn plugin(&self, name: &str, text: &str) {
        let program = self.path("bin").join(name);
        fs::write(program.with_extension("new"), format!("#!/bin/sh\ncd {}\n{text}\n", self.dir.path().display()))
            .unwrap();
        fs::set_permissions(program.with_extension("new"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(program.with_extension("new"), program).unwrap();
    }

    /// Returns the addresses that host-local has allocated.
    fn addresses(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("ipam").join(&self.bridge)).into_iter().flatten().flatten();
        files.filter_map(|file| file.file_name().into_string().ok()).filter(|name| name.starts_with("10.")).collect()
    }

    fn nat_rules(&self) -> usize {
        let rules = Command::new("iptables").args(["-w", "-t", "nat", "-S"]).output().unwrap();
        String::from_utf8_lossy(&rules.stdout)
            .lines()
            .filter(|line| line.contains(&format!("{}.", self.prefix)))
            .count()
    }
}

impl Drop for CniNetwork {
    fn drop(&mut self) {
        // The plugin leaves its bridge.
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).output();
    }
}

/// Returns the answer to an HTTP request to an address.
fn http_get(address: &str) -> io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(connection, "GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the sandboxes with records.
fn sandboxes(cluster: &Cluster) -> Vec<String> {
    let dir = cluster.data_dir().join("cni/attachments");
    let records = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = records.filter_map(|record| record.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(".json")?.to_owned())).collect()
}

/// Returns the number of mounted network namespaces of sandboxes.
fn namespaces(sandboxes: &[String]) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
    let is_mounted = |sandbox: &&String| points.contains(&format!("/run/netns/podium-{sandbox}").as_str());
    sandboxes.iter().filter(is_mounted).count()
}

fn ready_message(kubectl: &Kubectl) -> (String, String) {
    let nodes = kubectl.run("get nodes -o json").ok();
    let nodes: Value = serde_json::from_str(&nodes).unwrap();
    let conditions = nodes["items"][0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready").unwrap_or_default();
    let text = |name: &str| ready[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn is_installed() -> bool {
    let missing = ["bridge", "host-local", "portmap"].into_iter().find(|name| !Path::new(PLUGINS).join(name).is_file());
    if let Some(missing) = missing {
        eprintln!("skipped: the CNI plugin {missing} is not installed");
    }
    missing.is_none()
}

#[e2e_test("CNI plugins connect Pods, map host ports and release addresses")]
fn cni_plugins_connect_pods() {
    if !is_installed() {
        return;
    }
    let network = CniNetwork::new(71);
    // A killed run of this test may have left some.
    let rules_before = network.nat_rules();
    network.configure(&[]);
    let cluster = network.cluster();
    let kubectl = cluster.kubectl_in("default");
    let server = "echo served > /index.html; exec httpd -f -p 8080 -h /";
    let ports = json!({"ports": [{"containerPort": 8080, "hostPort": 17_871}]});
    let pod = PodBuilder::new("serves").label("app", "serves").grace_period(1).script(server).container(&ports);
    kubectl.apply(&pod.to_string());
    kubectl.wait_ready("serves");
    let ip = kubectl.value("pod/serves", "/status/podIP").as_str().unwrap().to_owned();
    assert!(ip.starts_with(&format!("{}.", network.prefix)), "{ip}");
    assert_eq!(network.addresses(), std::slice::from_ref(&ip));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "serves"}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    kubectl.apply(&service.to_string());
    // Another Pod, its name and the API server, through Services; and the node, through the host port.
    let script = format!(
        "for url in {ip}:8080 web.default.svc.cluster.local; do until wget -qO- http://$url/; do sleep 0.1; done; done; \
         nc kubernetes.default.svc.cluster.local 443 </dev/null >/dev/null && echo connected"
    );
    kubectl.apply(&PodBuilder::new("reads").restart_policy("Never").script(&script).to_string());
    kubectl.wait_value("pod/reads", "/status/phase", &json!("Succeeded"));
    assert_eq!(kubectl.run("logs reads").ok(), "served\nserved\nconnected\n");
    let host_ip = format!("{}.1", network.prefix);
    eventually("the host port to answer", || {
        let url = format!("{host_ip}:17871");
        http_get(&url).is_ok_and(|answer| answer.ends_with("served\n"))
    });
    let connected = sandboxes(&cluster);
    assert!(network.nat_rules() > rules_before && namespaces(&connected) > 0);
    kubectl.run("delete pods --all --timeout=60s").ok();
    eventually("all addresses to be released", || network.addresses().is_empty());
    eventually("the rules of host ports to be removed", || network.nat_rules() <= rules_before);
    eventually("all namespaces to be unmounted", || sandboxes(&cluster).is_empty() && namespaces(&connected) == 0);

    // `podium down` disconnects what is left.
    kubectl.apply(&PodBuilder::new("left").grace_period(1).script("sleep 1000").to_string());
    kubectl.wait_ready("left");
    assert_eq!(network.addresses().len(), 1);
    let left = sandboxes(&cluster);
    assert_eq!(namespaces(&left), 1);
    let data_dir = cluster.data_dir().display().to_string();
    let down = cluster.podium(&["down", "--data-dir", &data_dir]).output().unwrap();
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(network.addresses().is_empty());
    assert_eq!(namespaces(&left), 0);
}

#[e2e_test("a node without a CNI configuration is NotReady until one appears")]
fn node_is_not_ready_without_cni_configuration() {
    if !is_installed() {
        return;
    }
    let network = CniNetwork::new(72);
    network.configure(&[]);
    let mut cluster = network.cluster();
    cluster.stop_podium(Signal::SIGTERM);
    fs::remove_file(network.path("conf/10-test.conflist")).unwrap();
    cluster.start_api();
    let kubectl = cluster.kubectl_in("default");
    eventually("the node to be NotReady", || ready_message(&kubectl) == ("False".to_owned(), NOT_READY.to_owned()));
    // As a provider's DaemonSet: it tolerates the node's condition, needs no CNI, and installs the configuration.
    let conf = network.path("conf");
    let (file, list) = ("10-test.conflist", network.path("list"));
    network.configure(&[]);
    fs::rename(conf.join(file), &list).unwrap();
    let volume = |path: &Path| json!({"hostPath": {"path": path, "type": "Directory"}});
    let install = format!("until [ -e /source/go ]; do sleep 0.1; done; cp /source/list /conf/{file}; sleep 1000");
    let provider = PodBuilder::new("provider")
        .grace_period(1)
        .script(&install)
        .spec(&json!({"hostNetwork": true, "tolerations": [{"operator": "Exists"}]}))
        .volume("conf", &volume(&conf))
        .volume("source", &volume(network.dir.path()))
        .mount("conf", "/conf")
        .mount("source", "/source");
    let tolerant = PodBuilder::new("waits")
        .grace_period(1)
        .script("sleep 1000")
        .spec(&json!({"tolerations": [{"operator": "Exists"}]}));
    kubectl.apply(&tolerant.to_string());
    kubectl.apply(&provider.to_string());
    kubectl.wait_ready("provider");
    eventually("the Event of the waiting Pod", || {
        let is_expected = |message: &str| message.ends_with("cni plugin not initialized");
        kubectl.events("waits").iter().any(|(reason, m)| reason == "FailedCreatePodSandBox" && is_expected(m))
    });
    fs::write(network.path("go"), "").unwrap();
    eventually("the node to be Ready", || ready_message(&kubectl).0 == "True");
    kubectl.wait_ready("waits");
    kubectl.run("delete pods --all --timeout=60s").ok();
    eventually("all addresses to be released", || network.addresses().is_empty());
}

#[e2e_test("the error of a CNI plugin is in the Pod's Event")]
fn error_of_cni_plugin_is_in_event() {
    if !is_installed() {
        return;
    }
    let network = CniNetwork::new(73);
    let fails = "[ $CNI_COMMAND = ADD ] || exit 0; echo '{\"code\": 11, \"msg\": \"try later\", \"details\": \"no agent\"}'; exit 1";
    network.plugin("fails", fails);
    network.configure(&["fails"]);
    let cluster = network.cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("p").grace_period(1).script("sleep 1000").to_string());
    let expected = "plugin type=\"fails\" failed (add): try later; no agent";
    eventually("the plugin's message", || {
        let events = kubectl.events("p");
        events.iter().any(|(reason, message)| reason == "FailedCreatePodSandBox" && message.ends_with(expected))
    });
    let upstream = "failed to setup network for sandbox \"";
    assert!(kubectl.events("p").iter().any(|(_, message)| message.contains(upstream)), "{:?}", kubectl.events("p"));
    // What the plugins before it did is undone.
    let works = format!(r#"[ $CNI_COMMAND != ADD ] || echo '{{"ips": [{{"address": "{}.9/24"}}]}}'"#, network.prefix);
    network.plugin("fails", &works);
    kubectl.wait_ready("p");
    assert_eq!(network.addresses().len(), 1);
    kubectl.run("delete pod p --timeout=60s").ok();
    eventually("the address to be released", || network.addresses().is_empty());
}

#[e2e_test("a kill of Podium while a CNI plugin runs leaks nothing")]
fn kill_during_cni_add_leaks_nothing() {
    if !is_installed() {
        return;
    }
    let network = CniNetwork::new(74);
    let slow = "echo $CNI_COMMAND >> calls; [ $CNI_COMMAND != ADD ] || { touch adding; while [ ! -e go ]; do sleep 0.1; done; }";
    network.plugin("slow", slow);
    network.configure(&["slow"]);
    let mut cluster = network.cluster();
    let kubectl = cluster.kubectl_in("default");
    kubectl.apply(&PodBuilder::new("p").grace_period(1).script("sleep 1000").to_string());
    eventually("ADD to run", || network.path("adding").exists());
    let interrupted = sandboxes(&cluster);
    assert_eq!((network.addresses().len(), namespaces(&interrupted)), (1, 1));
    cluster.stop_podium(Signal::SIGKILL);
    // The next Podium needs no plugin for its start; the interrupted ADD does not end by itself.
    let plugin = |process: &Process| process.command().contains(&network.path("bin/slow").display().to_string());
    assert!(Process::all().any(|process| plugin(&process)));
    network.configure(&[]);
    cluster.start_podium();
    eventually("the interrupted plugin to end", || !Process::all().any(|process| plugin(&process)));
    kubectl.wait_ready("p");
    eventually("the interrupted connection to be undone", || {
        network.addresses().len() == 1 && sandboxes(&cluster).len() == 1 && namespaces(&interrupted) == 0
    });
    assert!(fs::read_to_string(network.path("calls")).unwrap().ends_with("DEL\n"));
    let connected = sandboxes(&cluster);
    assert_eq!(namespaces(&connected), 1);
    kubectl.run("delete pod p --timeout=60s").ok();
    eventually("the address to be released", || network.addresses().is_empty() && namespaces(&connected) == 0);
}
