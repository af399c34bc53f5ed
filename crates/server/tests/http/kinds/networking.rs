//! `networking.k8s.io/v1`.

use super::*;

#[tokio::test]
async fn ingresses() {
    let path =
        json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}});
    KindCase {
        path: "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
        discovery: json!({"singularName": "ingress", "shortNames": ["ing"], "status": true}),
        manifest: json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
            "spec": {"rules": [{"host": "a.example.com", "http": {"paths": [path]}}]}}),
        made: json!({"metadata": {"generation": 1}, "status": {"loadBalancer": {}}}),
        invalid: &[
            (r#"{"spec": {"rules": null}}"#, "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"),
            (
                r#"{"spec": {"rules": [{"http": {"paths": [{"backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}"#,
                "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
            ),
            (
                r#"{"spec": {"rules": null, "defaultBackend": {"service": {"name": "web"}}}}"#,
                "spec.defaultBackend: Required value: port name or number is required",
            ),
            (
                r#"{"spec": {"rules": null, "defaultBackend": {}}}"#,
                "spec.defaultBackend: Invalid value: \"\": resource or service backend is required",
            ),
            (
                r#"{"spec": {"rules": null, "defaultBackend": {"resource": {"apiGroup": "a.io", "kind": "", "name": "a/b"}}}}"#,
                "[spec.defaultBackend.resource.kind: Required value, spec.defaultBackend.resource.name: Invalid value: \"a/b\": may not contain '/']",
            ),
            (
                r#"{"spec": {"rules": null, "defaultBackend": {"service": {"name": "web", "port": {"name": "A_B"}}}}}"#,
                "[spec.defaultBackend.service.port.name: Invalid value: \"A_B\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), spec.defaultBackend.service.port.name: Invalid value: \"A_B\": must contain at least one letter (a-z)]",
            ),
            (
                r#"{"spec": {"rules": null, "defaultBackend": {"service": {"name": "web", "port": {"number": 70000}}}}}"#,
                "spec.defaultBackend.service.port.number: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ),
            (
                r#"{"spec": {"rules": [{"http": {"paths": [{"path": "/a//b/.", "pathType": "Exact", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}"#,
                "[spec.rules[0].http.paths[0].path: Invalid value: \"/a//b/.\": must not contain '//', spec.rules[0].http.paths[0].path: Invalid value: \"/a//b/.\": cannot end with '/.']",
            ),
            (
                r#"{"spec": {"rules": [{"http": {"paths": [{"path": "/a/../%2f/./%2F/..", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]}}"#,
                "[spec.rules[0].http.paths[0].path: Invalid value: \"/a/../%2f/./%2F/..\": must not contain '/./', spec.rules[0].http.paths[0].path: Invalid value: \"/a/../%2f/./%2F/..\": must not contain '/../', spec.rules[0].http.paths[0].path: Invalid value: \"/a/../%2f/./%2F/..\": must not contain '%2f', spec.rules[0].http.paths[0].path: Invalid value: \"/a/../%2f/./%2F/..\": must not contain '%2F', spec.rules[0].http.paths[0].path: Invalid value: \"/a/../%2f/./%2F/..\": cannot end with '/..']",
            ),
            (
                r#"{"spec": {"rules": [{"host": "*.*.x"}]}}"#,
                "spec.rules[0].host: Invalid value: \"*.*.x\": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                r#"{"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}}, "spec": {"ingressClassName": "b"}}"#,
                "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are specified",
            ),
            (r#"{"spec": {"rules": [{"host": "10.0.0.1"}]}}"#, "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"),
            (
                r#"{"spec": {"tls": [{"hosts": ["a_b"], "secretName": "s"}]}}"#,
                "spec.tls[0].hosts[0]: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
        ],
        columns: "Name|Class|Hosts|Address|Ports|Age",
        cells: json!(["i", "<none>", "a.example.com", "", "80", null]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/networking.k8s.io/v1/ingressclasses",
        discovery: json!({"singularName": "ingressclass"}),
        manifest: json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "c"},
            "spec": {"controller": "example.com/c", "parameters": {"apiGroup": "example.com", "kind": "P", "name": "p"}}}),
        made: json!({"spec": {"parameters": {"scope": "Cluster"}}}),
        invalid: &[
            (
                r#"{"spec": {"controller": "c"}}"#,
                "spec.controller: Invalid value: \"c\": must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
            (
                r#"{"spec": {"controller": "a.b/?"}}"#,
                "spec.controller: Invalid value: \"?\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
            ),
            (
                r#"{"spec": {"parameters": {"kind": "", "name": "", "scope": "X"}}}"#,
                "[spec.parameters.kind: Required value, spec.parameters.name: Required value, spec.parameters.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespace\"]",
            ),
            (
                r#"{"spec": {"parameters": {"scope": "Namespace"}}}"#,
                "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
            ),
            (
                r#"{"spec": {"parameters": {"namespace": "n"}}}"#,
                "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'",
            ),
        ],
        columns: "Name|Controller|Parameters|Age",
        cells: json!(["c", "example.com/c", "P.example.com/p", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn network_policies() {
    KindCase {
        path: "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        discovery: json!({"singularName": "networkpolicy", "shortNames": ["netpol"]}),
        manifest: json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"},
            "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "egress": [{"ports": [{"port": 53}]}]}}),
        made: json!({"spec": {"policyTypes": ["Ingress", "Egress"], "egress": [{"ports": [{"protocol": "TCP"}]}]}}),
        invalid: &[
            (
                r#"{"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0"}}]}]}}"#,
                "spec.egress[0].to[0].ipBlock.cidr: Invalid value: \"10.0.0.0\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
            (
                r#"{"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "11.0.0.0/16", "10.0.0.0/8", "x"]}}]}]}}"#,
                "[spec.egress[0].to[0].ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`, spec.egress[0].to[0].ipBlock.except[2]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`, spec.egress[0].to[0].ipBlock.except[3]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)]",
            ),
            (
                r#"{"spec": {"policyTypes": ["Ingress", "Egress", "Ingress"]}}"#,
                "spec.policyTypes: Invalid value: [\"Ingress\",\"Egress\",\"Ingress\"]: may not specify more than two policyTypes",
            ),
            (
                r#"{"spec": {"egress": [{"ports": [{"port": "http", "endPort": 5}, {"endPort": 5}, {"port": 5, "endPort": 70000}, {"port": 9, "endPort": 8}, {"port": 0}, {"port": "a_b"}]}]}}"#,
                "[spec.egress[0].ports[0].endPort: Invalid value: 5: may not be specified when `port` is non-numeric, spec.egress[0].ports[1].endPort: Invalid value: 5: may not be specified when `port` is not specified, spec.egress[0].ports[2].endPort: Invalid value: 70000: must be between 1 and 65535, inclusive, spec.egress[0].ports[3].endPort: Invalid value: 8: must be greater than or equal to `port`, spec.egress[0].ports[4].port: Invalid value: 0: must be between 1 and 65535, inclusive, spec.egress[0].ports[5].port: Invalid value: \"a_b\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)]",
            ),
            (r#"{"spec": {"ingress": [{"from": [{}]}]}}"#, "spec.ingress[0].from[0]: Required value: must specify a peer"),
            (
                r#"{"spec": {"policyTypes": ["Sideways"]}}"#,
                "spec.policyTypes[0]: Unsupported value: \"Sideways\": supported values: \"Ingress\", \"Egress\"",
            ),
        ],
        columns: "Name|Pod-Selector|Age",
        cells: json!(["n", "app=db", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn ingress_load_balancer_status_is_validated() {
    let (api, path) = (TestApi::new().await, "/apis/networking.k8s.io/v1/namespaces/default/ingresses");
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
        "spec": {"defaultBackend": backend}});
    api.check(post(path, &ingress), 201, json!({})).await;
    let status = format!("{path}/i/status");
    let message = |balancer: Value| json!({"status": {"loadBalancer": {"ingress": [balancer]}}});
    for (balancer, reason) in [
        (json!({"ip": "x"}), "ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        (json!({"hostname": "1.2.3.4"}), "hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address"),
    ] {
        let reason = format!("Ingress.networking.k8s.io \"i\" is invalid: status.loadBalancer.ingress[0].{reason}");
        api.check(merge_patch(&status, &message(balancer)), 422, json!({"message": reason})).await;
    }
    let fine = message(json!({"hostname": "a.example.com"}));
    api.check(merge_patch(&status, &fine), 200, fine).await;
}

#[tokio::test]
async fn ip_addresses_and_service_cidrs() {
    KindCase {
        path: "/apis/networking.k8s.io/v1/ipaddresses",
        discovery: json!({"singularName": "ipaddress", "shortNames": ["ip"]}),
        manifest: json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.0.0.1"},
            "spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
        made: json!({}),
        invalid: &[
            (r#"{"spec": {"parentRef": {"name": null}}}"#, "spec.parentRef.name: Required value"),
            (
                r#"{"spec": {"parentRef": {"resource": "s/x"}}}"#,
                r#"spec.parentRef.resource: Invalid value: "s/x": may not contain '/'"#,
            ),
            (
                r#"{"metadata": {"name": "2001:db8:0::1"}}"#,
                r#"metadata.name: Invalid value: "2001:db8:0::1": must be in canonical form ("2001:db8::1")"#,
            ),
        ],
        columns: "Name|ParentRef",
        cells: json!(["10.0.0.1", "services/n/s"]),
    }
    .check()
    .await;
    KindCase {
        path: "/apis/networking.k8s.io/v1/servicecidrs",
        discovery: json!({"singularName": "servicecidr", "status": true}),
        manifest: json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "s"}, "spec": {"cidrs": ["10.1.0.0/24"]}}),
        made: json!({}),
        invalid: &[
            (r#"{"spec": {"cidrs": []}}"#, "spec.cidrs: Required value: at least one CIDR required"),
            (
                r#"{"spec": {"cidrs": ["10.0.0.1/24"]}}"#,
                "spec.cidrs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length",
            ),
        ],
        columns: "Name|CIDRs|Age",
        cells: json!(["s", "10.1.0.0/24", null]),
    }
    .check()
    .await;
}

#[tokio::test]
async fn service_cidr_is_immutable_without_generation() {
    let api = TestApi::new().await;
    let path = "/apis/networking.k8s.io/v1/servicecidrs";
    let range = json!({"metadata": {"name": "s"}, "spec": {"cidrs": ["10.1.0.0/24"]}});
    api.check(post(path, &range), 201, json!({"metadata": {"generation": null}})).await;
    let one = format!("{path}/s");
    let message = "ServiceCIDR.networking.k8s.io \"s\" is invalid: spec.cidrs[0]: Invalid value: \"10.2.0.0/24\": field is immutable";
    api.check(merge_patch(&one, &json!({"spec": {"cidrs": ["10.2.0.0/24"]}})), 422, json!({"message": message})).await;
    let both = json!({"spec": {"cidrs": ["10.1.0.0/24", "2001:db8::/64"]}});
    api.check(merge_patch(&one, &both), 200, json!({"metadata": {"generation": null}})).await;
}
