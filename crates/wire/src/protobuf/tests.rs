//! Tests of the protobuf encoding: with messages of kubectl, round trips, and arbitrary bytes.

use super::{
    DecodeError, MAGIC, decode, encode,
    message_table::TABLE,
    sample::{self, KUBECTL_BODIES, Sample, bytes},
    wire,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn kubectl_bodies_are_decoded_to_the_printed_json() {
    for (hex, expected) in KUBECTL_BODIES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(decode(&bytes(hex)).unwrap(), expected);
    }
}

/// Decodes a message in an envelope.
#[track_caller]
fn check(kind: &str, message: &[u8], expected: Value) {
    let mut envelope = MAGIC.to_vec();
    let mut meta = Vec::new();
    wire::put_bytes(&mut meta, 1, b"v1");
    wire::put_bytes(&mut meta, 2, kind.as_bytes());
    wire::put_bytes(&mut envelope, 1, &meta);
    wire::put_bytes(&mut envelope, 2, message);
    let got = decode(&envelope).map_or_else(
        |e| json!(e.to_string()),
        |mut v| {
            if let Some(object) = v.as_object_mut() {
                object.retain(|k, _| !matches!(k.as_str(), "apiVersion" | "kind"));
            }
            v
        },
    );
    assert_eq!(got, expected);
}

#[test]
fn all_legal_wire_forms_are_decoded() {
    // A list of numbers, packed and unpacked: `Pod.spec(2).securityContext(14).supplementalGroups(4)`.
    let groups = json!({"spec": {"securityContext": {"supplementalGroups": [1, 300]}}});
    check("Pod", &bytes("1207720522030 1ac02".replace(' ', "").as_str()), groups.clone());
    check("Pod", &bytes("12077205200120ac02"), groups);
    // A message in two parts is merged; the last of two strings wins, even if it is empty.
    check("Pod", &bytes("0a030a01610a031a0162"), json!({"metadata": {"name": "a", "namespace": "b"}}));
    check("Pod", &bytes("0a030a01610a020a00"), json!({}));
    // Zero values of pointers are kept, those of plain values are not: terminationGracePeriodSeconds(4), hostNetwork(11).
    check("Pod", &bytes("120420005800"), json!({"spec": {"terminationGracePeriodSeconds": 0}}));
    // Negative numbers have ten bytes; unknown fields of every wire type are skipped, also groups.
    check("Pod", &bytes("120b20ffffffffffffffffff01"), json!({"spec": {"terminationGracePeriodSeconds": -1}}));
    check("Pod", &bytes("a03f01a23f0161a53f00000000a13f0000000000000000a33fa33f0801a43fa43f"), json!({}));
    // An empty message of a pointer is set: emptyDir is volumeSource(2).emptyDir(2) of volumes(1).
    check(
        "Pod",
        &bytes("12090a070a0176120212 00".replace(' ', "").as_str()),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
    );
    // A map entry may omit its key and its value.
    check("ConfigMap", &bytes("12001a030a0161"), json!({"data": {"": ""}, "binaryData": {"a": ""}}));
}

#[test]
fn invalid_message_is_rejected_with_its_field() {
    check("Pod", &bytes("0aff"), json!("unexpected EOF"));
    check("Pod", &bytes("0a020a05"), json!("core/v1.Pod.metadata: unexpected EOF"));
    check("Pod", &bytes("0801"), json!("core/v1.Pod.metadata: wrong wire type"));
    check("Pod", &bytes("0a030a01ff"), json!("meta/v1.ObjectMeta.name: a string is not UTF-8"));
    check("Pod", &bytes("00"), json!("illegal field number"));
    check("Pod", &bytes("ffffffffffffffffffffff"), json!("a number is longer than 64 bits"));
    check("Pod", &bytes("a43f"), json!("wrong wire type"));
    check("Nothing", &[], json!("no kind \"Nothing\" is registered for version \"v1\""));
    assert!(matches!(decode(b"{}"), Err(DecodeError::Magic)));
}

#[test]
fn nesting_is_limited() {
    // Lists of lists, each a RawExtension.
    let mut inner = json!({"apiVersion": "v1", "kind": "List", "items": []});
    for _ in 0..5 {
        inner = json!({"apiVersion": "v1", "kind": "List", "items": [inner]});
    }
    assert_eq!(decode(&encode(&inner).unwrap()).unwrap(), inner);
    let mut deep = encode(&json!({"apiVersion": "v1", "kind": "List", "items": []})).unwrap();
    for _ in 0..200 {
        let (mut raw, mut list, mut meta, mut envelope) = (Vec::new(), Vec::new(), Vec::new(), MAGIC.to_vec());
        wire::put_bytes(&mut raw, 1, &deep);
        wire::put_bytes(&mut list, 2, &raw);
        wire::put_bytes(&mut meta, 2, b"List");
        wire::put_bytes(&mut envelope, 1, &meta);
        wire::put_bytes(&mut envelope, 2, &list);
        deep = envelope;
    }
    assert!(decode(&deep).unwrap_err().to_string().contains("too deep"));
}

#[test]
fn object_that_does_not_match_its_message_is_not_encoded() {
    assert!(encode(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 1}})).is_none());
    assert!(encode(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "Table"})).is_none());
    assert!(encode(&json!([])).is_none());
}

proptest! {
    #[test]
    fn encoded_object_is_decoded_to_the_same_object(index in 0..TABLE.messages.len(), seed: u64) {
        let mut object = Sample::new(seed).message(&TABLE.messages[index], 0);
        let (package, kind) = TABLE.messages[index].name.split_once('.').unwrap();
        let Some(api_version) = sample::api_version(package) else { return Ok(()) };
        // A message that is not a kind can have the name of a kind, or fields `apiVersion` and `kind`.
        let is_kind = TABLE.kind(api_version, kind).is_some_and(|m| m.name == TABLE.messages[index].name);
        if !is_kind || TABLE.messages[index].fields.iter().any(|f| matches!(f.name, "apiVersion" | "kind")) {
            return Ok(());
        }
        object.insert("apiVersion".to_owned(), json!(api_version));
        object.insert("kind".to_owned(), json!(kind));
        let object = Value::Object(object);
        prop_assert_eq!(decode(&encode(&object).unwrap()).unwrap(), object);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut bytes: Vec<u8>, with_magic: bool) {
        if with_magic {
            bytes.splice(0..0, MAGIC);
        }
        let _ = decode(&bytes);
    }

    #[test]
    fn corrupted_object_does_not_panic(seed: u64, corruption in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut: prop::sample::Index) {
        let pod = TABLE.kind("v1", "Pod").unwrap();
        let mut object = Sample::new(seed).message(pod, 0);
        object.insert("apiVersion".to_owned(), json!("v1"));
        object.insert("kind".to_owned(), json!("Pod"));
        let mut bytes = encode(&Value::Object(object)).unwrap();
        for (at, byte) in corruption {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(value) = decode(&bytes) {
            prop_assert!(value.is_object());
        }
        let _ = decode(&bytes[..cut.index(bytes.len())]);
    }
}

#[test]
fn markers_of_messages_and_fields_are_parsed() {
    let message = |name: &str| TABLE.message(name).unwrap();
    let subject = message("flowcontrol/v1.Subject");
    assert_eq!((subject.union_discriminator, subject.has_type_meta, subject.atomic), (Some("kind"), false, false));
    assert!(message("core/v1.ObjectReference").atomic && message("core/v1.PersistentVolumeClaim").has_type_meta);
    let required = |message_name: &str, name: &str| {
        let field = message(message_name).field_named(name).unwrap();
        (field.always_encoded, field.required)
    };
    assert_eq!(required("core/v1.Container", "name"), (true, true));
    assert_eq!(required("core/v1.Container", "image"), (false, false));
    assert_eq!(required("core/v1.ContainerRestartRule", "action"), (false, true));
    assert_eq!(required("meta/v1.LabelSelectorRequirement", "values"), (false, false));
}

#[test]
fn declared_defaults_are_separate_from_merge_markers() {
    let field = |message: &str, name: &str| TABLE.message(message).unwrap().field_named(name).unwrap();
    assert_eq!(field("core/v1.ContainerPort", "protocol").declared_default(), Some(json!("TCP")));
    assert_eq!(field("core/v1.AzureDiskVolumeSource", "readOnly").declared_default(), Some(json!(false)));
    assert_eq!(field("core/v1.Container", "ports").declared_default(), None);
    assert_eq!(field("core/v1.Container", "ports").merge_markers(), "~map:containerPort:protocol&merge:containerPort");
    assert_eq!(field("core/v1.ContainerPort", "protocol").merge_markers(), "");
}
