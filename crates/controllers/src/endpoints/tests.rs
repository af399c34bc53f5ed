//! Tests of what is planned for the endpoints of a Service.

use super::{
    endpoint_slices::{SliceChanges, reconcile_slices},
    legacy::endpoints,
};
use crate::pod_summary::{PodNetwork, PodSummary};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{Endpoints, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use std::sync::Arc;

fn service(spec: Value) -> Service {
    let mut all = json!({"selector": {"app": "web"}, "clusterIP": "10.96.1.1", "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]});
    for (field, value) in spec.as_object().unwrap() {
        all[field] = value.clone();
    }
    let meta = json!({"name": "web", "namespace": "x", "uid": "s", "labels": {"tier": "front"}});
    serde_json::from_value(json!({"metadata": meta, "spec": all})).unwrap()
}

fn pod(number: usize, ready: bool) -> Arc<PodSummary> {
    Arc::new(PodSummary {
        namespace: "x".into(),
        name: format!("p{number}"),
        uid: format!("u{number:03}"),
        phase: "Running".into(),
        active: true,
        node: Some("n".into()),
        ready: ready.then_some(Timestamp::UNIX_EPOCH),
        network: PodNetwork { ips: vec![format!("10.0.{}.{}", number / 200, number % 200)], ..PodNetwork::default() },
        ..PodSummary::default()
    })
}

fn changed(pod: &Arc<PodSummary>, change: impl FnOnce(&mut PodSummary)) -> Arc<PodSummary> {
    let mut pod = (**pod).clone();
    change(&mut pod);
    Arc::new(pod)
}

fn decide(service: &Service, pods: &[Arc<PodSummary>], existing: &[EndpointSlice]) -> SliceChanges {
    let existing: Vec<_> = existing.iter().cloned().map(Arc::new).collect();
    reconcile_slices(service, service.spec.as_ref().unwrap(), pods, &existing)
}

/// Returns the slices as the API has them after the changes.
fn applied(existing: &[EndpointSlice], changes: SliceChanges) -> Vec<EndpointSlice> {
    let mut all = existing.to_vec();
    let gone: Vec<_> = changes.delete.iter().map(|s| s.metadata.name.clone()).collect();
    all.retain(|slice| !gone.contains(&slice.metadata.name));
    for new in changes.update {
        let at = all.iter().position(|slice| slice.metadata.name == new.metadata.name).unwrap();
        all[at] = new;
    }
    for mut new in changes.create {
        new.metadata.name = Some(format!("web-{}", all.len()));
        all.push(new);
    }
    all
}

/// Returns how many slices are created, updated and deleted.
fn counts(changes: &SliceChanges) -> [usize; 3] {
    [changes.create.len(), changes.update.len(), changes.delete.len()]
}

/// Returns the conditions of a Pod's endpoint: ready, serving, terminating.
fn conditions(service: &Service, pod: &Arc<PodSummary>) -> [Option<bool>; 3] {
    let changes = decide(service, std::slice::from_ref(pod), &[]);
    let conditions = changes.create[0].endpoints[0].conditions.clone().unwrap();
    [conditions.ready, conditions.serving, conditions.terminating]
}

#[test]
fn terminating_endpoint_is_unready_and_serves_if_pod_is_ready() {
    let (plain, all) = (service(json!({})), service(json!({"publishNotReadyAddresses": true})));
    let ending = |ready| changed(&pod(1, ready), |pod| (pod.terminating, pod.active) = (true, false));
    let some = |a, b, c| [Some(a), Some(b), Some(c)];
    assert_eq!(conditions(&plain, &pod(1, true)), some(true, true, false));
    assert_eq!(conditions(&plain, &pod(1, false)), some(false, false, false));
    assert_eq!(conditions(&plain, &ending(true)), some(false, true, true));
    assert_eq!(conditions(&plain, &ending(false)), some(false, false, true));
    assert_eq!(conditions(&all, &pod(1, false)), some(true, false, false));
    assert_eq!(conditions(&all, &ending(true)), some(true, true, true));
}

#[test]
fn slice_has_owner_labels_ports_and_endpoints() {
    let named = changed(&pod(1, true), |pod| {
        (pod.network.hostname, pod.network.subdomain) = (Some("h".into()), Some("web".into()));
    });
    let slice = decide(&service(json!({})), &[named], &[]).create.remove(0);
    let labels = serde_json::to_value(&slice.metadata.labels).unwrap();
    assert_eq!(
        labels,
        json!({"tier": "front", "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"})
    );
    assert_eq!(slice.metadata.generate_name.as_deref(), Some("web-"));
    assert_eq!(slice.metadata.owner_references.unwrap()[0].uid, "s");
    let ports = serde_json::to_value(&slice.ports).unwrap();
    assert_eq!(ports, json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let endpoint = serde_json::to_value(&slice.endpoints[0]).unwrap();
    assert_eq!(endpoint["addresses"], json!(["10.0.0.1"]));
    assert_eq!((&endpoint["hostname"], &endpoint["nodeName"]), (&json!("h"), &json!("n")));
    assert_eq!(endpoint["targetRef"], json!({"kind": "Pod", "namespace": "x", "name": "p1", "uid": "u001"}));
}

#[test]
fn pods_without_address_or_terminal_are_no_endpoints() {
    let nowhere = changed(&pod(1, false), |pod| pod.network.ips.clear());
    let ended = changed(&pod(2, false), |pod| pod.phase = "Succeeded".into());
    let changes = decide(&service(json!({})), &[nowhere, ended], &[]);
    assert_eq!((counts(&changes), changes.create[0].endpoints.len()), ([1, 0, 0], 0));
    assert_eq!(changes.create[0].ports, Some(vec![]));
}

#[test]
fn headless_service_slice_is_labelled_and_needs_no_ports() {
    let headless = service(json!({"clusterIP": "None", "ports": null}));
    let slice = decide(&headless, &[pod(1, true)], &[]).create.remove(0);
    assert_eq!(slice.metadata.labels.unwrap()["service.kubernetes.io/headless"], "");
    assert_eq!((slice.ports, slice.endpoints.len()), (Some(vec![]), 1));
}

#[test]
fn pods_with_other_target_ports_are_in_other_slices() {
    let by_name = service(json!({"ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]}));
    let at =
        |number, port| changed(&pod(number, true), |pod| pod.network.ports = vec![("web".into(), "TCP".into(), port)]);
    let changes = decide(&by_name, &[at(1, 8080), at(2, 9090), at(3, 8080), pod(4, true)], &[]);
    let shown: Vec<(usize, Option<i32>)> = changes
        .create
        .iter()
        .map(|slice| (slice.endpoints.len(), slice.ports.as_ref().unwrap().first().and_then(|p| p.port)))
        .collect();
    assert_eq!(shown, [(2, Some(8080)), (1, Some(9090)), (1, None)]);
}

#[test]
fn slices_are_filled_with_few_changes() {
    let service = service(json!({}));
    let pods: Vec<_> = (0..150).map(|n| pod(n, true)).collect();
    let first = decide(&service, &pods, &[]);
    assert_eq!(first.create.iter().map(|slice| slice.endpoints.len()).collect::<Vec<_>>(), [100, 50]);
    let existing = applied(&[], first);
    assert_eq!(counts(&decide(&service, &pods, &existing)), [0, 0, 0]);
    // A new endpoint goes to a slice with capacity; a changed one stays in its slice.
    let extended: Vec<_> = pods.iter().cloned().chain([pod(150, true)]).collect();
    let changes = decide(&service, &extended, &existing);
    assert_eq!((counts(&changes), changes.update[0].endpoints.len()), ([0, 1, 0], 51));
    let mut other = pods.clone();
    other[3] = changed(&other[3], |pod| pod.ready = None);
    let changes = decide(&service, &other, &existing);
    assert_eq!((counts(&changes), changes.update[0].endpoints.len()), ([0, 1, 0], 100));
    // Empty slices are deleted, except one placeholder.
    let changes = decide(&service, &pods[..100], &existing);
    assert_eq!(counts(&changes), [0, 0, 1]);
    let changes = decide(&service, &[], &existing);
    assert_eq!(counts(&changes), [0, 1, 1]);
    let none = applied(&existing, changes);
    assert_eq!((none.len(), none[0].endpoints.len(), none[0].ports.clone()), (1, 0, Some(vec![])));
    assert_eq!(counts(&decide(&service, &[], &none)), [0, 0, 0]);
}

#[test]
fn slices_of_a_deleted_service_are_replaced() {
    let service = service(json!({}));
    let mut foreign = decide(&service, &[pod(1, true)], &[]).create.remove(0);
    foreign.metadata.name = Some("old".into());
    foreign.metadata.owner_references.as_mut().unwrap()[0].uid = "other".into();
    assert_eq!(counts(&decide(&service, &[pod(1, true)], &[foreign])), [1, 0, 1]);
}

#[test]
fn service_label_changes_update_its_slices() {
    let mut service = service(json!({}));
    let existing = applied(&[], decide(&service, &[pod(1, true)], &[]));
    service.metadata.labels.as_mut().unwrap().insert("tier".into(), "back".into());
    let changes = decide(&service, &[pod(1, true)], &existing);
    assert_eq!(counts(&changes), [0, 1, 0]);
    assert_eq!(changes.update[0].metadata.labels.as_ref().unwrap()["tier"], "back");
}

fn subsets(service: &Service, pods: &[Arc<PodSummary>], is: Option<&Endpoints>) -> Option<Endpoints> {
    endpoints(service, service.spec.as_ref().unwrap(), pods, is)
}

#[test]
fn endpoints_split_ready_addresses_and_omit_terminating() {
    let service = service(json!({}));
    let ending = changed(&pod(3, true), |pod| pod.terminating = true);
    let all = [pod(1, true), pod(2, false), ending];
    let made = subsets(&service, &all, None).unwrap();
    let shown = serde_json::to_value(&made.subsets).unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 1);
    assert_eq!(
        (&shown[0]["addresses"][0]["ip"], shown[0]["addresses"].as_array().unwrap().len()),
        (&json!("10.0.0.1"), 1)
    );
    assert_eq!(shown[0]["notReadyAddresses"][0]["ip"], "10.0.0.2");
    assert_eq!(shown[0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let labels = serde_json::to_value(&made.metadata.labels).unwrap();
    assert_eq!(labels, json!({"tier": "front", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}));
    assert_eq!(subsets(&service, &all, Some(&made)), None);
}

#[test]
fn endpoints_publish_not_ready_addresses_as_ready() {
    let service = service(json!({"publishNotReadyAddresses": true, "clusterIP": "None", "ports": null}));
    let made = subsets(&service, &[pod(1, true), pod(2, false)], None).unwrap();
    let subset = &made.subsets.unwrap()[0];
    assert_eq!(
        (subset.addresses.as_ref().unwrap().len(), &subset.not_ready_addresses, &subset.ports),
        (2, &None, &None)
    );
    assert!(made.metadata.labels.unwrap().contains_key("service.kubernetes.io/headless"));
}

#[test]
fn endpoints_are_truncated_at_1000_addresses() {
    let service = service(json!({}));
    let all: Vec<_> = (0..1100).map(|n| pod(n, n >= 100)).collect();
    let made = subsets(&service, &all, None).unwrap();
    let subset = &made.subsets.as_ref().unwrap()[0];
    assert_eq!((subset.addresses.as_ref().unwrap().len(), &subset.not_ready_addresses), (1000, &None));
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["endpoints.kubernetes.io/over-capacity"], "truncated");
    let fewer = subsets(&service, &all[..10], Some(&made)).unwrap();
    assert_eq!(fewer.metadata.annotations, None);
}
