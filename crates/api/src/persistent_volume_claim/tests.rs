use super::*;
use serde_json::{Value, json};

fn claim(spec: Value) -> PersistentVolumeClaim {
    let mut object = json!({
        "metadata": {"name": "c", "namespace": "x", "uid": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}, "storageClassName": "s"},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn volume(name: &str, spec: Value) -> PersistentVolume {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"tier": name}},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}, "storageClassName": "s"},
        "status": {"phase": "Available"},
    });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn node(name: &str) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})).unwrap()
}

fn only_at(node: &str) -> Value {
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}})
}

#[track_caller]
fn check(claim: &PersistentVolumeClaim, volumes: &[PersistentVolume], expected: Option<&str>) {
    let found = find_matching_volume(claim, volumes.iter(), None, false);
    assert_eq!(found.and_then(|volume| volume.metadata.name.as_deref()), expected);
}

#[test]
fn volume_with_fewest_access_modes_then_smallest_is_chosen() {
    let sizes = [("big", "9Gi"), ("small", "6Gi"), ("tiny", "1Gi")]
        .map(|(name, size)| volume(name, json!({"capacity": {"storage": size}})));
    check(&claim(json!({})), &sizes, Some("small"));
    let shared = volume("shared", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}));
    check(&claim(json!({})), &[shared.clone(), sizes[0].clone()], Some("big"));
    check(&claim(json!({"accessModes": ["ReadWriteMany"]})), &[sizes[0].clone(), shared], Some("shared"));
}

#[test]
fn volume_that_does_not_match_is_not_chosen() {
    let pvc = claim(json!({}));
    check(&pvc, &[volume("v", json!({"storageClassName": "other"}))], None);
    check(&pvc, &[volume("v", json!({"volumeMode": "Block"}))], None);
    check(&pvc, &[volume("v", json!({"volumeAttributesClassName": "gold"}))], None);
    check(&pvc, &[volume("v", json!({"claimRef": {"namespace": "x", "name": "other"}}))], None);
    let mut taken = volume("v", json!({}));
    taken.status.as_mut().unwrap().phase = Some("Released".to_owned());
    check(&pvc, &[taken], None);
    let with_selector = claim(json!({"selector": {"matchLabels": {"tier": "a"}}}));
    check(&with_selector, &[volume("b", json!({})), volume("a", json!({}))], Some("a"));
}

#[test]
fn volume_with_claim_ref_is_chosen_first() {
    let reserved = volume("kept", json!({"storageClassName": "other", "claimRef": {"namespace": "x", "name": "c"}}));
    check(&claim(json!({})), &[volume("v", json!({})), reserved.clone()], Some("kept"));
    let other_claim = json!({"claimRef": {"namespace": "x", "name": "c", "uid": "2"}});
    check(&claim(json!({})), &[volume("before", other_claim)], None);
    check(&claim(json!({"resources": {"requests": {"storage": "9Gi"}}})), &[reserved], None);
}

#[test]
fn volume_affinity_must_match_the_node() {
    let volumes = [volume("a", only_at("n1")), volume("b", only_at("n2"))];
    let pvc = claim(json!({}));
    let found = |node: Option<&Node>, delayed| {
        let found = find_matching_volume(&pvc, volumes.iter(), node, delayed);
        found.and_then(|volume| volume.metadata.name.clone())
    };
    assert_eq!(found(Some(&node("n2")), true).as_deref(), Some("b"));
    assert_eq!(found(Some(&node("n3")), true), None);
    assert_eq!(found(None, true), None, "delayed binding needs a node");
    assert_eq!(found(None, false).as_deref(), Some("a"));
    let mut reserved = only_at("n1");
    reserved["claimRef"] = json!({"namespace": "x", "name": "c"});
    let reserved = [volume("kept", reserved), volume("free", json!({}))];
    assert!(
        find_matching_volume(&pvc, reserved.iter(), Some(&node("n2")), true).is_none(),
        "only the reserved volume is a candidate"
    );
}

#[test]
fn binding_by_controller_is_annotated() {
    let pvc = claim(json!({}));
    let bound = bind_volume_to_claim(&volume("v", json!({})), &pvc).unwrap();
    assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), Some("yes"));
    assert_eq!(claim_ref(&bound).unwrap().uid.as_deref(), Some("1"));
    assert_eq!(bind_volume_to_claim(&bound, &pvc), None);
    let reserved =
        bind_volume_to_claim(&volume("v", json!({"claimRef": {"namespace": "x", "name": "c"}})), &pvc).unwrap();
    assert_eq!(
        (annotation(&reserved.metadata, BOUND_BY_CONTROLLER), is_volume_bound_to_claim(&reserved, &pvc)),
        (None, true)
    );
}

#[test]
fn volume_mismatch_has_upstreams_message() {
    let reason = |spec: Value| check_volume_satisfies_claim(&volume("v", json!({})), &claim(spec));
    assert_eq!(reason(json!({})), None);
    assert_eq!(reason(json!({"resources": {"requests": {"storage": "6Gi"}}})), Some("requested PV is too small"));
    assert_eq!(reason(json!({"storageClassName": "t"})), Some("storageClassName does not match"));
    assert_eq!(reason(json!({"volumeMode": "Block"})), Some("incompatible volumeMode"));
    assert_eq!(reason(json!({"accessModes": ["ReadOnlyMany"]})), Some("incompatible accessMode"));
}

#[test]
fn ephemeral_volume_claim_belongs_to_its_pod() {
    let name_of_claim = |volume: Value| claim_name("p", &serde_json::from_value(volume).unwrap());
    assert_eq!(name_of_claim(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})).as_deref(), Some("c"));
    assert_eq!(name_of_claim(json!({"name": "v", "ephemeral": {}})).as_deref(), Some("p-v"));
    assert_eq!(name_of_claim(json!({"name": "v", "emptyDir": {}})), None);
    let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "x", "uid": "7"}})).unwrap();
    let mut controlled = claim(json!({}));
    let message = "PVC x/c was not created for pod x/p (pod is not owner)";
    assert_eq!(check_owned_by_pod(&controlled, &pod).unwrap_err().to_string(), message);
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "7", "controller": true}]);
    controlled.metadata.owner_references = serde_json::from_value(owner).unwrap();
    assert_eq!(check_owned_by_pod(&controlled, &pod), Ok(()));
}
