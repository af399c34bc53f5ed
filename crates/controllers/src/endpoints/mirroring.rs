//! Mirrors Endpoints of Services without a selector to EndpointSlices (`pkg/controller/endpointslicemirroring`).

use super::{
    endpoint_slices::{LABEL_SERVICE_NAME, MANAGED_BY, SliceChanges},
    service::is_of_family,
};
use k8s_openapi::{
    api::{
        core::v1::{EndpointAddress, EndpointPort as Port, EndpointSubset, Endpoints},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use std::{collections::BTreeMap, sync::Arc};

pub(super) const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const LABEL_SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Annotation of Endpoints that serve as a leader election lock: they are not mirrored.
const LEADER_ELECTION_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations that are not copied to slices.
const ANNOTATIONS_TO_SKIP: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];
/// Maximum number of mirrored addresses of a subset (`--mirroring-max-endpoints-per-subset`).
const MAX_ENDPOINTS: usize = 1000;
/// Maximum number of endpoints of a slice.
const MAX_ENDPOINTS_PER_SLICE: usize = 100;
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// Plans the slices that mirror Endpoints. `existing` are the mirrored slices.
pub(super) fn reconcile_mirrored_slices(
    endpoints: Option<&Endpoints>,
    existing: &[Arc<EndpointSlice>],
) -> SliceChanges {
    let (mut changes, mut left) = (SliceChanges::default(), existing.to_vec());
    for mut desired in endpoints.filter(|e| is_mirrored(e)).map(slices).unwrap_or_default() {
        let Some(at) = left
            .iter()
            .position(|existing| existing.address_type == desired.address_type && existing.ports == desired.ports)
        else {
            changes.create.push(desired);
            continue;
        };
        let observed = left.swap_remove(at);
        let is_same = observed.endpoints == desired.endpoints
            && observed.metadata.labels == desired.metadata.labels
            && observed.metadata.annotations == desired.metadata.annotations;
        if !is_same {
            let ObjectMeta { labels, annotations, .. } = desired.metadata;
            desired.metadata = ObjectMeta { labels, annotations, ..observed.metadata.clone() };
            changes.update.push(desired);
        }
    }
    changes.delete = left;
    changes
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let annotations = endpoints.metadata.annotations.as_ref();
    labels.is_none_or(|l| l.get(LABEL_SKIP_MIRROR).is_none_or(|skip| skip != "true"))
        && annotations.is_none_or(|a| !a.contains_key(LEADER_ELECTION_ANNOTATION))
}

fn slices(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut all = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        for family in FAMILIES {
            let of_family = of_subset(subset, family);
            let pieces = of_family.chunks(MAX_ENDPOINTS_PER_SLICE);
            all.extend(pieces.map(|piece| slice(endpoints, subset, family, piece.to_vec())));
        }
    }
    all
}

fn of_subset(subset: &EndpointSubset, family: &str) -> Vec<Endpoint> {
    let ready = subset.addresses.iter().flatten().map(|a| (a, true));
    let not_ready = subset.not_ready_addresses.iter().flatten().map(|a| (a, false));
    let all = ready.chain(not_ready).take(MAX_ENDPOINTS).filter(|(address, _)| is_of_family(&address.ip, family));
    all.map(|(address, ready)| endpoint(address, ready)).collect()
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone(),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn slice(source: &Endpoints, subset: &EndpointSubset, family: &str, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let name = source.metadata.name.clone().unwrap_or_default();
    let mut labels = source.metadata.labels.clone().unwrap_or_default();
    labels.insert(LABEL_SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = source.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !ANNOTATIONS_TO_SKIP.contains(&key.as_str()));
    let owner = source.controller_owner_ref(&()).map(|mut owner| {
        owner.block_owner_deletion = Some(true);
        owner
    });
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: source.metadata.namespace.clone(),
            owner_references: owner.map(|owner| vec![owner]),
            labels: Some(labels),
            annotations: Some(annotations).filter(|a: &BTreeMap<_, _>| !a.is_empty()),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints,
        ports: Some(subset.ports.iter().flatten().map(port).collect()),
    }
}

fn port(port: &Port) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn endpoints(labels: &Value, subsets: &Value) -> Endpoints {
        let metadata = json!({"name": "web", "namespace": "x", "uid": "e", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata, "subsets": subsets})).unwrap()
    }

    /// Checks how many slices are created, updated and deleted; returns the resulting slices.
    #[track_caller]
    fn check(
        endpoints: Option<&Endpoints>,
        existing: &[Arc<EndpointSlice>],
        counts: [usize; 3],
    ) -> Vec<Arc<EndpointSlice>> {
        let SliceChanges { create, update, delete } = reconcile_mirrored_slices(endpoints, existing);
        assert_eq!([create.len(), update.len(), delete.len()], counts);
        let mut left = existing.to_vec();
        left.retain(|s| !delete.iter().any(|r| Arc::ptr_eq(r, s)));
        left.retain(|s| !update.iter().any(|u| u.metadata.name == s.metadata.name));
        let named = create.into_iter().enumerate().map(|(i, mut slice)| {
            slice.metadata.name = Some(format!("web-{i}-{}", slice.address_type));
            slice
        });
        left.into_iter().chain(update.into_iter().chain(named).map(Arc::new)).collect()
    }

    #[test]
    fn custom_endpoints_are_mirrored_to_slices() {
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        let subset = |addresses: &Value| json!([{"addresses": addresses, "ports": ports}]);
        let one = endpoints(&json!({"a": "b"}), &subset(&json!([{"ip": "192.0.2.1", "hostname": "h"}])));
        let slices = check(Some(&one), &[], [1, 0, 0]);
        let slice = serde_json::to_value(&*slices[0]).unwrap();
        assert_eq!(
            slice["endpoints"],
            json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": true}, "hostname": "h"}])
        );
        assert_eq!(slice["ports"], json!([{"name": "", "port": 80, "protocol": "TCP"}]));
        let labels =
            json!({"a": "b", "kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": MANAGER});
        assert_eq!(slice["metadata"]["labels"], labels);
        assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
        check(Some(&one), &slices, [0, 0, 0]);
        let both = endpoints(&json!({"a": "b"}), &subset(&json!([{"ip": "192.0.2.2"}, {"ip": "2001:db8::1"}])));
        let slices = check(Some(&both), &slices, [1, 1, 0]);
        check(Some(&one), &slices, [0, 1, 1]);
        check(None, &slices, [0, 0, 2]);
        let skipped = endpoints(&json!({LABEL_SKIP_MIRROR: "true"}), &subset(&json!([{"ip": "192.0.2.1"}])));
        check(Some(&skipped), &slices, [0, 0, 2]);
    }

    #[test]
    fn mirrored_slices_are_split_and_mark_unready_endpoints() {
        let many: Vec<Value> = (0..150).map(|i| json!({"ip": format!("192.0.2.{i}")})).collect();
        let subsets = json!([{"notReadyAddresses": many, "ports": [{"port": 80}]}]);
        let slices = check(Some(&endpoints(&json!({}), &subsets)), &[], [2, 0, 0]);
        assert_eq!(slices.iter().map(|s| s.endpoints.len()).collect::<Vec<_>>(), [100, 50]);
        let ready = |e: &Endpoint| e.conditions.as_ref().and_then(|c| c.ready);
        assert!(slices.iter().flat_map(|s| &s.endpoints).all(|e| ready(e) == Some(false)));
    }
}
