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
    let found = find(claim, volumes.iter(), None, false);
    assert_eq!(found.and_then(|volume| volume.metadata.name.as_deref()), expected);
}

#[test]
fn of_the_volumes_that_fit_the_smallest_with_the_fewest_modes_is_taken() {
    let sizes = [("big", "9Gi"), ("small", "6Gi"), ("tiny", "1Gi")]
        .map(|(name, size)| volume(name, json!({"capacity": {"storage": size}})));
    check(&claim(json!({})), &sizes, Some("small"));
    let shared = volume("shared", json!({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}));
    check(&claim(json!({})), &[shared.clone(), sizes[0].clone()], Some("big"));
    check(&claim(json!({"accessModes": ["ReadWriteMany"]})), &[sizes[0].clone(), shared], Some("shared"));
}

#[test]
fn what_does_not_fit_is_not_taken() {
    let asks = claim(json!({}));
    check(&asks, &[volume("v", json!({"storageClassName": "other"}))], None);
    check(&asks, &[volume("v", json!({"volumeMode": "Block"}))], None);
    check(&asks, &[volume("v", json!({"volumeAttributesClassName": "gold"}))], None);
    check(&asks, &[volume("v", json!({"claimRef": {"namespace": "x", "name": "other"}}))], None);
    let mut taken = volume("v", json!({}));
    taken.status.as_mut().unwrap().phase = Some("Released".to_owned());
    check(&asks, &[taken], None);
    let selecting = claim(json!({"selector": {"matchLabels": {"tier": "a"}}}));
    check(&selecting, &[volume("b", json!({})), volume("a", json!({}))], Some("a"));
}

#[test]
fn the_volume_that_is_kept_for_a_claim_is_its_own() {
    let kept = volume("kept", json!({"storageClassName": "other", "claimRef": {"namespace": "x", "name": "c"}}));
    check(&claim(json!({})), &[volume("v", json!({})), kept.clone()], Some("kept"));
    let another = json!({"claimRef": {"namespace": "x", "name": "c", "uid": "2"}});
    check(&claim(json!({})), &[volume("before", another)], None);
    check(&claim(json!({"resources": {"requests": {"storage": "9Gi"}}})), &[kept], None);
}

#[test]
fn a_node_is_asked_for_what_can_be_reached_from_it() {
    let volumes = [volume("a", only_at("n1")), volume("b", only_at("n2"))];
    let asks = claim(json!({}));
    let found = |node: Option<&Node>, delayed| {
        let found = find(&asks, volumes.iter(), node, delayed);
        found.and_then(|volume| volume.metadata.name.clone())
    };
    assert_eq!(found(Some(&node("n2")), true).as_deref(), Some("b"));
    assert_eq!(found(Some(&node("n3")), true), None);
    assert_eq!(found(None, true), None, "whose binding waits for a Pod waits for its node");
    assert_eq!(found(None, false).as_deref(), Some("a"));
    let mut kept = only_at("n1");
    kept["claimRef"] = json!({"namespace": "x", "name": "c"});
    let kept = [volume("kept", kept), volume("free", json!({}))];
    assert!(find(&asks, kept.iter(), Some(&node("n2")), true).is_none(), "another one would not be its own");
}

#[test]
fn who_chose_a_volume_is_written_down() {
    let asks = claim(json!({}));
    let bound = bind(&volume("v", json!({})), &asks).unwrap();
    assert_eq!(annotation(&bound.metadata, BOUND_BY_CONTROLLER), Some("yes"));
    assert_eq!(reference(&bound).unwrap().uid.as_deref(), Some("1"));
    assert_eq!(bind(&bound, &asks), None);
    let kept = bind(&volume("v", json!({"claimRef": {"namespace": "x", "name": "c"}})), &asks).unwrap();
    assert_eq!((annotation(&kept.metadata, BOUND_BY_CONTROLLER), is_for(&kept, &asks)), (None, true));
}

#[test]
fn why_a_volume_cannot_be_had_by_name_is_told_in_upstreams_words() {
    let told = |spec: Value| mismatch(&volume("v", json!({})), &claim(spec));
    assert_eq!(told(json!({})), None);
    assert_eq!(told(json!({"resources": {"requests": {"storage": "6Gi"}}})), Some("requested PV is too small"));
    assert_eq!(told(json!({"storageClassName": "t"})), Some("storageClassName does not match"));
    assert_eq!(told(json!({"volumeMode": "Block"})), Some("incompatible volumeMode"));
    assert_eq!(told(json!({"accessModes": ["ReadOnlyMany"]})), Some("incompatible accessMode"));
}

#[test]
fn an_ephemeral_volume_has_a_claim_of_its_pods_own() {
    let of = |volume: Value| name_of("p", &serde_json::from_value(volume).unwrap());
    assert_eq!(of(json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}})).as_deref(), Some("c"));
    assert_eq!(of(json!({"name": "v", "ephemeral": {}})).as_deref(), Some("p-v"));
    assert_eq!(of(json!({"name": "v", "emptyDir": {}})), None);
    let pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "x", "uid": "7"}})).unwrap();
    let mut own = claim(json!({}));
    let why = "PVC x/c was not created for pod x/p (pod is not owner)";
    assert_eq!(check_made_for(&own, &pod), Err(why.to_owned()));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "7", "controller": true}]);
    own.metadata.owner_references = serde_json::from_value(owner).unwrap();
    assert_eq!(check_made_for(&own, &pod), Ok(()));
}
