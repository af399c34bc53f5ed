//! Generates requests for operations, mostly valid ones.

use crate::{
    client::ApiRequest,
    document::{Api, Operation},
    generate::Generator,
    mutate, patch, query,
    rng::SeededRng,
    safety,
    seeds::Seeds,
    values,
};
use flate2::{Compression, write::GzEncoder};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::io::Write;

const ACCEPTS: [&str; 15] = [
    "application/json",
    "*/*",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/cbor",
    "text/html",
    "x",
    "application/json;as=Nothing;v=v1;g=meta.k8s.io",
    ";;;,,,",
    "application/json;q=0.1, application/yaml;q=0.9",
];
const TYPES: [&str; 12] = [
    "application/json",
    "application/json; charset=utf-8",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "text/plain",
    "application/merge-patch+json",
    "application/x-www-form-urlencoded",
    "application/",
    "",
    ";",
    "application/json, application/yaml",
];
/// YAML features that JSON does not have.
const YAML: [&str; 8] = [
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n",
    "a: &a\n  b: *a\n",
    "--- \nkind: A\n---\nkind: B\n",
    "? [a, b]\n: c\n",
    "kind: !!binary YQ==\n",
    "<<: {kind: A}\n",
    "kind: |\n\tA\n",
    "a: .nan\nb: .inf\n1: 2\nnull: 3\n",
];

/// Generates requests for a server.
pub(crate) struct Requests<'a> {
    pub(crate) api: &'a Api,
    pub(crate) seeds: &'a Seeds,
}

impl Requests<'_> {
    /// Returns a request for an operation; `None` for an invalid HTTP request or a harmful one.
    pub(crate) fn of(&self, rng: &mut SeededRng, operation: &Operation) -> Option<ApiRequest> {
        let n = rng.below(values::NAMES.len());
        let namespace = rng.pick(&values::NAMESPACES);
        let mut pairs = query::random_query(rng, &operation.parameters);
        let watches = pairs.iter().any(|(name, _)| name == "watch");
        let mut headers: Vec<(&'static str, Vec<u8>)> = vec![("accept", accept(rng).into())];
        let mut body = Vec::new();
        if operation.method != "GET" || rng.chance(2) {
            let (media, bytes) = self.body(rng, operation, n, namespace);
            headers.push(("content-type", media.into()));
            if rng.chance(2) {
                headers.push(("content-encoding", b"gzip".to_vec()));
                body = packed(&bytes).unwrap_or(bytes);
            } else {
                body = bytes;
            }
        }
        if rng.chance(20) {
            headers.push(("accept-encoding", rng.pick(&["gzip", "deflate", "gzip;q=0", "*"]).into()));
        }
        if safety::is_dry(operation, &body) {
            pairs.retain(|(name, _)| name != "dryRun");
            pairs.push(("dryRun".to_owned(), "All".to_owned()));
        }
        let path = self.path(rng, operation, n, namespace) + &query::text(&pairs);
        let api_request = ApiRequest { method: operation.method, path, headers, body, watches };
        api_request.is_possible().then_some(api_request)
    }

    /// Returns the path with namespace and name.
    fn path(&self, rng: &mut SeededRng, operation: &Operation, n: usize, namespace: &str) -> String {
        let escaped = |text: &str| {
            utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().replace("%2D", "-").replace("%2E", ".")
        };
        let name = if rng.chance(4) { values::odd(rng) } else { self.name(operation, n) };
        let namespace = if rng.chance(2) { values::odd(rng) } else { namespace.to_owned() };
        operation.path.replace("{namespace}", &escaped(&namespace)).replace("{name}", &escaped(&name))
    }

    fn name(&self, operation: &Operation, n: usize) -> String {
        self.seeds.name(&operation.about, n).unwrap_or_else(|| values::NAMES[n].to_owned())
    }

    /// Returns the body and its media type.
    fn body(&self, rng: &mut SeededRng, operation: &Operation, n: usize, namespace: &str) -> (String, Vec<u8>) {
        let mut media = rng.pick(&operation.media);
        if media.is_empty() || media == "*/*" {
            media = "application/json".to_owned();
        }
        if rng.chance(6) {
            media = rng.pick(&TYPES).to_owned();
        }
        let object = self.object(rng, operation, n, namespace);
        let mut value = if operation.method == "PATCH" { patch::random_patch(rng, &media, &object) } else { object };
        if rng.chance(45) {
            let times = 1 + rng.below(3);
            mutate::value(rng, &mut value, times);
        }
        let bytes = match media.as_str() {
            "application/vnd.kubernetes.protobuf" => protobuf(rng, operation),
            "application/yaml" if rng.chance(30) => rng.pick(&YAML).into(),
            _ => mutate::text(rng, &value),
        };
        (media, bytes)
    }

    /// Returns an object for the operation: a valid one, a generated one, or a mix.
    fn object(&self, rng: &mut SeededRng, operation: &Operation, n: usize, namespace: &str) -> Value {
        let Some(schema) = &operation.body else { return json!({}) };
        let patched = json!({});
        let schema = if operation.method == "PATCH" { &patched } else { schema };
        if operation.method == "DELETE" {
            // Options are optional.
            let made = Generator { schemas: &self.api.schemas }.value(rng, schema, "", 1);
            return if rng.chance(70) { json!({}) } else { made };
        }
        let seed = self.seeds.object(&operation.about, n);
        let made = if seed.is_none() || rng.chance(35) {
            Generator { schemas: &self.api.schemas }.value(rng, schema, "", 0)
        } else {
            json!({})
        };
        let mut object = merged(made, seed.unwrap_or(Value::Null));
        object["apiVersion"] = json!(operation.about.0);
        object["kind"] = json!(operation.about.1);
        let metadata = &mut object["metadata"];
        if metadata["generateName"].is_null() || rng.chance(50) {
            metadata["name"] = json!(self.name(operation, n));
        }
        if operation.path.contains("{namespace}") {
            metadata["namespace"] = json!(namespace);
        }
        object
    }
}

/// Merges a valid object over a generated one.
fn merged(mut made: Value, valid: Value) -> Value {
    match (&mut made, valid) {
        (Value::Object(map), Value::Object(valid)) => {
            for (key, value) in valid {
                let under = map.remove(&key).unwrap_or(Value::Null);
                map.insert(key, merged(under, value));
            }
            made
        }
        (_, Value::Null) => {
            if made.is_object() {
                made
            } else {
                json!({})
            }
        }
        (_, valid) => valid,
    }
}

fn accept(rng: &mut SeededRng) -> &'static str {
    if rng.chance(55) { ACCEPTS[0] } else { rng.pick(&ACCEPTS) }
}

fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns a protobuf object: random fields in the envelope `runtime.Unknown`.
fn protobuf(rng: &mut SeededRng, operation: &Operation) -> Vec<u8> {
    let held = [field(1, operation.about.0.as_bytes()), field(2, operation.about.1.as_bytes())].concat();
    let raw = message(rng, 0);
    let envelope = [field(1, &held), field(2, &raw)].concat();
    let mut bytes = if rng.chance(95) { b"k8s\0".to_vec() } else { b"k8s\x01".to_vec() };
    bytes.extend(envelope);
    if rng.chance(10) {
        let at = rng.below(bytes.len());
        bytes.truncate(at);
    }
    bytes
}

fn message(rng: &mut SeededRng, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.below(5) {
        let number = 1 + rng.below(12);
        match rng.below(6) {
            0 => {
                bytes.extend(varint(number << 3));
                bytes.extend(varint(rng.below(usize::MAX)));
            }
            1 => bytes.extend([varint(number << 3 | rng.below(8)), rng.next().to_le_bytes().to_vec()].concat()),
            2 => bytes.extend(field(number, values::word(rng, "name").as_bytes())),
            _ if depth < 8 => {
                let inner = message(rng, depth + 1);
                bytes.extend(field(number, &inner));
            }
            _ => bytes.extend(field(number, b"")),
        }
    }
    bytes
}

/// Encodes a length-delimited field.
fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
    [&varint(number << 3 | 2)[..], &varint(bytes.len())[..], bytes].concat()
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::{Requests, field, merged};
    use crate::{document::Api, rng::SeededRng, seeds::Seeds};
    use serde_json::json;

    #[test]
    fn valid_fields_override_generated_ones() {
        assert_eq!(merged(json!({"a": 1, "b": {"c": 2}}), json!({"b": {"c": 3}})), json!({"a": 1, "b": {"c": 3}}));
        assert_eq!(merged(json!(null), json!(null)), json!({}));
        assert_eq!(field(1, b"v1"), [0x0a, 2, b'v', b'1']);
    }

    #[test]
    fn same_seed_gives_same_requests() {
        let mut api = Api::default();
        api.add(
            &json!({"paths": {"/api/v1/namespaces/{namespace}/pods/{name}": {"patch": {"x-kubernetes-action": "patch",
            "requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}},
            "x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Pod"}}}}}),
        );
        let seeds = Seeds::default();
        let requests = Requests { api: &api, seeds: &seeds };
        let run = |seed| {
            let mut rng = SeededRng::new(seed);
            let sent_requests = (0..100).filter_map(|_| requests.of(&mut rng, &api.operations[0]));
            sent_requests.map(|request| request.curl()).collect::<Vec<_>>()
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
        assert!(run(5).len() > 90);
    }
}
