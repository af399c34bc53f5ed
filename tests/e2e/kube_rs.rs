//! A typical kube-rs controller: leader election, a reflector from a streaming list, a finalizer, owned objects.

use futures::{Stream, StreamExt};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Secret},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Error, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        finalizer::{Error as FinalizerError, Event, finalizer},
        watcher,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tests::{Cluster, e2e_test, eventually, wait_for};

/// Secrets with this label are copied into owned ConfigMaps.
const LABEL: &str = "example.com/mirror";
const FINALIZER: &str = "example.com/mirror";
const ELECTION: &str = "mirror";
/// Lease duration, in seconds.
const LEASE_DURATION_SECONDS: i32 = 12;

#[e2e_test("a kube-rs controller creates, repairs and cleans up its objects")]
fn kube_rs_controller_reconciles(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, kubectl) = (cluster.client(&runtime), cluster.kubectl());
    runtime.spawn(reconcile_all(client, kubectl.namespace().to_owned()).for_each(|_| async {}));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {LABEL: "yes"}},
        "stringData": {"a": "b"}});
    kubectl.apply(&secret.to_string());
    kubectl.wait_value("configmap/mirror-s", "/data/keys", &json!("a"));
    assert_eq!(kubectl.value("secret/s", "/metadata/finalizers"), json!([FINALIZER]));
    // The owned ConfigMap is watched too, so foreign changes are reverted.
    kubectl.args(&["patch", "configmap/mirror-s", "--type=merge", "-p", r#"{"data":{"keys":"none"}}"#], "").ok();
    kubectl.wait_value("configmap/mirror-s", "/data/keys", &json!("a"));
    kubectl.run("delete configmap/mirror-s").ok();
    kubectl.wait_value("configmap/mirror-s", "/data/keys", &json!("a"));
    kubectl.args(&["patch", "secret/s", "--type=merge", "-p", r#"{"stringData":{"c":"d"}}"#], "").ok();
    kubectl.wait_value("configmap/mirror-s", "/data/keys", &json!("a,c"));
    // The finalizer lets the controller record the deletion.
    kubectl.run("delete secret/s --timeout=60s").ok();
    assert_eq!(kubectl.value("configmap/cleaned", "/data/s"), "yes");
    eventually("the copy to be deleted with its owner", || kubectl.get("configmap/mirror-s").is_none());
}

fn reconcile_all(client: Client, namespace: String) -> impl Stream {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let config = watcher::Config::default().labels(LABEL).streaming_lists();
    Controller::new(secrets, config).owns(maps, watcher::Config::default()).run(
        |secret, client| async move { reconcile(secret, &client).await },
        |_, _, _| Action::requeue(Duration::from_millis(100)),
        Arc::new(client),
    )
}

async fn reconcile(secret: Arc<Secret>, client: &Client) -> Result<Action, FinalizerError<Error>> {
    let namespace = secret.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    finalizer(&secrets, FINALIZER, secret, |event| async move {
        let apply = PatchParams::apply("mirror").force();
        match event {
            Event::Apply(secret) => {
                let name = format!("mirror-{}", secret.name_any());
                let keys: Vec<String> = secret.data.iter().flatten().map(|(key, _)| key.clone()).collect();
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"keys": keys.join(",")},
                    "metadata": {"name": name, "ownerReferences": [secret.controller_owner_ref(&())]}});
                maps.patch(&name, &apply, &Patch::Apply(map)).await?;
            }
            Event::Cleanup(secret) => {
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cleaned"},
                    "data": {secret.name_any(): "yes"}});
                maps.patch("cleaned", &apply, &Patch::Apply(map)).await?;
            }
        }
        Ok(Action::await_change())
    })
    .await
}

#[e2e_test("kube-rs elects one leader, and the other takes over")]
fn kube_rs_leader_election_fails_over(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (client, kubectl) = (cluster.client(&runtime), cluster.kubectl());
    let lease = format!("lease/{ELECTION}");
    let candidate = |name: &'static str| {
        let leases = Api::namespaced(client.clone(), kubectl.namespace());
        runtime.spawn(async move { run_leader_election(&leases, name).await })
    };
    let first = candidate("first");
    kubectl.wait_value(&lease, "/spec/holderIdentity", &json!("first"));
    let second = candidate("second");
    let renewed = kubectl.value(&lease, "/spec/renewTime");
    wait_for("the lease to be renewed", Duration::from_secs(60), || {
        let now = kubectl.value(&lease, "/spec/renewTime");
        if now == renewed { Err(now.to_string()) } else { Ok(()) }
    });
    assert_eq!(kubectl.value(&lease, "/spec/holderIdentity"), "first");
    first.abort();
    let taken = kubectl.wait_value(&lease, "/spec/holderIdentity", &json!("second"));
    assert_eq!(taken["spec"]["leaseTransitions"], json!(1));
    second.abort();
}

/// Acquires an expired lease and renews it. A conflict means that the other candidate was faster.
async fn run_leader_election(leases: &Api<Lease>, name: &str) {
    loop {
        match leases.get_opt(ELECTION).await.unwrap() {
            None => {
                let metadata = ObjectMeta { name: Some(ELECTION.into()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(held_by(name, 0)) };
                expect_written_or_conflict(leases.create(&PostParams::default(), &lease).await);
            }
            Some(mut lease) => {
                let spec = lease.spec.take().unwrap_or_default();
                let transitions = spec.lease_transitions.unwrap_or_default();
                let mine = spec.holder_identity.as_deref() == Some(name);
                if mine || is_expired(&spec) {
                    lease.spec = Some(held_by(name, transitions + i32::from(!mine)));
                    expect_written_or_conflict(leases.replace(ELECTION, &PostParams::default(), &lease).await);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Accepts success and conflicts; panics on other errors.
fn expect_written_or_conflict(written: Result<Lease, Error>) {
    match written {
        Err(Error::Api(status)) if status.code == 409 => {}
        other => drop(other.unwrap()),
    }
}

fn held_by(name: &str, transitions: i32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_DURATION_SECONDS),
        renew_time: Some(MicroTime(k8s_openapi::jiff::Timestamp::now())),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

fn is_expired(spec: &LeaseSpec) -> bool {
    let renewed = spec.renew_time.as_ref().map(|t| t.0.as_second());
    renewed.is_none_or(|at| k8s_openapi::jiff::Timestamp::now().as_second() - at > i64::from(LEASE_DURATION_SECONDS))
}
