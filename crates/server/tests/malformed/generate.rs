//! Generator of malformed requests from a seed.

use super::samples::{ACCEPTS, CONTENT_TYPES, KEYS, METHODS, SEGMENTS, VALUES, samples};
use serde_json::{Map, Value, json};

/// A request that is possibly not valid HTTP.
#[derive(Debug, Clone)]
pub(crate) struct MalformedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct RequestGenerator(u64);

pub(crate) const NS: &str = "/api/v1/namespaces/default";

impl RequestGenerator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns a value that is invalid for most fields.
    fn odd_value(&mut self) -> Value {
        match self.below(18) {
            0 => Value::Null,
            1 => json!(-1),
            2 => json!(u64::MAX),
            3 => json!(i64::MIN),
            4 => json!(1e308),
            5 => json!(0.5),
            6 => json!(""),
            7 => json!("\0"),
            8 => json!("\u{202e}\u{1f980}/.."),
            9 => json!([]),
            10 => json!({}),
            11 => json!(true),
            12 => json!([[[[]]]]),
            13 => json!({"": {"": null}}),
            14 => json!("x".repeat(self.below(70_000))),
            15 => json!({"$patch": "delete"}),
            16 => (0..self.below(100)).fold(json!(1), |inner, _| json!({"a": inner})),
            _ => json!(vec![json!({"name": "c"}); self.below(300)]),
        }
    }

    /// Returns each field of each sample with values of wrong types.
    pub(crate) fn wrong_types(&mut self) -> Vec<MalformedRequest> {
        let odd = [
            json!(null),
            json!(-7),
            json!(u64::MAX),
            json!(1.5),
            json!("\0 /"),
            json!([null]),
            json!({"a": {}}),
            json!(true),
        ];
        let mut all = Vec::new();
        for (path, sample) in samples() {
            for pointer in pointers(&sample) {
                for value in &odd {
                    let mut body = sample.clone();
                    *body.pointer_mut(&pointer).unwrap() = value.clone();
                    all.push(request("POST", &path, "application/json", body.to_string().into_bytes()));
                }
            }
        }
        all
    }

    pub(crate) fn any_request(&mut self) -> MalformedRequest {
        match self.below(13) {
            0 | 1 => self.mangled_body(),
            2 | 3 => self.mangled_tree(),
            4 | 5 => self.path(),
            6 | 7 => self.query(),
            8 | 9 => self.patch(),
            10 => self.yaml(),
            11 => self.protobuf(),
            _ => self.odd_headers_and_sizes(),
        }
    }

    /// Returns a valid body that is truncated or has changed bytes.
    fn mangled_body(&mut self) -> MalformedRequest {
        let (path, sample) = self.sample();
        let mut body = sample.to_string().into_bytes();
        match self.below(3) {
            0 => body.truncate(self.below(body.len())),
            1 => {
                for _ in 0..=self.below(8) {
                    let at = self.below(body.len());
                    body[at] = self.next().to_le_bytes()[0];
                }
            }
            _ => {
                let at = self.below(body.len());
                let insert = self
                    .pick(&["{", "[", "\"", "\\u12", "]]", ",", "\u{0}", "1e9999", "null", "{\"a\":"])
                    .repeat(1 + self.below(400));
                body.splice(at..at, insert.into_bytes());
            }
        }
        let method = if self.below(4) == 0 { "PUT" } else { "POST" };
        let path = if method == "PUT" { format!("{NS}/pods/p") } else { path };
        request(method, &path, "application/json", body)
    }

    /// Returns a valid body with random values in random fields.
    fn mangled_tree(&mut self) -> MalformedRequest {
        let (path, mut sample) = self.sample();
        for _ in 0..=self.below(4) {
            let all = pointers(&sample);
            let Some(pointer) = all.get(self.below(all.len())) else { break };
            let value = self.odd_value();
            *sample.pointer_mut(pointer).unwrap() = value;
        }
        request("POST", &path, "application/json", sample.to_string().into_bytes())
    }

    fn path(&mut self) -> MalformedRequest {
        let mut target = String::new();
        for _ in 0..self.below(9) {
            target.push('/');
            match self.below(6) {
                0 => target.push_str(&"x".repeat(self.below(3000))),
                _ => target.push_str(self.pick(&SEGMENTS)),
            }
        }
        if self.below(3) == 0 {
            target = format!("{NS}/pods/{}{target}", self.pick(&SEGMENTS));
        }
        if self.below(8) == 0 {
            target = self.pick(&["*", "", "//", "http://[::1]/api", "/api/v1/namespaces//pods", "/?", "/#"]).to_owned();
        }
        let method = self.pick(&METHODS).to_owned();
        let body = if self.below(2) == 0 { Vec::new() } else { self.odd_value().to_string().into_bytes() };
        MalformedRequest { method, target, headers: Vec::new(), body }
    }

    fn query(&mut self) -> MalformedRequest {
        let base = self.pick(&[
            "/api/v1/pods",
            "/api/v1/namespaces/default/pods",
            "/api/v1/namespaces/default/configmaps",
            "/api/v1/namespaces/default/configmaps/a",
            "/apis/events.k8s.io/v1/events",
            "/api/v1/namespaces",
        ]);
        let mut target = format!("{base}?");
        for _ in 0..=self.below(4) {
            let (key, value) = (self.pick(&KEYS), self.pick(&VALUES));
            target.push_str(&format!("{key}={value}&"));
        }
        let method = self.pick(&["GET", "GET", "GET", "DELETE", "PATCH", "POST"]);
        let mut send_request = request(method, &target, "application/merge-patch+json", b"{}".to_vec());
        if self.below(4) == 0 {
            send_request.headers.push(("accept", self.pick(&ACCEPTS).to_owned()));
        }
        send_request
    }

    fn patch(&mut self) -> MalformedRequest {
        let kind = self.pick(&["json-patch", "merge-patch", "strategic-merge-patch"]);
        let body = if kind == "json-patch" { self.json_patch() } else { self.merge_patch(0) };
        let path = self.pick(&["pods/p", "pods/p/status", "configmaps/a", "configmaps/none"]);
        request("PATCH", &format!("{NS}/{path}"), &format!("application/{kind}+json"), body.to_string().into_bytes())
    }

    fn json_patch(&mut self) -> Value {
        let paths = [
            "",
            "/",
            "/metadata",
            "/metadata/name",
            "/spec/containers/0",
            "/spec/containers/-",
            "/spec/containers/99",
            "/data",
            "/~2",
            "~",
            "/kind",
        ];
        (0..self.below(6))
            .map(|_| {
                let op = self.pick(&["add", "remove", "replace", "move", "copy", "test", "leap", ""]);
                json!({"op": op, "path": self.pick(&paths), "from": self.pick(&paths), "value": self.odd_value()})
            })
            .collect()
    }

    fn merge_patch(&mut self, depth: usize) -> Value {
        let keys = [
            "metadata",
            "spec",
            "status",
            "containers",
            "finalizers",
            "labels",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$setElementOrder/",
            "$deleteFromPrimitiveList/finalizers",
            "$deleteFromPrimitiveList/containers",
            "data",
            "name",
            "kind",
            "",
        ];
        let mut map = Map::new();
        for _ in 0..self.below(5) {
            let value = match self.below(4) {
                0 if depth < 5 => self.merge_patch(depth + 1),
                1 if depth < 5 => json!([self.merge_patch(depth + 1)]),
                2 => json!(self.pick(&["replace", "delete", "merge", "odd"])),
                _ => self.odd_value(),
            };
            map.insert(self.pick(&keys).to_owned(), value);
        }
        Value::Object(map)
    }

    fn yaml(&mut self) -> MalformedRequest {
        let laughs = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
            let before = format!("*a{}", i - 1);
            text + &format!("a{i}: &a{i} [{}]\n", vec![before; 9].join(","))
        });
        let deep = "[".repeat(self.below(5000));
        let indents: String = (0..self.below(500)).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        let all = [
            laughs.as_str(),
            &deep,
            &indents,
            "a: *nowhere",
            "\t- x",
            "--- a\n--- b\n",
            "!!binary x",
            "? [a]: b",
            "<<: *x",
            "&a [*a]",
            "metadata: {name: x}\ndata: {a: 1}",
            "metadata: {name: x}\ndata: &d {a: *d}",
            "%YAML 9.9\n---\na: b",
            "a: !!python/object x",
            "-",
            "\u{feff}",
            "a: .inf",
        ];
        let body = self.pick(&all).to_owned().into_bytes();
        request("POST", &format!("{NS}/configmaps"), "application/yaml", body)
    }

    /// Returns bytes that start like Kubernetes' protobuf encoding.
    fn protobuf(&mut self) -> MalformedRequest {
        let (path, _) = self.sample();
        let mut body = b"k8s\0".to_vec();
        // An envelope: the TypeMeta (1) with version and kind, then the object (2) of any length and content.
        body.extend([10, 9, 10, 2, b'v', b'1', 18, 3, b'P', b'o', b'd', 18]);
        for _ in 0..self.below(200) {
            let random = self.next().to_le_bytes()[0];
            let likely = self.pick(&[10, 18, 26, 34, 8, 16, 255, 128, 0, 1]);
            body.push(if self.below(2) == 0 { random } else { likely });
        }
        if self.below(4) == 0 {
            body.drain(..self.below(8));
        }
        let method = self.pick(&["POST", "PUT", "DELETE", "PATCH"]);
        request(method, &path, "application/vnd.kubernetes.protobuf", body)
    }

    fn odd_headers_and_sizes(&mut self) -> MalformedRequest {
        let (path, sample) = self.sample();
        let mut send_request = request("POST", &path, self.pick(&CONTENT_TYPES), sample.to_string().into_bytes());
        match self.below(40) {
            0 => send_request.body = vec![b' '; (3 << 20) + 1],
            1 => {
                send_request.body =
                    format!("{{\"metadata\": {{\"name\": \"x\"}}, \"data\": {{\"a\": \"{}\"}}}}", "x".repeat(3 << 20))
                        .into_bytes();
            }
            2 => send_request.body = vec![b'['; 1 << 20],
            3 => send_request.body = format!("[{}0]", "0,".repeat(1 << 19)).into_bytes(),
            n if n < 15 => send_request.headers.push(("accept", self.pick(&ACCEPTS).to_owned())),
            _ => {}
        }
        send_request
    }

    fn sample(&mut self) -> (String, Value) {
        let all = samples();
        all[self.below(all.len())].clone()
    }
}

fn request(method: &str, target: &str, content_type: &str, body: Vec<u8>) -> MalformedRequest {
    MalformedRequest {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: vec![("content-type", content_type.to_owned())],
        body,
    }
}

/// Returns the pointers of all nested values.
fn pointers(value: &Value) -> Vec<String> {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => return Vec::new(),
    };
    let mut all = Vec::new();
    for (key, v) in inner {
        all.push(format!("/{key}"));
        all.extend(pointers(v).into_iter().map(|p| format!("/{key}{p}")));
    }
    all
}
