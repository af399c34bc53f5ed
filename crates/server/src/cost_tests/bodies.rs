//! Patches, applied configurations and YAML.

use super::{CostRequest, Requests, list};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/c";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn on_map(metadata: &str, content_type: &'static str, patch: String) -> Vec<CostRequest> {
    let object = format!(r#"{{"metadata": {{"name": "c"{metadata}}}}}"#);
    vec![CostRequest::post(MAPS, object), CostRequest::new("PATCH", MAP, content_type, patch)]
}

/// Returns finalizers, which are merged as a set, of a total length.
fn finalizers(length: usize) -> String {
    list(length, |i| format!(r#""a/f{i}""#))
}

pub(super) const PATCHES: &[(&str, u16, Requests)] = &[
    ("insertions at the front of an array", 422, |length| {
        let array = list(length / 2, |_| "0".to_owned());
        let front = list(length / 2, |_| r#"{"op":"add","path":"/x/0","value":0}"#.to_owned());
        on_map("", JSON, format!(r#"[{{"op":"add","path":"/x","value":[{array}]}},{front}]"#))
    }),
    ("copies of a large value", 422, |length| {
        let array = list(length / 2, |_| "0".to_owned());
        let copies = list(length / 2, |i| format!(r#"{{"op":"copy","from":"/x","path":"/y{i}"}}"#));
        on_map("", JSON, format!(r#"[{{"op":"add","path":"/x","value":[{array}]}},{copies}]"#))
    }),
    ("moves within an array", 422, |length| {
        let array = list(length / 2, |_| "0".to_owned());
        let moves = list(length / 2, |_| r#"{"op":"move","from":"/x/0","path":"/x/-"}"#.to_owned());
        on_map("", JSON, format!(r#"[{{"op":"add","path":"/x","value":[{array}]}},{moves}]"#))
    }),
    ("a merge patch of many keys", 200, |length| {
        on_map("", MERGE, format!(r#"{{"data":{{{}}}}}"#, list(length, |i| format!(r#""k{i}":"""#))))
    }),
    ("deletions from a primitive list", 200, |length| {
        let all = finalizers(length / 2);
        on_map(
            "",
            STRATEGIC,
            format!(r#"{{"metadata":{{"finalizers":[{all}],"$deleteFromPrimitiveList/finalizers":[{all}]}}}}"#),
        )
    }),
    ("the order of a primitive list", 200, |length| {
        let all = finalizers(length / 2);
        on_map(
            "",
            STRATEGIC,
            format!(r#"{{"metadata":{{"finalizers":[{all}],"$setElementOrder/finalizers":[{all}]}}}}"#),
        )
    }),
    ("deletions of items by their key", 200, |length| {
        let owner = |i: usize| format!(r#""apiVersion":"v1","kind":"A","name":"a","uid":"{i}""#);
        let owners = list(length / 4, |i| format!("{{{}}}", owner(i)));
        let deleted = list(length / 4, |i| format!(r#"{{{},"$patch":"delete"}}"#, owner(i)));
        on_map(
            &format!(r#","ownerReferences":[{owners}]"#),
            STRATEGIC,
            format!(r#"{{"metadata":{{"ownerReferences":[{deleted}]}}}}"#),
        )
    }),
    ("an item that is merged many times", 200, |length| {
        let item = |i: usize| format!(r#"{{"uid":"u","x{i}":1}}"#);
        on_map(
            r#","ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"u"}]"#,
            STRATEGIC,
            format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, list(length, item)),
        )
    }),
    ("keys to retain", 422, |length| {
        let keys = list(length / 2, |i| format!(r#""k{i}""#));
        let data = list(length / 2, |i| format!(r#""k{i}":1"#));
        on_map("", STRATEGIC, format!(r#"{{"data":{{"$retainKeys":[{keys}],{data}}}}}"#))
    }),
];

fn apply(path: &str, body: String) -> CostRequest {
    CostRequest::new("PATCH", &format!("{path}?fieldManager=m&force=true"), APPLY, body)
}

fn map_of(metadata: &str, data: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c"{metadata}}},"data":{{{data}}}}}"#)
}

pub(super) const APPLIED: &[(&str, u16, Requests)] = &[
    ("many keys", 201, |length| vec![apply(MAP, map_of("", &list(length, |i| format!(r#""k{i}":"""#))))]),
    ("replaced keys", 200, |length| {
        let keys = |prefix: &str| list(length, |i| format!(r#""{prefix}{i}":"""#));
        vec![apply(MAP, map_of("", &keys("a"))), apply(MAP, map_of("", &keys("b")))]
    }),
    ("conflicts", 409, |length| {
        let map = |value: usize| map_of("", &list(length, |i| format!(r#""k{i}":"{value}""#)));
        vec![apply(MAP, map(1)), CostRequest::new("PATCH", &format!("{MAP}?fieldManager=other"), APPLY, map(2))]
    }),
    ("duplicate items of a set", 400, |length| {
        let same = list(length, |_| r#""a/b""#.to_owned());
        vec![apply(MAP, map_of(&format!(r#","finalizers":[{same}]"#), ""))]
    }),
    ("a set in another order", 200, |length| {
        let set = |text: String| map_of(&format!(r#","finalizers":[{text}]"#), "");
        let back = list(length, |i| format!(r#""a/f{:08}""#, 99_999_999 - i));
        vec![apply(MAP, set(list(length, |i| format!(r#""a/f{i:08}""#)))), apply(MAP, set(back))]
    }),
];

const AS_YAML: &str = "application/yaml";

pub(super) const YAML: &[(&str, u16, Requests)] = &[
    ("aliases of aliases", 400, |length| {
        let mut text = "metadata: {name: c}\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..30 {
            let before = i - 1;
            text += &format!("a{i}: &a{i} [{}]\n", list(35, |_| format!("*a{before}")));
        }
        text += &format!("data: {{{}}}\n", list(length / 2, |i| format!("k{i}: v")));
        vec![CostRequest::new("POST", MAPS, AS_YAML, text)]
    }),
    ("many aliases of one large value", 400, |length| {
        let large = list(length / 2, |_| "x".to_owned());
        let text = format!("metadata: {{name: c}}\na: &a [{large}]\nb: [{}]\n", list(length / 2, |_| "*a".to_owned()));
        vec![CostRequest::new("POST", MAPS, AS_YAML, text)]
    }),
    ("duplicate keys", 201, |length| {
        let text = format!("metadata: {{name: c}}\ndata: {{{}}}\n", list(length, |i| format!("k{}: v", i / 2)));
        vec![CostRequest::new("POST", MAPS, AS_YAML, text)]
    }),
    ("many keys", 201, |length| {
        let text = format!("metadata: {{name: c}}\ndata: {{{}}}\n", list(length, |i| format!("k{i}: v")));
        vec![CostRequest::new("POST", MAPS, AS_YAML, text)]
    }),
    ("brackets", 400, |length| vec![CostRequest::new("POST", MAPS, AS_YAML, "[".repeat(length))]),
];
