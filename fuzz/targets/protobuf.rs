//! Kubernetes' protobuf encoding: any bytes for any kind. Nothing panics, and decoded objects survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::hint::black_box;

const KINDS: [(&str, &str); 12] = [
    ("v1", "Pod"),
    ("v1", "PodList"),
    ("v1", "Service"),
    ("v1", "Secret"),
    ("v1", "Event"),
    ("v1", "Status"),
    ("v1", "DeleteOptions"),
    ("apps/v1", "Deployment"),
    ("policy/v1", "PodDisruptionBudget"),
    ("coordination.k8s.io/v1", "Lease"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("resource.k8s.io/v1", "ResourceSlice"),
];

/// Wraps a message of a kind in its envelope.
fn envelope(which: u8, raw: &[u8]) -> Vec<u8> {
    let (api_version, kind) = KINDS[usize::from(which) % KINDS.len()];
    let held = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &held), field(2, raw)].concat()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [out, bytes.to_vec()].concat()
}

fuzz_target!(|data: &[u8]| {
    black_box(server::fuzzing::decode(data));
    let Some((which, raw)) = data.split_first() else { return };
    let Some(object) = server::fuzzing::decode(&envelope(*which, raw)) else { return };
    let written = server::fuzzing::encode(&object).expect("a decoded object can be encoded");
    assert_eq!(server::fuzzing::decode(&written), Some(object));
});
