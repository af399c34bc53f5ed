//! Validation errors in kubectl: unknown fields, invalid objects, missing objects and kinds.

use super::shell;
use serde_json::{Value, json};
use tests::{Cluster, e2e_test};

fn pod(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

#[e2e_test("unknown fields are refused, warned about or dropped by --validate")]
fn unknown_fields_follow_validate_flag(cluster: &Cluster) {
    let shell = shell(cluster);
    // The scheduling gate prevents it from running.
    let spec = json!({"nothing": 1, "automountServiceAccountToken": false, "schedulingGates": [{"name": "example.com/gate"}],
        "containers": [{"name": "c", "image": "x", "comand": ["sh"]}]});
    shell.file("pod.json", pod("p", &spec));
    let strict = "Error from server (BadRequest): error when creating \"pod.json\": Pod in version \"v1\" cannot be handled as a Pod: \
                  strict decoding error: unknown field \"spec.containers[0].comand\", unknown field \"spec.nothing\"";
    shell.check(&[
        ("kubectl create -f pod.json", 1, strict),
        ("kubectl apply -f pod.json --validate=true", 1, strict),
        ("kubectl create -f pod.json --validate=strict --dry-run=server", 1, strict),
        (
            "kubectl create -f pod.json --validate=warn",
            0,
            "pod/p created Warning: unknown field \"spec.containers[0].comand\" Warning: unknown field \"spec.nothing\"",
        ),
        ("kubectl get pod p -o 'jsonpath=[{.spec.nothing}]'", 0, "[]"),
        ("kubectl replace -f pod.json --validate=ignore", 0, "pod/p replaced"),
        (
            "kubectl replace -f pod.json",
            1,
            "Error from server (BadRequest): error when replacing \"pod.json\": Pod in version \"v1\" cannot be handled as a Pod: \
             strict decoding error: unknown field ...",
        ),
        (r#"kubectl patch pod p --type=merge -p '{"spec": {"nothing": 1}}'"#, 0, "pod/p patched (no change) Warning: unknown field \"spec.nothing\""),
        ("kubectl delete pod p", 0, "pod \"p\" deleted..."),
        ("kubectl apply -f pod.json --validate=false", 0, "pod/p created"),
        ("kubectl apply -f pod.json", 1, "The request is invalid: patch: Invalid value: \"...\": strict decoding error: unknown field ..."),
    ]);
}

/// kubectl drops duplicate fields, so the body is sent raw.
#[e2e_test("duplicate fields are refused, warned about or dropped by --validate")]
fn duplicate_fields_follow_validate_flag(cluster: &Cluster) {
    let shell = shell(cluster);
    let namespace = shell.kubectl().namespace();
    shell.file(
        "secret.json",
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"a/b","type":"c/d"}"#,
    );
    let raw = |validation: &str| {
        format!(
            "kubectl create --raw '/api/v1/namespaces/{namespace}/secrets?fieldValidation={validation}' -f secret.json"
        )
    };
    shell.check(&[
        (
            &raw("Strict"),
            1,
            "Error from server (BadRequest): Secret in version \"v1\" cannot be handled as a Secret: strict decoding error: duplicate field \"type\"",
        ),
        (&raw("Sometimes"), 1, "...fieldValidation: Unsupported value: \"Sometimes\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
        (&raw("Warn"), 0, "{...} Warning: duplicate field \"type\""),
        ("kubectl get secret s -o jsonpath={.type}", 0, "c/d"),
        ("kubectl delete secret s", 0, "secret \"s\" deleted..."),
        (&raw("Ignore"), 0, "{...}"),
    ]);
}

/// Returns the spec of a Pod with one container of these fields. A name and an image are added if they are missing.
fn one_container(mut fields: Value) -> Value {
    let map = fields.as_object_mut().unwrap();
    for (key, value) in [("name", "c"), ("image", "x")] {
        map.entry(key).or_insert(json!(value));
    }
    json!({"containers": [fields]})
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

/// Returns specs with an invalid container, and the error about each.
fn invalid_containers() -> Vec<(Value, &'static str)> {
    vec![
        (json!({}), "spec.containers: Required value"),
        (one_container(json!({"name": ""})), "spec.containers[0].name: Required value"),
        (
            one_container(json!({"name": "C!"})),
            "spec.containers[0].name: Invalid value: \"C!\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        (one_container(json!({"image": ""})), "spec.containers[0].image: Required value"),
        (
            one_container(json!({"image": " x"})),
            "spec.containers[0].image: Invalid value: \" x\": must not have leading or trailing whitespace",
        ),
        (
            one_container(json!({"imagePullPolicy": "Maybe"})),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (one_container(json!({"env": [{"name": ""}]})), "spec.containers[0].env[0].name: Required value"),
        (
            one_container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            one_container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            one_container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            one_container(json!({"terminationMessagePolicy": "Shout"})),
            "spec.containers[0].terminationMessagePolicy: Unsupported value: \"Shout\": supported values: \"File\", \"FallbackToLogsOnError\"",
        ),
        (
            json!({"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
    ]
}

/// Returns specs with an invalid field, and the error about each.
fn invalid_specs() -> Vec<(Value, &'static str)> {
    vec![
        (
            with(one_container(json!({})), "restartPolicy", json!("Sometimes")),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
        (
            with(
                one_container(json!({})),
                "volumes",
                json!([{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]),
            ),
            "spec.volumes[1].name: Duplicate value: \"v\"",
        ),
        (
            with(
                one_container(json!({})),
                "volumes",
                json!([{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]),
            ),
            "spec.volumes[0]...: Forbidden: may not specify more than 1 volume type",
        ),
        (
            with(one_container(json!({})), "activeDeadlineSeconds", json!(0)),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            with(one_container(json!({})), "nodeSelector", json!({"a b": "c"})),
            "spec.nodeSelector: Invalid value: \"a b\": name part must consist of alphanumeric characters...",
        ),
        (
            with(one_container(json!({})), "tolerations", json!([{"key": "a", "operator": "Exists", "value": "v"}])),
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
        ),
        (
            with(one_container(json!({"imagePullPolicy": "Maybe"})), "restartPolicy", json!("Sometimes")),
            "* spec.containers[0].imagePullPolicy: Unsupported value: ... * spec.restartPolicy: Unsupported value: ...",
        ),
    ]
}

#[e2e_test("an invalid Pod is refused with every invalid field")]
fn invalid_pod_is_refused_with_every_invalid_field(cluster: &Cluster) {
    let shell = shell(cluster);
    let mut lines = Vec::new();
    for (i, (spec, expected)) in invalid_containers().into_iter().chain(invalid_specs()).enumerate() {
        shell.file(&format!("{i}.json"), pod("p", &spec));
        lines.push((format!("kubectl apply -f {i}.json"), format!("The Pod \"p\" is invalid: {expected}")));
    }
    let lines: Vec<_> = lines.iter().map(|(line, expected)| (line.as_str(), 1, expected.as_str())).collect();
    shell.check(&lines);
    shell.check(&[("kubectl get pods", 0, "No resources found in test-... namespace.")]);
}

#[e2e_test("invalid names and kinds are refused with upstream's texts")]
fn invalid_names_and_kinds_are_refused(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("name.json", pod("BAD", &json!({"containers": [{"name": "c", "image": "x"}]})));
    shell.file(
        "nowhere.json",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "nowhere"}}).to_string(),
    );
    shell.file("type.json", pod("p", &json!({"containers": [{"name": "c", "image": "x", "command": "sh"}]})));
    shell.file(
        "quantity.json",
        pod("p", &json!({"containers": [{"name": "c", "image": "x", "resources": {"limits": {"cpu": "lots"}}}]})),
    );
    shell.check(&[
        (
            "kubectl apply -f name.json",
            1,
            "The Pod \"BAD\" is invalid: metadata.name: Invalid value: \"BAD\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
             validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        ),
        (
            "kubectl create ns Bad_Name",
            1,
            "The Namespace \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 label must consist of ...",
        ),
        ("kubectl create ns default", 1, "Error from server (AlreadyExists): namespaces \"default\" already exists"),
        (
            "kubectl apply -f nowhere.json --namespace=nowhere",
            1,
            "Error from server (NotFound): error when creating \"nowhere.json\": namespaces \"nowhere\" not found",
        ),
        (
            "kubectl apply -f nowhere.json",
            1,
            "error: the namespace from the provided object \"nowhere\" does not match the namespace \"test-...\". You must pass '--namespace=nowhere' to perform this operation.",
        ),
        (
            "kubectl apply -f type.json",
            1,
            "Error from server (BadRequest): error when creating \"type.json\": Pod in version \"v1\" cannot be handled as a Pod: ...command...",
        ),
        (
            "kubectl apply -f quantity.json",
            1,
            "Error from server (BadRequest): error when creating \"quantity.json\": Pod in version \"v1\" cannot be handled as a Pod: \
             ...quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ]);
}

#[e2e_test("a body that is no object is refused by the client or the server")]
fn body_that_is_no_object_is_refused(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file("kind.yaml", "apiVersion: v1\nkind: Nothing\nmetadata: {name: thing}\n");
    shell.file("group.yaml", "apiVersion: example.com/v1\nkind: Nothing\nmetadata: {name: thing}\n");
    shell.file("untyped.yaml", "a: b\n");
    shell.file("broken.yaml", "{");
    shell.check(&[
        (
            "kubectl apply -f kind.yaml",
            1,
            "error: resource mapping not found for name: \"thing\" namespace: \"\" from \"kind.yaml\": no matches for kind \"Nothing\" in version \"v1\" ensure CRDs are installed first",
        ),
        (
            "kubectl apply -f group.yaml",
            1,
            "error: resource mapping not found for name: \"thing\" namespace: \"\" from \"group.yaml\": no matches for kind \"Nothing\" in version \"example.com/v1\" ensure CRDs are installed first",
        ),
        (
            "kubectl apply -f untyped.yaml",
            1,
            "error: error validating \"untyped.yaml\": error validating data: [apiVersion not set, kind not set]; if you choose to ignore these errors, turn validation off with --validate=false",
        ),
        ("kubectl apply -f broken.yaml", 1, "error: ...error...broken.yaml..."),
    ]);
}
