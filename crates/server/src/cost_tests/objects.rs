//! Objects of kinds other than Pods.

use super::{CostRequest, Requests, list};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const DEFINED: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn map(metadata: &str, rest: &str) -> CostRequest {
    CostRequest::post(MAPS, format!(r#"{{"metadata":{{"name":"c"{metadata}}}{rest}}}"#))
}

fn managed(fields: &str) -> String {
    format!(
        r#"{{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:x":{{{fields}}}}}}}"#
    )
}

/// Returns an update with `managedFields`.
fn with_managers(entries: &str) -> Vec<CostRequest> {
    let body = format!(r#"{{"metadata":{{"name":"c","managedFields":[{entries}]}},"data":{{"a":"b"}}}}"#);
    vec![map("", ""), CostRequest::new("PUT", &format!("{MAPS}/c"), "application/json", body)]
}

pub(super) const METADATA: &[(&str, u16, Requests)] = &[
    ("unknown fields", 201, |length| vec![map("", &format!(",{}", list(length, |i| format!(r#""x{i}":1"#))))]),
    ("duplicate unknown fields", 201, |length| {
        vec![map("", &format!(",{}", list(length, |i| format!(r#""x{}":1"#, i / 2))))]
    }),
    ("unknown fields below a long name", 400, |length| {
        let (name, fields) = ("x".repeat(length / 2), list(length / 2, |i| format!(r#""x{}":1"#, i / 2)));
        vec![map("", &format!(r#","{name}":{{{fields}}}"#))]
    }),
    ("a duplicate key", 201, |length| {
        vec![map("", &format!(r#","data":{{{}}}"#, list(length, |_| r#""k":"""#.to_owned())))]
    }),
    ("invalid keys", 422, |length| {
        vec![map("", &format!(r#","data":{{{}}}"#, list(length, |i| format!(r#""!{i}":"""#))))]
    }),
    ("finalizers without a domain", 422, |length| {
        vec![map(&format!(r#","finalizers":[{}]"#, list(length, |i| format!(r#""f{i}""#))), "")]
    }),
    ("finalizers of a kind that only returns warnings", 201, |length| {
        let finalizers = list(length, |i| format!(r#""f{i}""#));
        let body = format!(r#"{{"metadata":{{"name":"l","finalizers":[{finalizers}]}}}}"#);
        vec![CostRequest::post("/apis/coordination.k8s.io/v1/namespaces/default/leases", body)]
    }),
    ("several controller owners", 422, |length| {
        let owner = |i| format!(r#"{{"apiVersion":"v1","kind":"A","name":"a{i}","uid":"{i}","controller":true}}"#);
        vec![map(&format!(r#","ownerReferences":[{}]"#, list(length, owner)), "")]
    }),
    ("duplicate owners", 201, |length| {
        let owner = |i| format!(r#"{{"apiVersion":"v1","kind":"A","name":"a","uid":"{}"}}"#, i / 2);
        vec![map(&format!(r#","ownerReferences":[{}]"#, list(length, owner)), "")]
    }),
    ("invalid labels", 422, |length| {
        vec![map(&format!(r#","labels":{{{}}}"#, list(length, |i| format!(r#""!{i}":"!""#))), "")]
    }),
    ("managers of an object", 200, |length| {
        let entry = |i| {
            format!(
                r#"{{"manager":"m{i}","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{"f:x{i}":{{}}}}}}}}"#
            )
        };
        with_managers(&list(length, entry))
    }),
    ("a field set of numbers", 200, |length| with_managers(&managed(&list(length, |i| format!(r#""v:{i}":{{}}"#))))),
    ("a field set of a number in many notations", 200, |length| {
        let number = |i: usize| {
            format!(
                r#""v:1{}.0":{{"f:a{i}":{{}}}}"#,
                if i == 0 { String::new() } else { format!(".{}", "0".repeat(i % 300 + 1)) }
            )
        };
        let number = move |i: usize| number(i).replace(".0\"", "\"").replacen("v:1.", "v:1.0", 1);
        with_managers(&managed(&list(length, number)))
    }),
];

fn service(ports: &str, rest: &str) -> Vec<CostRequest> {
    vec![CostRequest::post(SERVICES, format!(r#"{{"metadata":{{"name":"s"}},"spec":{{"ports":[{ports}]{rest}}}}}"#))]
}

pub(super) const OBJECTS: &[(&str, u16, Requests)] = &[
    ("the ports of a Service", 422, |length| {
        service(&list(length, |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_000 + 1)), "")
    }),
    ("the families of a Service", 422, |length| {
        let families = list(length, |_| r#""IPv4""#.to_owned());
        service(r#"{"port":1}"#, &format!(r#","ipFamilies":[{families}]"#))
    }),
    ("endpoints in a table", 201, |length| {
        let addresses = list(length / 2, |i| format!(r#"{{"ip":"10.0.{}.{}"}}"#, i / 200 % 200, i % 200));
        let ports = list(length / 2, |i| format!(r#"{{"name":"p{i}","port":{}}}"#, i % 65_000 + 1));
        let body =
            format!(r#"{{"metadata":{{"name":"e"}},"subsets":[{{"addresses":[{addresses}],"ports":[{ports}]}}]}}"#);
        vec![CostRequest { accept: TABLE, ..CostRequest::post(ENDPOINTS, body) }]
    }),
    ("the networks of a Node", 422, |length| {
        let networks = list(length, |i| format!(r#""10.{}.{}.0/24""#, i / 200 % 200, i % 200));
        let body = format!(r#"{{"metadata":{{"name":"n"}},"spec":{{"podCIDRs":[{networks}]}}}}"#);
        vec![CostRequest::post("/api/v1/nodes", body)]
    }),
    ("the tolerations of a RuntimeClass", 201, |length| {
        let all = list(length, |i| format!(r#"{{"key":"k{i}","operator":"Exists"}}"#));
        let body = format!(r#"{{"metadata":{{"name":"r"}},"handler":"h","scheduling":{{"tolerations":[{all}]}}}}"#);
        vec![CostRequest::post("/apis/node.k8s.io/v1/runtimeclasses", body)]
    }),
    ("the versions of a webhook's reviews", 201, |length| {
        let versions = list(length, |i| format!(r#""v{i}""#));
        let body = format!(
            r#"{{"metadata":{{"name":"w"}},"webhooks":[{{"name":"a.b.c","sideEffects":"None","clientConfig":{{"url":"https://a"}},"admissionReviewVersions":[{versions}]}}]}}"#
        );
        vec![CostRequest::post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body)]
    }),
    ("the actions of a binding", 422, |length| {
        let actions = list(length, |i| format!(r#""A{i}""#));
        let body =
            format!(r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"p","validationActions":[{actions}]}}}}"#);
        vec![CostRequest::post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", body)]
    }),
    ("volumes and claims of a StatefulSet", 422, |length| {
        let volumes = list(length / 2, |i| format!(r#"{{"name":"v{i}"}}"#));
        let claims = list(length / 2, |i| format!(r#"{{"metadata":{{"name":"v{i}"}}}}"#));
        let body = format!(
            r#"{{"metadata":{{"name":"s"}},"spec":{{"template":{{"spec":{{"volumes":[{volumes}]}}}},"volumeClaimTemplates":[{claims}]}}}}"#
        );
        vec![CostRequest::post("/apis/apps/v1/namespaces/default/statefulsets", body)]
    }),
    ("the rules of a Role", 201, |length| {
        let rules = list(length, |i| format!(r#"{{"apiGroups":[""],"resources":["r{i}"],"verbs":["get"]}}"#));
        let body = format!(r#"{{"metadata":{{"name":"r"}},"rules":[{rules}]}}"#);
        vec![CostRequest::post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", body)]
    }),
];

fn definition(spec: &str) -> CostRequest {
    CostRequest::post(
        DEFINED,
        format!(
            r#"{{"metadata":{{"name":"as.x.io"}},"spec":{{"group":"x.io","scope":"Namespaced","names":{{"plural":"as","kind":"A"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object",{spec}}}}}}}}}}}]}}}}"#
        ),
    )
}

const AS: &str = "/apis/x.io/v1/namespaces/default/as";

fn custom(spec: &str) -> String {
    format!(r#"{{"apiVersion":"x.io/v1","kind":"A","metadata":{{"name":"a"}},"spec":{{{spec}}}}}"#)
}

const ITEMS: &str = r#""properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"integer"},"v":{"type":"string"}}}}}"#;

pub(super) const DEFINITIONS: &[(&str, u16, Requests)] = &[
    ("a wide schema", 201, |length| {
        vec![definition(&format!(r#""properties":{{{}}}"#, list(length, |i| format!(r#""p{i}":{{"type":"string"}}"#))))]
    }),
    ("a wide invalid schema", 422, |length| {
        vec![definition(&format!(r#""properties":{{{}}}"#, list(length, |i| format!(r#""p{i}":{{"type":"null"}}"#))))]
    }),
    ("duplicate keys of a list", 422, |length| {
        let keys = list(length, |_| r#""k""#.to_owned());
        vec![definition(&format!(
            r#""properties":{{"l":{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[{keys}],"items":{{"type":"object","properties":{{"k":{{"type":"string"}}}}}}}}}}"#
        ))]
    }),
    ("rules with a field path", 201, |length| {
        let properties = list(length / 2, |i| format!(r#""p{i}":{{"type":"string"}}"#));
        let rules = list(length / 2, |_| r#"{"rule":"true","fieldPath":".p0"}"#.to_owned());
        vec![definition(&format!(r#""properties":{{{properties}}},"x-kubernetes-validations":[{rules}]"#))]
    }),
    ("an object with a map list", 201, |length| {
        let items = list(length, |i| format!(r#"{{"k":{i}}}"#));
        vec![definition(ITEMS), CostRequest::post(AS, custom(&format!(r#""l":[{items}]"#)))]
    }),
    ("a map list with duplicate items", 422, |length| {
        let items = list(length, |i| format!(r#"{{"k":{}}}"#, i / 2));
        vec![definition(ITEMS), CostRequest::post(AS, custom(&format!(r#""l":[{items}]"#)))]
    }),
    ("a map list in another order", 200, |length| {
        let old = list(length / 3, |i| format!(r#"{{"k":{}}}"#, 1_000_000 + i));
        let new = list(length / 3, |i| format!(r#"{{"k":{},"v":"x"}}"#, 2_000_000 - i));
        let patch = format!(r#"{{"spec":{{"l":[{new}]}}}}"#);
        vec![
            definition(ITEMS),
            CostRequest::post(AS, custom(&format!(r#""l":[{old}]"#))),
            CostRequest::new("PATCH", &format!("{AS}/a"), "application/merge-patch+json", patch),
        ]
    }),
    ("undeclared fields", 201, |length| {
        vec![definition(ITEMS), CostRequest::post(AS, custom(&list(length, |i| format!(r#""x{i}":1"#))))]
    }),
];
