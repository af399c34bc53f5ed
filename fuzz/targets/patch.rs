//! Patches of all types: an object and a patch, separated by a zero byte. Nothing panics, and merge patches are idempotent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use std::hint::black_box;

const MERGE: &str = "application/merge-patch+json";

fuzz_target!(|data: &[u8]| {
    let Some(at) = data.iter().position(|b| *b == 0) else { return };
    let (object, patch) = (&data[..at], &data[at + 1..]);
    let Ok(object) = serde_json::from_slice::<Value>(object) else { return };
    for media in ["application/json-patch+json", "application/strategic-merge-patch+json"] {
        black_box(server::fuzzing::patch(media, &object, patch));
    }
    if let Some(once) = server::fuzzing::patch(MERGE, &object, patch) {
        assert_eq!(server::fuzzing::patch(MERGE, &once, patch), Some(once));
    }
});
