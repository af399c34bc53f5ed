use super::*;
use serde_json::json;

/// Decodes an object; returns it and its unknown fields.
fn decode(api_version: &str, kind: &str, given: &Value) -> Result<(Value, Vec<String>), DecodeFieldError> {
    let mut decoded = given.clone();
    decode_object(api_version, kind, &mut decoded).map(|unknown| (decoded, unknown))
}

#[track_caller]
fn check(spec: &Value, expected: &Value) {
    let given = json!({"metadata": {"name": "p", "labels": {}}, "spec": spec});
    let (clean, unknown) = decode("v1", "Pod", &given).unwrap();
    assert_eq!((&clean["spec"], unknown), (expected, Vec::new()), "{spec}");
    assert_eq!(clean["metadata"], json!({"name": "p"}));
    assert_eq!((&clean["apiVersion"], &clean["kind"], &clean["status"]), (&json!("v1"), &json!("Pod"), &json!({})));
    assert_eq!(decode("v1", "Pod", &clean).unwrap().0, clean, "decoding is idempotent");
}

#[test]
fn omitempty_fields_are_encoded_as_in_go() {
    check(&json!({"hostNetwork": false, "nodeName": "", "tolerations": [], "nodeSelector": {}}), &json!({}));
    check(&json!({"hostNetwork": null, "dnsConfig": null}), &json!({}));
    // Zero values of pointers, and empty lists without `omitempty`, are kept.
    let pointers = json!({"terminationGracePeriodSeconds": 0, "enableServiceLinks": false, "containers": []});
    check(&pointers, &pointers);
    check(
        &json!({"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}),
        &json!({"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}),
    );
    check(
        &json!({"containers": [{"image": "i"}]}),
        &json!({"containers": [{"image": "i", "name": "", "resources": {}}]}),
    );
}

#[test]
fn values_are_normalized_to_the_encoding_of_go() {
    let container = |cpu: Value| json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]});
    for (given, stored) in [("1000m", "1"), ("0.5", "500m"), ("1u", "1m"), ("1024Ki", "1Mi"), ("1e3", "1e3")] {
        check(&container(json!(given)), &container(json!(stored)));
    }
    check(&container(json!(2)), &container(json!("2")));
    check(&container(json!(0.1)), &container(json!("100m")));
    let volume = |limit: &str| json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": limit}}], "nodeSelector": {"sizeLimit": "1024Mi"}});
    check(&volume("1024Mi"), &volume("1Gi"));
    let at = |time: &str| json!({"metadata": {"name": "c", "creationTimestamp": time}});
    let (clean, _) = decode("v1", "ConfigMap", &at("2026-01-02T03:04:05.678+01:00")).unwrap();
    assert_eq!(clean["metadata"]["creationTimestamp"], "2026-01-02T02:04:05Z");
    let (clean, _) = decode("v1", "Secret", &json!({"data": {"a": "YQ\n==", "b": ""}})).unwrap();
    assert_eq!(clean["data"], json!({"a": "YQ==", "b": ""}));
}

#[test]
fn unknown_fields_are_reported_with_their_path() {
    let given =
        json!({"spec": {"containers": [{"name": "c"}, {"name": "d", "imagee": "i"}], "kind": "x"}, "extra": {"a": 1}});
    let unknown = decode("v1", "Pod", &given).unwrap().1;
    let expected = ["extra", "spec.containers[1].imagee", "spec.kind"].map(|p| format!("unknown field {p:?}"));
    assert_eq!(unknown, expected);
}

#[test]
fn values_of_wrong_type_have_errors_of_go_decoder() {
    let pod = |spec: Value, message: &str| {
        let error = decode("v1", "Pod", &json!({"spec": spec})).unwrap_err().to_string();
        assert_eq!(error, format!("json: cannot unmarshal {message}"), "{spec}");
    };
    pod(json!({"hostNetwork": "yes"}), "string into Go struct field PodSpec.spec.hostNetwork of type bool");
    pod(json!({"containers": {}}), "object into Go struct field PodSpec.spec.containers of type []v1.Container");
    pod(json!({"containers": ["c"]}), "string into Go struct field PodSpec.spec.containers of type v1.Container");
    pod(
        json!({"containers": [{"name": 1}]}),
        "number into Go struct field Container.spec.containers.name of type string",
    );
    pod(json!({"nodeSelector": {"a": 1}}), "number into Go struct field PodSpec.spec.nodeSelector of type string");
    pod(json!({"priority": 1.5}), "number 1.5 into Go struct field PodSpec.spec.priority of type int32");
    pod(
        json!({"priority": 3_000_000_000_u64}),
        "number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
    );
    pod(json!("all"), "string into Go struct field Pod.spec of type v1.PodSpec");
    let error = decode("v1", "Secret", &json!({"data": {"a": "YQ==", "b": "a!b="}})).unwrap_err().to_string();
    assert_eq!(error, "data[b]: illegal base64 data at input byte 1");
}

#[test]
fn arbitrary_values_do_not_panic() {
    let values = [json!(null), json!(true), json!(-1), json!(1e300), json!("x"), json!([[]]), json!({"": {"": []}})];
    for message in &TABLE.messages {
        for field in &message.fields {
            for value in &values {
                let mut given = Value::Object(Map::from_iter([(field.name.to_owned(), value.clone())]));
                let _ = Decoder::default().message(message, &mut given, "X");
            }
        }
    }
}

#[test]
fn lists_that_can_be_empty_are_omitempty_lists() {
    for (message, name) in EMPTY_LIST_IS_SET {
        let field = TABLE.message(message).and_then(|message| message.field_named(name));
        assert!(field.is_some_and(|f| f.cardinality == Cardinality::List && !f.always_encoded), "{message}.{name}");
    }
}

#[test]
fn embedded_objects_keep_their_type() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {}});
    let set = json!({"spec": {"volumeClaimTemplates": [claim], "template": {"apiVersion": "v1"}}});
    let (clean, unknown) = decode("apps/v1", "StatefulSet", &set).unwrap();
    assert_eq!(clean["spec"]["volumeClaimTemplates"][0]["kind"], "PersistentVolumeClaim");
    assert_eq!(unknown, ["unknown field \"spec.template.apiVersion\""]);
}
