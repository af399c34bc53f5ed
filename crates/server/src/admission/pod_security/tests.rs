use super::*;
use crate::test_server;
use store::{Key, Precondition, Write};

const NAMESPACE: &str = "risky";

/// Creates a server with a namespace with this metadata in the store.
async fn server(metadata: &Value) -> Store {
    let store = test_server::server().await.registry.store;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    let key = Key::new("namespaces", "", NAMESPACE);
    store.write(Write::put(key, Precondition::Any, object.to_string())).await.unwrap();
    store
}

fn labels_with(key: &str, value: Value) -> Value {
    json!({"name": NAMESPACE, "labels": {format!("pod-security.kubernetes.io/{key}"): value}})
}

#[tokio::test]
async fn labels_that_cannot_be_read_are_enforced_as_restricted() {
    let (restricted, privileged) = ("restricted:latest", "privileged:latest");
    for (metadata, enforced, is_invalid) in [
        (json!({"name": NAMESPACE}), privileged, false),
        (labels_with("enforce", json!("baseline")), "baseline:latest", false),
        (labels_with("enforce", json!("Baseline")), restricted, true),
        (labels_with("enforce", json!("privileged ")), restricted, true),
        (labels_with("enforce", json!("")), restricted, true),
        (labels_with("enforce", json!(5)), restricted, true),
        (labels_with("enforce", json!(["privileged"])), restricted, true),
        (labels_with("enforce", json!({"level": "privileged"})), restricted, true),
        (labels_with("enforce", Value::Null), restricted, true),
        (labels_with("warn", json!("all")), privileged, true),
        (labels_with("audit", json!(true)), privileged, true),
        (labels_with("enforce-version", json!(1.3)), privileged, true),
        // An invalid other label does not affect the valid ones.
        (json!({"labels": {"a": 1, "pod-security.kubernetes.io/enforce": "baseline"}}), "baseline:latest", false),
        (json!({"labels": []}), restricted, true),
        (json!({"labels": "enforce"}), restricted, true),
    ] {
        let (policy, invalid_labels) = policy(&server(&metadata).await, NAMESPACE).unwrap();
        assert_eq!(
            (policy.enforce.to_string().as_str(), !invalid_labels.is_empty()),
            (enforced, is_invalid),
            "{metadata}"
        );
        assert_eq!(policy.audit.level, Level::Privileged, "{metadata}");
    }
}

#[tokio::test]
async fn unreadable_namespaces_have_no_policy() {
    let store = server(&json!("metadata")).await;
    for name in [NAMESPACE, "missing"] {
        let error = policy(&store, name).unwrap_err();
        assert_eq!(error.to_string(), format!("failed to lookup namespace {name:?}"));
    }
    let key = Key::new("namespaces", "", NAMESPACE);
    store.write(Write::put(key, Precondition::Any, "{".to_owned())).await.unwrap();
    policy(&store, NAMESPACE).unwrap_err();
}

#[test]
fn fields_of_wrong_types_do_not_count_as_absent() {
    let container = |context: Value| json!([{"name": "c", "securityContext": context}]);
    for spec in [
        Value::Null,
        json!("spec"),
        json!({"containers": {"name": "c"}}),
        json!({"containers": container(json!({"privileged": "true"}))}),
        json!({"containers": container(json!([]))}),
        json!({"containers": container(json!({"capabilities": {"add": "SYS_ADMIN"}}))}),
        json!({"containers": [], "hostNetwork": 1}),
        json!({"containers": [], "hostPID": "true"}),
        json!({"containers": [], "volumes": [{"name": "v", "hostPath": "/"}]}),
        json!({"containers": [], "initContainers": "c"}),
        json!({"containers": [], "ephemeralContainers": [{"name": "c", "securityContext": {"privileged": "yes"}}]}),
        json!({"containers": [], "securityContext": {"sysctls": {"name": "kernel.msgmax"}}}),
    ] {
        assert!(Subject::decode(&json!({"spec": spec})).is_err(), "{spec}");
    }
    let annotated = json!({"metadata": {"annotations": {"a": 1}}, "spec": {"containers": []}});
    assert!(Subject::decode(&annotated).is_err());
    assert!(Subject::decode(&json!({"spec": {"containers": []}})).is_ok());
}

#[test]
fn changed_containers_are_evaluated_again() {
    let pod = |list: &str, containers: Value| json!({"spec": {list: containers}});
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let old = pod(list, json!([container("a", "i")]));
        assert!(has_same_images(&old, &old), "{list}");
        for new in [
            json!([container("a", "j")]),
            json!([container("a", "i"), container("b", "i")]),
            json!([container("b", "i")]),
            json!([]),
            json!("a"),
        ] {
            assert!(!has_same_images(&old, &pod(list, new.clone())), "{list} {new}");
        }
        // Invalid lists are never the same.
        let unreadable = pod(list, json!({"a": container("a", "i")}));
        assert!(!has_same_images(&unreadable, &unreadable), "{list}");
    }
    let moved = pod("initContainers", json!([container("a", "i")]));
    assert!(!has_same_images(&pod("containers", json!([container("a", "i")])), &moved));
}
