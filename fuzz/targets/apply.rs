//! Server-side apply on served types: a live object and a configuration, separated by a zero byte.
//!
//! Nothing panics, the result is of its type, and applying it again changes nothing.
#![no_main]

use apply::{ApplyError, Converter, Duplicates, Filter, ManagedFields, Request, TypeRef, validate};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const KINDS: [(&str, &str); 4] = [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "ConfigMap")];

struct Kind(&'static str, &'static str);

impl Converter for Kind {
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>> {
        (api_version == self.0).then(|| server::fuzzing::type_of(self.0, self.1)).flatten()
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        (from == to && from == self.0).then(|| object.clone())
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let Some(at) = data.iter().position(|b| *b == 0) else { return };
    let parsed = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(live), Some(config)) = (parsed(&data[..at]), parsed(&data[at + 1..])) else { return };
    let (api_version, kind) = KINDS[usize::from(*which) % KINDS.len()];
    let kind = Kind(api_version, kind);
    let Some(root) = kind.root(api_version) else { return };
    let filter = Filter::default();
    let request = Request {
        versions: &kind,
        api_version,
        subresource: "",
        manager: "fuzz",
        time: "2026-01-01T00:00:00Z",
        filter: &filter,
    };
    // A stored object is of its type and has its apiVersion.
    let live = Some(live)
        .filter(|live| live["apiVersion"] == api_version && validate(root, live, Duplicates::Allowed).is_ok());
    let managers = match &live {
        Some(live) => apply::update(&Request { manager: "other", ..request }, None, live, ManagedFields::default()),
        None => ManagedFields::default(),
    };
    let once = match apply::apply(&request, live.as_ref(), config.clone(), managers, true) {
        Ok(once) => once,
        Err(ApplyError::Conflicts(_)) => panic!("a forced apply must not conflict"),
        Err(_) => return,
    };
    assert!(validate(root, &once.object, Duplicates::Allowed).is_ok(), "{}", once.object);
    let twice = apply::apply(&request, Some(&once.object), config, once.managers.clone(), false);
    assert_eq!(twice, Ok(once));
});
