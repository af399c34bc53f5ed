//! Admission and conversion webhooks on the node and in a Pod (`tests/src/bin/webhook_server.rs`), and ValidatingAdmissionPolicies.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};
use tests::{Cluster, Kubectl, PodBuilder, e2e_test, eventually};

/// Returns a self-signed certificate and its key in PEM.
fn certificate(names: &[String]) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// A webhook server on this machine.
struct WebhookServer {
    process: Child,
    port: u16,
    certificate: String,
}

impl WebhookServer {
    fn new() -> Self {
        let (certificate, key) = certificate(&["127.0.0.1".to_owned()]);
        let dir = tempfile::tempdir().unwrap();
        let files = [("tls.crt", &certificate), ("tls.key", &key)].map(|(name, text)| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        });
        let mut command = Command::new(env!("CARGO_BIN_EXE_webhook_server"));
        let mut process = command.arg("127.0.0.1:0").args(files).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { process, port: port.trim().parse().unwrap(), certificate }
    }

    fn config(&self, path: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": STANDARD.encode(&self.certificate)})
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a configuration with one webhook for ConfigMaps in the test's namespace.
fn configuration(kubectl: &Kubectl, kind: &str, config: &Value) -> Value {
    let namespace = kubectl.namespace();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": namespace},
        "webhooks": [{
            "name": "hook.example.com", "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30, "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "matchConditions": [{"name": "own", "expression": "!request.name.startsWith('kube-')"}],
        }],
    })
}

fn config_map(name: &str, labels: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}).to_string()
}

/// Checks the effect of a mutating and a validating webhook on ConfigMaps.
fn check(kubectl: &Kubectl) {
    let made = kubectl.args(&["create", "-f", "-"], &config_map("good", &json!({})));
    made.ok();
    assert_eq!(kubectl.value("configmap/good", "/metadata/labels/hooked"), "yes");
    let refused = kubectl.args(&["create", "-f", "-"], &config_map("bad", &json!({"refuse": "me"}))).failed();
    let words = "admission webhook \"hook.example.com\" denied the request: it says so itself";
    assert!(refused.contains(words), "{refused}");
    assert!(refused.contains("Warning: bad was seen"), "{refused}");
    assert_eq!(kubectl.get("configmap/bad"), None);
    let refused = kubectl.run("label configmap good refuse=me").failed();
    assert!(refused.contains(words), "{refused}");
    let dry = kubectl
        .args(&["apply", "--server-side", "--dry-run=server", "-o", "yaml", "-f", "-"], &config_map("dry", &json!({})));
    assert!(dry.ok().contains("hooked: \"yes\""));
}

#[e2e_test("webhooks by URL mutate and reject what kubectl writes")]
fn webhooks_by_url_mutate_and_reject(cluster: &Cluster) {
    let (kubectl, hook) = (cluster.kubectl(), WebhookServer::new());
    kubectl.apply(&configuration(&kubectl, "Mutating", &hook.config("/change")).to_string());
    kubectl.apply(&configuration(&kubectl, "Validating", &hook.config("/check")).to_string());
    check(&kubectl);
    drop(hook);
    let refused = kubectl.args(&["create", "-f", "-"], &config_map("late", &json!({}))).failed();
    let words = "failed calling webhook \"hook.example.com\": failed to call webhook: Post \"https://127.0.0.1:";
    assert!(refused.contains(words) && refused.contains("connection refused"), "{refused}");
    let name = kubectl.namespace().to_owned();
    for kind in ["mutating", "validating"] {
        kubectl.run(&format!("delete {kind}webhookconfiguration {name}")).ok();
    }
    kubectl.args(&["create", "-f", "-"], &config_map("late", &json!({}))).ok();
}

#[e2e_test("a webhook behind a Service admits and converts what kubectl writes")]
fn webhook_behind_service_admits_and_converts(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    let (certificate, key) = certificate(&[format!("hook.{namespace}.svc")]);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key}});
    kubectl.apply(&secret.to_string());
    let of_the_node = [
        ("server", env!("CARGO_BIN_EXE_webhook_server"), "/webhook-server"),
        ("lib", "/lib", "/lib"),
        ("lib64", "/lib64", "/lib64"),
    ];
    let mut mounts = of_the_node.map(|(name, _, at)| json!({"name": name, "mountPath": at, "readOnly": true})).to_vec();
    let mut volumes = of_the_node.map(|(name, from, _)| json!({"name": name, "hostPath": {"path": from}})).to_vec();
    mounts.push(json!({"name": "tls", "mountPath": "/tls"}));
    volumes.push(json!({"name": "tls", "secret": {"secretName": "hook"}}));
    let pod = PodBuilder::new("hook")
        .label("app", "hook")
        .grace_period(0)
        .spec(&json!({"volumes": volumes}))
        .command(&["/webhook-server", "0.0.0.0:9443", "/tls/tls.crt", "/tls/tls.key"])
        .container(&json!({"volumeMounts": mounts, "ports": [{"name": "https", "containerPort": 9443}],
            "readinessProbe": {"tcpSocket": {"port": "https"}, "periodSeconds": 1}}));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443, "targetPort": "https"}]}});
    kubectl.apply(&pod.to_string());
    kubectl.apply(&service.to_string());
    kubectl.wait_ready("hook");
    let at = |path: &str| json!({"service": {"name": "hook", "namespace": namespace, "path": path}, "caBundle": STANDARD.encode(&certificate)});
    eventually("the Service to have an endpoint", || {
        kubectl.run("get endpointslices -o yaml").is_ok_and(|output| output.contains("port: 9443"))
    });
    kubectl.apply(&configuration(&kubectl, "Mutating", &at("/change")).to_string());
    kubectl.apply(&configuration(&kubectl, "Validating", &at("/check")).to_string());
    check(&kubectl);
    check_conversion(&kubectl, &at("/convert"));
    for kind in ["mutating", "validating"] {
        kubectl.run(&format!("delete {kind}webhookconfiguration {namespace}")).ok();
    }
}

/// Checks conversion between two versions of a kind.
fn check_conversion(kubectl: &Kubectl, config: &Value) {
    let version = |name: &str, field: &str, stored: bool| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
        json!({"name": name, "served": true, "storage": stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "timers.converted.example.com"},
        "spec": {
            "group": "converted.example.com", "scope": "Namespaced", "names": {"plural": "timers", "kind": "Timer"},
            "versions": [version("v1", "cron", true), version("v2", "schedule", false)],
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}},
        },
    });
    kubectl.apply(&definition.to_string());
    kubectl.run("wait --for=condition=established --timeout=60s crd/timers.converted.example.com").ok();
    let timer = |schedule: &str| {
        json!({"apiVersion": "converted.example.com/v2", "kind": "Timer", "metadata": {"name": "t"}, "spec": {"schedule": schedule}}).to_string()
    };
    kubectl.apply(&timer("daily"));
    kubectl.apply(&timer("weekly"));
    assert_eq!(kubectl.value("timers.v1.converted.example.com/t", "/spec"), json!({"cron": "weekly"}));
    assert_eq!(kubectl.value("timers.v2.converted.example.com/t", "/spec"), json!({"schedule": "weekly"}));
    kubectl.run("delete crd timers.converted.example.com").ok();
}

#[e2e_test("a bound ValidatingAdmissionPolicy refuses what kubectl writes")]
fn validating_admission_policy_refuses(cluster: &Cluster) {
    let kubectl = cluster.kubectl();
    let namespace = kubectl.namespace().to_owned();
    let group = "admissionregistration.k8s.io/v1";
    let rule = json!({"operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    let validation = json!({"expression": "object.spec.replicas <= int(params.data.most)",
        "messageExpression": "'at most ' + params.data.most + ' of ' + object.metadata.name"});
    let policy = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}});
    let binding = json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": namespace}, "spec": {
        "policyName": namespace, "validationActions": ["Deny"],
        "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"},
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}}});
    kubectl.run("create configmap limits --from-literal=most=2").ok();
    kubectl.apply(&policy.to_string());
    kubectl.apply(&binding.to_string());
    let refused = kubectl.run("create deployment d --image=none.example/none --replicas=3").failed();
    let words =
        format!("ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}' denied request: at most 2 of d");
    assert!(refused.contains(&words), "{refused}");
    kubectl.run("create deployment d --image=none.example/none --replicas=0").ok();
    let refused = kubectl.args(&["patch", "deployment/d", "-p", r#"{"spec":{"replicas":9}}"#], "").failed();
    assert!(refused.contains("at most 2 of d"), "{refused}");
    let wrong = policy.to_string().replace("object.spec.replicas", "objekt.spec.replicas");
    let refused = kubectl.args(&["apply", "-f", "-"], &wrong).failed();
    assert!(refused.contains("undeclared reference to 'objekt'"), "{refused}");
    kubectl.run(&format!("delete validatingadmissionpolicybinding {namespace}")).ok();
    kubectl.run(&format!("delete validatingadmissionpolicy {namespace}")).ok();
    kubectl.args(&["patch", "deployment/d", "-p", r#"{"spec":{"paused":true,"replicas":9}}"#], "").ok();
    kubectl.run("delete deployment d").ok();
}
