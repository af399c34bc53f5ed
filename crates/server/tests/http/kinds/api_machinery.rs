//! Kinds that extend and protect the API: admission, flow control, certificates, dynamic resource allocation.

use super::*;
use base64::{Engine, engine::general_purpose::STANDARD};

#[tokio::test]
async fn webhook_configurations() {
    let webhook = json!({"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]});
    let made = json!({"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "namespaceSelector": {},
        "clientConfig": {"service": {"port": 443}}, "rules": [{"scope": "*"}]});
    KindCase {
        path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        discovery: json!({"singularName": "validatingwebhookconfiguration", "categories": ["api-extensions"]}),
        manifest: json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "v"}, "webhooks": [webhook]}),
        made: json!({"metadata": {"generation": 1}, "webhooks": [made]}),
        invalid: &[(
            r#"{"webhooks": [{"name": "a.example.com", "sideEffects": "Some", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://x"}}]}"#,
            "webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"",
        ), (
            r#"{"webhooks": [{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v3"], "clientConfig": {"url": "https://me@x/y?z"},
                "matchConditions": [{"name": "c", "expression": "objekt == null"}]}]}"#,
            "[webhooks[0].matchConditions[0].expression: Invalid value: \"objekt == null\": compilation failed: ERROR: <input>: undeclared reference to 'objekt' (in container '')\n | objekt == null, webhooks[0].clientConfig.url: Invalid value: \"me\": user information is not permitted in the URL, webhooks[0].clientConfig.url: Invalid value: \"z\": query parameters are not permitted in the URL, webhooks[0].admissionReviewVersions: Invalid value: [\"v3\"]: must include at least one of v1, v1beta1]",
        )],
        columns: "Name|Webhooks|Age",
        cells: json!(["v", 1, null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        discovery: json!({"singularName": "mutatingwebhookconfiguration", "categories": ["api-extensions"]}),
        manifest: json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "m"}, "webhooks": [webhook]}),
        made: json!({"webhooks": [{"reinvocationPolicy": "Never"}]}),
        invalid: &[(
            r#"{"webhooks": [{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1", "v1"], "reinvocationPolicy": "x",
                "clientConfig": {"service": {"namespace": "n", "name": "s", "port": 0, "path": "/a//b"}},
                "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": [""], "resources": ["*", "pods", "a/*", "a/b", "*/s", "b/s", "*/*", ""]}]}]}"#,
            "[webhooks[0].rules[0].apiVersions[0]: Required value, webhooks[0].rules[0].resources[3]: Invalid value: \"a/b\": if 'a/*' is present, must not specify a/b, webhooks[0].rules[0].resources[5]: Invalid value: \"b/s\": if '*/s' is present, must not specify b/s, webhooks[0].rules[0].resources[7]: Required value, webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\",\"a/*\",\"a/b\",\"*/s\",\"b/s\",\"*/*\",\"\"]: if '*/*' is present, must not specify other resources, webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\",\"a/*\",\"a/b\",\"*/s\",\"b/s\",\"*/*\",\"\"]: if '*' is present, must not specify other resources without subresources, webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive, webhooks[0].clientConfig.service.path: Invalid value: \"/a//b\": segment[1] may not be empty, webhooks[0].admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version, webhooks[0].reinvocationPolicy: Unsupported value: \"x\": supported values: \"IfNeeded\", \"Never\"]",
        )],
        columns: "Name|Webhooks|Age",
        cells: json!(["m", 1, null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn admission_policies() {
    let group = "admissionregistration.k8s.io/v1";
    let rule = json!({"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    KindCase {
        path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        discovery: json!({"singularName": "validatingadmissionpolicy", "status": true}),
        manifest: json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}}),
        made: json!({"spec": {"failurePolicy": "Fail", "matchConstraints": {"matchPolicy": "Equivalent", "resourceRules": [{"scope": "*"}]}}}),
        invalid: &[
            (r#"{"spec": {"matchConstraints": null}}"#, "spec.matchConstraints: Required value"),
            (
                r#"{"spec": {"paramKind": {"apiVersion": "a/b/c", "kind": "x y"}}}"#,
                "[spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c, spec.paramKind.kind: Invalid value: \"x y\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')]",
            ),
            (
                r#"{"spec": {"matchConstraints": {"matchPolicy": "x", "resourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "resourceNames": ["a/b", "x", "x"]}]},
                    "variables": [{"name": "if", "expression": "1"}],
                    "validations": [{"expression": "params.x == 1", "messageExpression": " ", "reason": "Unauthorized"}],
                    "auditAnnotations": [{"key": "k", "valueExpression": "'a'"}, {"key": "k", "valueExpression": " "}]}}"#,
                "[spec.matchConstraints.matchPolicy: Unsupported value: \"x\": supported values: \"Equivalent\", \"Exact\", spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: \"a/b\": may not contain '/', spec.matchConstraints.resourceRules[0].resourceNames[2]: Duplicate value: \"x\", spec.variables[0].name: Invalid value: \"if\": name is not a valid CEL identifier, spec.validations[0].reason: Unsupported value: \"Unauthorized\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\", spec.validations[0].expression: Invalid value: \"params.x == 1\": compilation failed: ERROR: <input>: undeclared reference to 'params' (in container '')\n | params.x == 1, spec.validations[0].messageExpression: Invalid value: \" \": must be non-empty if specified, spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified, spec.auditAnnotations[1].key: Duplicate value: \"k\"]",
            ),
        ],
        columns: "Name|Validations|ParamKind|Age",
        cells: json!(["p", 1, "<unset>", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        discovery: json!({"singularName": "validatingadmissionpolicybinding"}),
        manifest: json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}),
        made: json!({}),
        invalid: &[
            (r#"{"spec": {"validationActions": []}}"#, "spec.validationActions: Required value: at least one validation action is required"),
            (
                r#"{"spec": {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Allow"}}}"#,
                "[spec.paramRef.name: Forbidden: name and selector are mutually exclusive, spec.paramRef.selector: Forbidden: name and selector are mutually exclusive]",
            ),
            (
                r#"{"spec": {"policyName": "A", "validationActions": ["Warn", "Warn"], "paramRef": {"name": "a/b", "parameterNotFoundAction": "Allow"}, "matchResources": {"matchPolicy": "x"}}}"#,
                "[spec.policyName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), spec.paramRef.name: Invalid value: \"a/b\": may not contain '/', spec.matchResources.matchPolicy: Unsupported value: \"x\": supported values: \"Equivalent\", \"Exact\", spec.validationActions[1]: Duplicate value: \"Warn\"]",
            ),
        ],
        columns: "Name|PolicyName|ParamRef|Age",
        cells: json!(["b", "p", "<unset>", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn policy_expressions_are_stored_verbatim() {
    let api = TestApi::new().await;
    let class = json!({"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": "1 +"}}]}});
    let path = "/apis/resource.k8s.io/v1/deviceclasses";
    api.check(post(path, &class), 201, json!({"spec": {"selectors": [{"cel": {"expression": "1 +"}}]}})).await;
}

#[tokio::test]
async fn flow_control() {
    let group = "flowcontrol.apiserver.k8s.io/v1";
    KindCase {
        path: "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
        discovery: json!({"singularName": "flowschema", "status": true}),
        manifest: json!({"apiVersion": group, "kind": "FlowSchema", "metadata": {"name": "f"}, "spec": {"priorityLevelConfiguration": {"name": "p"}, "distinguisherMethod": {"type": "ByUser"}}}),
        made: json!({"spec": {"matchingPrecedence": 1000}}),
        invalid: &[
            (r#"{"spec": {"matchingPrecedence": -1}}"#, "spec.matchingPrecedence: Invalid value: -1: must be a positive value"),
            (
                r#"{"spec": {"rules": [{"subjects": [{"kind": "User"}], "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["x"]}]}]}}"#,
                "[spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User', spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"x\": must start with slash]",
            ),
        ],
        columns: "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL",
        cells: json!(["f", "p", 1000, "ByUser", null, "?"]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
        discovery: json!({"singularName": "prioritylevelconfiguration", "status": true}),
        manifest: json!({"apiVersion": group, "kind": "PriorityLevelConfiguration", "metadata": {"name": "p"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}}),
        made: json!({"spec": {"limited": {"nominalConcurrencyShares": 30, "limitResponse": {"queuing": {"queues": 64}}}}}),
        invalid: &[
            (r#"{"spec": {"limited": null}}"#, "spec.limited: Required value: must not be empty when type is Limited"),
            (
                r#"{"spec": {"type": "Exempt", "limited": null}}"#,
                "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
            ),
            (
                r#"{"spec": {"limited": {"limitResponse": {"type": "Reject"}}}}"#,
                "spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited",
            ),
        ],
        columns: "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age",
        cells: json!(["p", "Limited", 30, 64, 8, 50, null]),
    }
    .check()
    .await;
}

fn request() -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": {"request": CERTIFICATE_REQUEST, "signerName": "example.com/s", "usages": ["client auth"], "expirationSeconds": 3600}})
}

#[tokio::test]
async fn certificate_signing_requests() {
    KindCase {
        path: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        discovery: json!({"singularName": "certificatesigningrequest", "shortNames": ["csr"], "status": true}),
        manifest: request(),
        made: json!({"status": {}}),
        invalid: &[
            (r#"{"spec": {"usages": null}}"#, "spec.usages: Required value"),
            (
                r#"{"spec": {"request": "cmVxdWVzdA=="}}"#,
                "spec.request: Invalid value: \"cmVxdWVzdA==\": PEM block type must be CERTIFICATE REQUEST",
            ),
            (
                r#"{"spec": {"request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUFBQQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K"}}"#,
                "spec.request: Invalid value: \"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUFBQQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K\": asn1: structure error: malformed certificate request",
            ),
            (
                r#"{"spec": {"usages": ["client auth", "client auth"]}}"#,
                "spec.usages[1]: Duplicate value: \"client auth\"",
            ),
            (
                r#"{"spec": {"usages": ["walking"]}}"#,
                r#"spec.usages[0]: Unsupported value: "walking": supported values: "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping""#,
            ),
            (
                r#"{"spec": {"expirationSeconds": 60}}"#,
                "spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 600 seconds (10 minutes)",
            ),
        ],
        columns: "Name|Age|SignerName|Requestor|RequestedDuration|Condition",
        cells: json!(["r", null, "example.com/s", null, "60m", "Pending"]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn csr_approval_changes_only_conditions() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut created = api.check(post(path, &request()), 201, json!({})).await.body;
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m"});
    created["status"] = json!({"conditions": [condition("Approved"), condition("Reviewed")], "certificate": "eA=="});
    created["spec"]["signerName"] = json!("example.com/other");
    let approved = api.check(put(format!("{path}/r/approval"), &created), 200, json!({})).await.body;
    assert_eq!(approved["status"]["conditions"].as_array().unwrap().len(), 2, "{approved:#}");
    assert_eq!(approved["status"].get("certificate"), None);
    assert_eq!(approved["spec"]["signerName"], "example.com/s");
    let row = api.check(get_table(path), 200, json!({})).await.body;
    assert_eq!(row["rows"][0]["cells"][5], "Approved");
    // A decision is final; a signer cannot approve, and signs once.
    let check = async |sub: &str, status: Value, expected_message: &str| {
        let message = format!("CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: {expected_message}");
        let response = api.send(&merge_patch(format!("{path}/r/{sub}"), &json!({"status": status}))).await;
        assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{status}");
    };
    let gone = "status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"";
    check("approval", json!({"conditions": []}), gone).await;
    check("status", json!({"conditions": []}), gone).await;
    let twice = json!({"conditions": [condition("Approved"), condition("Approved")]});
    let expected_message = "[status.conditions[1].type: Duplicate value: \"Approved\", status.conditions: Forbidden: updates may not add a condition of type \"Approved\"]";
    check("status", twice, expected_message).await;
    let expected_message =
        "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block";
    check("status", json!({"certificate": "eA=="}), expected_message).await;
    check("status", json!({"certificate": CERTIFICATE_REQUEST}), "status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed, found \"CERTIFICATE REQUEST\"").await;
    let certificate = || {
        let pem = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem();
        json!({"certificate": STANDARD.encode(pem)})
    };
    api.check(merge_patch(format!("{path}/r/status"), &json!({"status": certificate()})), 200, json!({})).await;
    let expected_message = "status.certificate: Forbidden: updates may not modify existing certificate content";
    check("status", certificate(), expected_message).await;
}

#[tokio::test]
async fn csr_conditions_are_validated() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    api.check(post(path, &request()), 201, json!({})).await;
    let check = async |sub: &str, conditions: Value, expected_message: &str| {
        let message = format!("CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: {expected_message}");
        let response =
            api.send(&merge_patch(format!("{path}/r/{sub}"), &json!({"status": {"conditions": conditions}}))).await;
        assert_eq!((response.status, response.body["message"].as_str()), (422, Some(message.as_str())), "{conditions}");
    };
    let one = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "message": "m"});
    let expected_message = "status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"";
    check("approval", json!([one("Approved", "False")]), expected_message).await;
    check("status", json!([one("Failed", "False")]), expected_message).await;
    check("status", json!([one("", "True")]), "status.conditions[0].type: Required value").await;
    let expected_message =
        "status.conditions[0].status: Unsupported value: \"Often\": supported values: \"False\", \"True\", \"Unknown\"";
    check("status", json!([one("Own", "Often")]), expected_message).await;
    let expected_message =
        "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive";
    check("approval", json!([one("Approved", "True"), one("Denied", "True")]), expected_message).await;
}

#[tokio::test]
async fn csr_signature_is_verified() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    // A changed letter in the name invalidates the signature.
    let text = String::from_utf8(STANDARD.decode(CERTIFICATE_REQUEST).unwrap()).unwrap();
    let mut forged = request();
    forged["spec"]["request"] = json!(STANDARD.encode(text.replace("Y29uZm9y", "Y29uZm9z")));
    assert_ne!(forged["spec"]["request"], CERTIFICATE_REQUEST);
    let response = api.check(post(path, &forged), 422, json!({})).await;
    assert!(
        response.body["message"].as_str().unwrap().ends_with("the signature of the request is not that of its key")
    );
    let mut old = request();
    old["spec"]["signerName"] = json!("kubernetes.io/legacy-unknown");
    let message = "CertificateSigningRequest.certificates.k8s.io \"r\" is invalid: spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version";
    api.check(post(path, &old), 422, json!({"message": message})).await;
}

#[tokio::test]
async fn csr_without_exactly_one_user_is_rejected() {
    let api = TestApi::new().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for (names, reason) in [
        (&[][..], "subject has no common name"),
        (&["alice", "system:kube-controller-manager"], "subject has more than one common name"),
    ] {
        for signer in ["kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"] {
            let mut ambiguous = request();
            ambiguous["spec"]["signerName"] = json!(signer);
            ambiguous["spec"]["request"] = json!(certificate_request(names));
            let message = format!("certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: {reason}");
            api.check(post(path, &ambiguous), 403, json!({"message": message})).await;
        }
    }
    let mut one = request();
    one["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client");
    one["spec"]["request"] = json!(certificate_request(&["alice"]));
    api.check(post(path, &one), 201, json!({})).await;
}

#[tokio::test]
async fn dynamic_resource_allocation() {
    let group = "resource.k8s.io/v1";
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}});
    KindCase {
        path: "/apis/resource.k8s.io/v1/deviceclasses",
        discovery: json!({"singularName": "deviceclass"}),
        manifest: json!({"apiVersion": group, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
        made: json!({"metadata": {"generation": 1}}),
        invalid: &[
            (r#"{"spec": {"selectors": [{}]}}"#, "spec.selectors[0].cel: Required value"),
            (r#"{"spec": {"config": [{}]}}"#, "spec.config[0].opaque: Required value"),
        ],
        columns: "Name|Age",
        cells: json!(["gpu", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        discovery: json!({"singularName": "resourceclaim", "status": true}),
        manifest: json!({"apiVersion": group, "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}),
        made: json!({"spec": {"devices": {"requests": [{"exactly": {"allocationMode": "ExactCount", "count": 1}}]}}}),
        invalid: &[(
            r#"{"spec": {"devices": {"requests": [{"name": "r"}]}}}"#,
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ), (
            r#"{"spec": {"devices": {"constraints": [{"requests": ["zz"], "matchAttribute": "nope"}], "config": [{"requests": ["r"], "opaque": {"driver": "d", "parameters": "x"}}]}}}"#,
            "[spec.devices.constraints[0].requests[0]: Invalid value: \"zz\": must be the name of a request in the claim or the name of a request and a subrequest separated by '/', spec.devices.constraints[0].matchAttribute: Invalid value: \"nope\": a fully qualified name must be a domain and a name separated by a slash, spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object]",
        )],
        columns: "Name|State|Age",
        cells: json!(["c", "pending", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
        discovery: json!({"singularName": "resourceclaimtemplate"}),
        manifest: json!({"apiVersion": group, "kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": spec}}),
        made: json!({"spec": {"spec": {"devices": {"requests": [{"exactly": {"count": 1}}]}}}}),
        invalid: &[(
            r#"{"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": ""}}]}}}}"#,
            "spec.spec.devices.requests[0].exactly.deviceClassName: Required value",
        )],
        columns: "Name|Age",
        cells: json!(["t", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/resource.k8s.io/v1/resourceslices",
        discovery: json!({"singularName": "resourceslice"}),
        manifest: json!({"apiVersion": group, "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
        made: json!({"metadata": {"generation": 1}}),
        invalid: &[(
            r#"{"spec": {"allNodes": true}}"#,
            "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
        ), (
            r#"{"spec": {"pool": {"generation": -1, "resourceSliceCount": 0}, "devices": [{"name": "a"}, {"name": "a", "attributes": {"x": {}}}]}}"#,
            "[spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero, spec.pool.generation: Invalid value: -1: must be greater than or equal to zero, spec.devices[1].attributes[x]: Invalid value: \"\": exactly one value must be specified, spec.devices[1]: Duplicate value: \"a\"]",
        )],
        columns: "Name|Node|Driver|Pool|Age",
        cells: json!(["s", "n", "example.com", "p", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn disabled_device_fields_are_dropped() {
    let api = TestApi::new().await;
    let path = "/apis/resource.k8s.io/v1";
    let exactly = json!({"deviceClassName": "gpu", "tolerations": [{"key": "k", "operator": "Exists"}]});
    let claim = json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}});
    let slice = json!({"driver": "example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1,
        "resourceSliceCount": 1}, "devices": [{"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}]});
    for (collection, spec, dropped) in [
        ("deviceclasses", json!({"extendedResourceName": "x"}), "/spec/extendedResourceName"),
        ("namespaces/default/resourceclaims", claim.clone(), "/spec/devices/requests/0/exactly/tolerations"),
        (
            "namespaces/default/resourceclaimtemplates",
            json!({"spec": claim}),
            "/spec/spec/devices/requests/0/exactly/tolerations",
        ),
        ("resourceslices", slice, "/spec/devices/0/taints"),
    ] {
        let object = json!({"metadata": {"name": "x"}, "spec": spec});
        assert!(object.pointer(dropped).is_some(), "{collection}");
        let created = api.check(post(format!("{path}/{collection}"), &object), 201, json!({})).await.body;
        assert_eq!(created.pointer(dropped), None, "{collection}");
        let again = api.check(put(format!("{path}/{collection}/x"), &created), 200, json!({})).await.body;
        assert_eq!(again["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"], "{collection}");
    }
}

#[tokio::test]
async fn device_admin_access_requires_a_namespace_label() {
    let api = TestApi::new().await;
    let path = "/apis/resource.k8s.io/v1/namespaces/default";
    let spec = json!({"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu"}},
        {"name": "b", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
    ]}});
    let claim = |name: &str, spec: &Value| json!({"metadata": {"name": name}, "spec": spec});
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": spec}});
    let marked = "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace";
    let cause = |field: &str| json!({"reason": "Invalid", "details": {"causes": [{"reason": "FieldValueForbidden", "field": field, "message": marked}]}});
    let field = "spec.devices.requests[1].adminAccess";
    api.check(post(format!("{path}/resourceclaims"), &claim("c", &spec)), 422, cause(field)).await;
    api.check(post(format!("{path}/resourceclaimtemplates"), &template), 422, cause(field)).await;
    let plain =
        json!({"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "adminAccess": false}}]}});
    api.check(post(format!("{path}/resourceclaims"), &claim("plain", &plain)), 201, json!({})).await;
    let result = json!({"request": "a", "driver": "d", "pool": "p", "device": "x", "adminAccess": true});
    let given = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    let status = format!("{path}/resourceclaims/plain/status");
    api.check(merge_patch(&status, &given), 422, cause("status.allocation.devices.results[0].adminAccess")).await;
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    api.check(merge_patch("/api/v1/namespaces/default", &label), 200, json!({})).await;
    api.check(post(format!("{path}/resourceclaims"), &claim("c", &spec)), 201, json!({})).await;
    api.check(post(format!("{path}/resourceclaimtemplates"), &template), 201, json!({})).await;
    api.check(merge_patch(&status, &given), 200, json!({})).await;
    // An object with admin access can be updated after the label is removed.
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": null}}});
    api.check(merge_patch("/api/v1/namespaces/default", &label), 200, json!({})).await;
    let note = json!({"metadata": {"labels": {"a": "b"}}});
    api.check(merge_patch(format!("{path}/resourceclaims/c"), &note), 200, json!({})).await;
    api.check(merge_patch(&status, &note), 200, json!({})).await;
}
