//! The node works independently of the control plane's threads.

use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};
use serde_json::json;
use std::{fs, path::Path};
use tests::{Cluster, PodBuilder, e2e_test, eventually};

/// Stops threads by ptrace until it is dropped by the thread that stopped them.
struct StoppedThreads(Vec<Pid>);

impl StoppedThreads {
    fn with_name(process: Pid, name: &str) -> Self {
        let mut stopped = Self(Vec::new());
        for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
            let thread = thread.unwrap();
            if fs::read_to_string(thread.path().join("comm")).unwrap_or_default().trim_end() != name {
                continue;
            }
            let id = Pid::from_raw(thread.file_name().to_str().unwrap().parse().unwrap());
            ptrace::seize(id, ptrace::Options::empty()).unwrap();
            stopped.0.push(id);
            ptrace::interrupt(id).unwrap();
            waitpid(id, Some(WaitPidFlag::__WALL)).unwrap();
        }
        stopped
    }
}

impl Drop for StoppedThreads {
    fn drop(&mut self) {
        for thread in &self.0 {
            // The thread may have ended.
            let _ = ptrace::detach(*thread, None);
        }
    }
}

#[e2e_test("restarts and DNS keep working while the threads of the API are stopped")]
fn node_keeps_working_without_the_control_plane() {
    let cluster = Cluster::start(&[]);
    let kubectl = cluster.kubectl_in("default");
    let dir = tempfile::tempdir().unwrap();
    let script = "echo ready; while [ ! -e /shared/go ]; do sleep 0.1; done; \
        if mkdir /shared/once; then exit 3; fi; \
        until nslookup kubernetes.default.svc.cluster.local; do sleep 0.5; done; sleep 10000";
    let pod = PodBuilder::new("p")
        .grace_period(1)
        .script(script)
        .volume("shared", &json!({"hostPath": {"path": dir.path()}}))
        .mount("shared", "/shared");
    kubectl.apply(&pod.to_string());
    eventually("the first line of the log", || kubectl.run("logs p").is_ok_and(|output| output.contains("ready")));
    let uid = kubectl.value("pod/p", "/metadata/uid");
    let logs = cluster.data_dir().join(format!("kubelet/logs/default_p_{}/c", uid.as_str().unwrap()));

    let stopped = StoppedThreads::with_name(cluster.pid(), "control-plane");
    assert!(stopped.0.len() >= 2, "{:?}", stopped.0);
    let answer = kubectl.run("get --raw /livez --request-timeout=2s");
    assert_ne!(answer.code, 0, "the API answers although its threads are stopped");
    fs::write(dir.path().join("go"), "").unwrap();
    eventually("the next container to resolve a Service", || {
        text(&logs.join("1.log")).contains("kubernetes.default.svc.cluster.local")
            && text(&logs.join("1.log")).contains("10.96.0.1")
    });
    drop(stopped);

    let status = "/status/containerStatuses/0";
    eventually("the restart to be reported", || kubectl.value("pod/p", &format!("{status}/restartCount")) == 1);
    assert_eq!(kubectl.value("pod/p", &format!("{status}/lastState/terminated/exitCode")), 3);
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}
