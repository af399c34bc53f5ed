//! A kubelet whose Pods' network is not ready yet.

use super::NetworkReadiness;
use crate::{Clock, Kubelet, KubeletConfiguration, Options, fake_runtime};
use fake_api::FakeApi;
use fake_runtime::{FakeRuntime, IMAGE};
use futures::FutureExt;
use jiff::Timestamp;
use lifecycle::NodePolicy;
use serde_json::json;
use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio_util::sync::CancellationToken;

fn options(dir: &Path, clock: Clock) -> Options {
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupsPerQOS: false\nenforceNodeAllocatable: []\nevictionHard: {}\n";
    Options {
        node_name: "n".to_owned(),
        root_dir: dir.to_owned(),
        node_ip: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
        pod_cidr: None,
        policy: NodePolicy::default(),
        config: KubeletConfiguration::parse(text).expect("a configuration"),
        pod_rules: |_, _| Ok(()),
        random: 7,
        home: None,
        credential_providers: Arc::default(),
        port: 0,
        clock,
    }
}

#[tokio::test(start_paused = true)]
async fn container_starts_after_its_network_is_ready() {
    let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).expect("a time"));
    let (api, runtime, stop) = (FakeApi::new(), FakeRuntime::new(clock.clone()), CancellationToken::new());
    let dir = tempfile::tempdir().expect("a directory");
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = Arc::clone(&is_ready);
    let readiness = NetworkReadiness::new(move |network| {
        assert!(!network.ips.is_empty() && !network.sandbox.is_empty());
        let result = if ready.load(Ordering::Relaxed) { Ok(()) } else { Err("no rules".to_owned()) };
        async move { result }.boxed()
    });
    let options = options(dir.path(), clock);
    let kubelet = Kubelet::new(options, api.client(), Arc::new(runtime.clone()), stop.clone());
    let kubelet = kubelet.with_network_readiness(readiness);
    let running = tokio::spawn(async move { kubelet.run().await });
    let path = "api/v1/namespaces/x/pods/a";
    let spec = json!({"nodeName": "n", "containers": [{"name": "a", "image": IMAGE}]});
    api.put(path, json!({"metadata": {"name": "a", "namespace": "x"}, "spec": spec}));
    api.wait_until("the Event", |api| {
        let events = api.list("api/v1/namespaces/x/events");
        let message = "network is not ready: no rules";
        events.iter().any(|e| e["reason"] == "NetworkNotReady" && e["message"] == message)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(runtime.starts(), Vec::<String>::new());
    is_ready.store(true, Ordering::Relaxed);
    api.wait_until("it runs", |api| api.get(path).is_some_and(|pod| pod["status"]["phase"] == "Running")).await;
    assert_eq!(runtime.starts(), ["a"]);
    stop.cancel();
    running.await.expect("it stops in order");
}
