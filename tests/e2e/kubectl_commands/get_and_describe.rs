//! `kubectl get`, `describe`, `events`, `api-resources`, `version` and `cluster-info`.

use super::{shell, shell_with_pod};
use serde_json::{Value, json};
use tests::{Cluster, PodBuilder, e2e_test};

#[e2e_test("kubectl get takes a selector of thousands of names")]
fn get_takes_long_selectors(cluster: &Cluster) {
    let shell = shell(cluster);
    let kubectl = shell.kubectl();
    for name in ["name-7", "other"] {
        kubectl.run(&format!("create configmap {name}")).ok();
        kubectl.run(&format!("label configmap {name} app={name}")).ok();
    }
    let names: Vec<String> = (0..4000).map(|i| format!("name-{i}")).collect();
    let selector = format!("app in ({})", names.join(","));
    let got = kubectl.args(&["get", "configmaps", "-o", "name", "-l", &selector], "").ok();
    assert_eq!(got.trim(), "configmap/name-7");
}

#[e2e_test("kubectl get prints Pods in every output format")]
fn get_prints_every_output_format(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    let namespace = shell.kubectl().namespace();
    let all = format!("NAMESPACE NAME READY STATUS RESTARTS AGE ... {namespace} p 1/1 Running 0 ...");
    shell.check(&[
        ("kubectl get pods", 0, "NAME READY STATUS RESTARTS AGE p 1/1 Running 0 ...s"),
        ("kubectl get po p --no-headers", 0, "p 1/1 Running 0 ...s"),
        (
            "kubectl get pod p -o wide",
            0,
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES p 1/1 Running 0 ...s 10... <none> <none>",
        ),
        ("kubectl get pod p --show-labels", 0, "NAME READY STATUS RESTARTS AGE LABELS p 1/1 Running 0 ...s app=web,tier=front"),
        ("kubectl get pod p -L tier,nothing", 0, "NAME READY STATUS RESTARTS AGE TIER NOTHING p 1/1 Running 0 ...s front"),
        ("kubectl get pods -o name", 0, "pod/p"),
        ("kubectl get pod p -o jsonpath='{.status.phase} {.spec.containers[*].name}'", 0, "Running c"),
        ("kubectl get pod p -o go-template='{{.metadata.name}}={{.status.phase}}'", 0, "p=Running"),
        ("kubectl get pods -o custom-columns=WHO:.metadata.name,HOW:.status.phase,NOT:.spec.nothing", 0, "WHO HOW NOT p Running <none>"),
        ("kubectl get pod p -o yaml", 0, "apiVersion: v1 kind: Pod metadata: ... spec: containers: ... status: ..."),
        ("kubectl get pods -A", 0, &all),
        ("kubectl get pods,secrets", 0, "NAME READY STATUS RESTARTS AGE pod/p 1/1 Running 0 ...s"),
        ("kubectl get all", 0, "NAME READY STATUS RESTARTS AGE ...p 1/1 Running 0 ...s"),
        ("kubectl get -f pod.yaml -o name", 0, "pod/p"),
        ("kubectl get pod p nobody", 1, "NAME READY STATUS RESTARTS AGE p 1/1 Running 0 ...s Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl get pod nobody --ignore-not-found", 0, ""),
        ("kubectl get nothings", 1, "error: the server doesn't have a resource type \"nothings\""),
        ("kubectl get secrets", 0, "No resources found in test-... namespace."),
        ("kubectl get pods -n nowhere", 0, "No resources found in nowhere namespace."),
        ("kubectl get ns default", 0, "NAME STATUS AGE default Active ..."),
        ("kubectl get sa", 0, "NAME ... AGE default ..."),
        ("kubectl get nodes -o wide", 0, "NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE KERNEL-VERSION CONTAINER-RUNTIME ... Ready <none> ... v1.35... ...://..."),
        ("kubectl get leases -n kube-node-lease", 0, "NAME HOLDER AGE ..."),
    ]);
    let list: Value = serde_json::from_str(&shell.run("kubectl get pods -o json").ok()).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&json!("List"), &json!("p")));
    let pod = shell.kubectl().get("pod/p").unwrap();
    assert_eq!(
        (&pod["apiVersion"], &pod["kind"], &pod["metadata"]["managedFields"]),
        (&json!("v1"), &json!("Pod"), &Value::Null)
    );
}

#[e2e_test("kubectl get selects by labels, fields and namespaces")]
fn get_selects_by_labels_fields_and_namespaces(cluster: &Cluster) {
    let shell = shell(cluster);
    let items: Vec<Value> = [("one", "a", 3), ("two", "b", 1), ("three", "c", 2)]
        .into_iter()
        .map(|(name, tier, n)| {
            let data: serde_json::Map<_, _> = (0..n).map(|i| (i.to_string(), json!("v"))).collect();
            let metadata = json!({"name": name, "labels": {"app": "select", "tier": tier}});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        })
        .collect();
    shell.file("list.json", json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    shell.file(
        "other.json",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}).to_string(),
    );
    shell.check(&[
        ("kubectl create -f list.json -f other.json", 0, "configmap/one created configmap/two created configmap/three created configmap/other created"),
        ("kubectl get cm -o name -l app=select", 0, "configmap/one configmap/three configmap/two"),
        ("kubectl get cm -o name -l tier=a", 0, "configmap/one"),
        ("kubectl get cm -o name -l tier", 0, "configmap/one configmap/three configmap/two"),
        ("kubectl get cm -o name -l 'tier in (a,b)'", 0, "configmap/one configmap/two"),
        ("kubectl get cm -o name -l 'app,tier notin (a,b)'", 0, "configmap/three"),
        ("kubectl get cm -o name -l 'app=select,tier!=a'", 0, "configmap/three configmap/two"),
        ("kubectl get cm other -o name -l '!app'", 1, "error: name cannot be provided when a selector is specified"),
        ("kubectl get cm -o name -l '!app,!nothing' --field-selector metadata.name=other", 0, "configmap/other"),
        ("kubectl get cm -l 'app in'", 1, "Error from server (BadRequest): ...unable to parse requirement: ..."),
        ("kubectl get cm -o name --field-selector metadata.name!=other,metadata.name!=one -l app", 0, "configmap/three configmap/two"),
        (
            "kubectl get cm --field-selector data.k=v",
            1,
            "Error from server (BadRequest): Unable to find \"/v1, Resource=configmaps\" that match label selector \"\", field selector \"data.k=v\": ...",
        ),
        ("kubectl get cm -l app -o name --sort-by=.metadata.labels.tier", 0, "configmap/one configmap/two configmap/three"),
        ("kubectl get cm -l app --chunk-size=1 -o name", 0, "configmap/one configmap/three configmap/two"),
        ("kubectl get cm -l app --sort-by={.metadata.name} --no-headers", 0, "one 3 ... three 2 ... two 1 ..."),
        ("kubectl get pods --field-selector status.phase=Running,spec.nodeName!=x", 0, "No resources found in test-... namespace."),
    ]);
}

#[e2e_test("kubectl get -w prints changes as events")]
fn get_watch_prints_events(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.check(&[("kubectl apply -f pod.yaml", 0, "pod/p created")]);
    shell.check(&[("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met")]);
    let args = ["get", "pods", "-w", "--output-watch-events", "-L", "mark"];
    let mut watch = shell.kubectl().follow(&args);
    let mut next = || watch.next_line().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(next(), ["EVENT", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "MARK"]);
    assert_eq!(next()[..5], ["ADDED", "p", "1/1", "Running", "0"]);
    shell.check(&[("kubectl label pod p mark=seen", 0, "pod/p labeled")]);
    // The kubelet may have changed the Pod, too.
    let changed = std::iter::repeat_with(&mut next).find(|line| line.len() == 7).unwrap();
    assert_eq!((changed[0].as_str(), changed[6].as_str()), ("MODIFIED", "seen"), "{changed:?}");
    shell.check(&[("kubectl delete pod p", 0, "pod \"p\" deleted...")]);
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &Vec<String>| line[0] != "DELETED") {
        seen.push(next());
    }
    let states: Vec<&str> = seen.iter().map(|line| line[3].as_str()).collect();
    assert_eq!((states.first(), states.last()), (Some(&"Terminating"), Some(&"Completed")), "{seen:?}");
}

#[e2e_test("kubectl describe pod prints every section")]
fn describe_pod_prints_every_section(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.file(
        "pod.yaml",
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: p, labels: {{app: web}}, annotations: {{example.com/note: words}}}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {{kubernetes.io/os: linux}}
  containers:
  - name: c
    image: {}
    command: [sleep, \"100000\"]
    ports: [{{containerPort: 80, name: http}}]
    env: [{{name: WORD, value: hello}}, {{name: FROM, valueFrom: {{configMapKeyRef: {{name: cm, key: k, optional: true}}}}}}]
    resources: {{requests: {{cpu: 10m}}, limits: {{memory: 64Mi}}}}
    volumeMounts: [{{name: v, mountPath: /v}}]
  volumes: [{{name: v, emptyDir: {{}}}}]
",
            test_images::BUSYBOX
        ),
    );
    shell.check(&[
        ("kubectl apply -f pod.yaml", 0, "pod/p created"),
        ("kubectl wait --for=condition=Ready --timeout=60s pod/p", 0, "pod/p condition met"),
    ]);
    shell.kubectl().wait_for_event("p", "Started", "");
    shell.check(&[
        (
            "kubectl describe pod p",
            0,
            "Name: p Namespace: test-... Priority: 0 Service Account: default Node: .../... Start Time: ... Labels: app=web \
             Annotations: example.com/note: words Status: Running IP: 10... IPs: IP: 10... \
             Containers: c: Container ID: ...://... Image: docker.io/library/busybox:1.28 Image ID: ... \
             Port: 80/TCP...Host Port: 0/TCP...Command: sleep 100000 State: Running Started: ... Ready: True Restart Count: 0 \
             Limits: memory: 64Mi Requests: cpu: 10m memory: 64Mi \
             Environment: WORD: hello FROM: <set to the key 'k' of config map 'cm'> Optional: true \
             Mounts: /v from v (rw) ... Conditions: Type Status ... Ready True ... PodScheduled True \
             Volumes: v: Type: EmptyDir (a temporary directory that shares a pod's lifetime) Medium: SizeLimit: <unset> ... \
             QoS Class: Burstable Node-Selectors: kubernetes.io/os=linux \
             Tolerations: node.kubernetes.io/not-ready:NoExecute op=Exists for 300s \
             node.kubernetes.io/unreachable:NoExecute op=Exists for 300s \
             Events: Type Reason Age From Message ---- ------ ---- ---- ------- \
             Normal Scheduled ...s default-scheduler Successfully assigned test-.../p to ... \
             Normal Started ...s kubelet ...",
        ),
        ("kubectl describe pod nobody", 1, "Error from server (NotFound): pods \"nobody\" not found"),
        ("kubectl describe pods -l app=nobody", 0, "No resources found in test-... namespace."),
        // Without an exact match, `describe` matches by prefix.
        ("kubectl describe -f pod.yaml", 0, "Name: p ..."),
    ]);
}

#[e2e_test("kubectl describe prints nodes, ConfigMaps, Secrets and namespaces")]
fn describe_prints_other_kinds(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    let node = shell.kubectl().value("pod/p", "/spec/nodeName").as_str().unwrap().to_owned();
    let namespace = shell.kubectl().namespace().to_owned();
    shell.check(&[
        ("kubectl create cm cm --from-literal=k=v", 0, "configmap/cm created"),
        ("kubectl create secret generic s --from-literal=k=four", 0, "secret/s created"),
        ("kubectl describe cm cm", 0, "Name: cm Namespace: test-... Labels: <none> Annotations: <none> Data ==== k: ---- v BinaryData ==== Events: <none>"),
        ("kubectl describe secret s", 0, "Name: s Namespace: test-... Labels: <none> Annotations: <none> Type: Opaque Data ==== k: 4 bytes"),
        (&format!("kubectl describe ns {namespace}"), 0, "Name: test-... Labels: kubernetes.io/metadata.name=test-... Annotations: <none> Status: Active..."),
        (
            &format!("kubectl describe node {node}"),
            0,
            &format!(
                "Name: {node} Roles: <none> Labels: beta.kubernetes.io/arch=... kubernetes.io/hostname={node} ... CreationTimestamp: ... \
                 Taints: <none> Unschedulable: false Lease: HolderIdentity: {node} AcquireTime: <unset> RenewTime: ... \
                 Conditions: Type Status LastHeartbeatTime LastTransitionTime Reason Message ... \
                 MemoryPressure False ... KubeletHasSufficientMemory kubelet has sufficient memory available \
                 DiskPressure False ... PIDPressure False ... Ready True ... KubeletReady kubelet is posting ready status \
                 Addresses: InternalIP: ... Hostname: {node} Capacity: cpu: ... memory: ...Ki pods: 230 Allocatable: ... \
                 System Info: Machine ID: ... Kernel Version: ... Container Runtime Version: ...://... Kubelet Version: v1.35... \
                 PodCIDR: ... Non-terminated Pods: (... in total) ... {namespace} p 0 (0%) 0 (0%) 0 (0%) 0 (0%) ... Allocated resources: ..."
            ),
        ),
    ]);
}

#[e2e_test("kubectl events and get events show a Pod's Events")]
fn events_of_pod_are_shown(cluster: &Cluster) {
    let shell = shell_with_pod(cluster);
    let bad =
        PodBuilder::new("bad").image("docker.io/library/nothing:1").container(&json!({"imagePullPolicy": "Never"}));
    shell.file("bad.json", bad.to_string());
    shell.check(&[
        ("kubectl apply -f bad.json", 0, "pod/bad created"),
        ("kubectl wait --for=jsonpath='{.status.containerStatuses[0].state.waiting.reason}'=ErrImageNeverPull pod/bad --timeout=60s", 0, "pod/bad condition met"),
    ]);
    tests::eventually("the ErrImageNeverPull Event", || {
        shell.run("kubectl events --for pod/bad").stdout.contains("ErrImageNeverPull")
    });
    shell.check(&[
        (
            "kubectl events --for pod/p",
            0,
            "LAST SEEN TYPE REASON OBJECT MESSAGE ... Normal Started Pod/p ...",
        ),
        ("kubectl events --types=Warning --no-headers", 0, "...s... Warning ErrImageNeverPull Pod/bad Container image \"docker.io/library/nothing:1\" is not present with pull policy of Never ..."),
        ("kubectl events --for pod/nobody", 0, "No events found in test-... namespace."),
        ("kubectl events --types=Loud", 1, "error: valid --types are Normal or Warning"),
        ("kubectl get events --field-selector involvedObject.name=p,reason=Scheduled", 0, "LAST SEEN TYPE REASON OBJECT MESSAGE ...s Normal Scheduled pod/p Successfully assigned test-.../p to ..."),
        (
            "kubectl get events.v1. --field-selector reason=Scheduled,involvedObject.name=p -o wide",
            0,
            "LAST SEEN TYPE REASON OBJECT SUBOBJECT SOURCE MESSAGE FIRST SEEN COUNT NAME ...s Normal Scheduled pod/p default-scheduler, ... Successfully assigned ... 1 p...",
        ),
        (
            "kubectl get events.v1. --field-selector reason=Started,involvedObject.name=p -o wide --no-headers",
            0,
            "...s Normal Started pod/p spec.containers{c} kubelet, ... 1 p...",
        ),
        ("kubectl get events.events.k8s.io --field-selector reason=Started,regarding.name=p --no-headers", 0, "...s Normal Started pod/p ..."),
    ]);
}

#[e2e_test("kubectl shows a cluster's version, health, API resources and info")]
fn cluster_version_health_and_resources_are_shown(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.check(&[
        (
            "kubectl api-resources --no-headers --api-group=",
            0,
            "bindings v1 true Binding componentstatuses cs v1 false ComponentStatus configmaps cm v1 true ConfigMap ...events ev v1 true Event ...namespaces ns v1 false Namespace nodes no v1 false Node ...pods po v1 true Pod ...secrets v1 true Secret serviceaccounts sa v1 true ServiceAccount...",
        ),
        ("kubectl api-resources --api-group=coordination.k8s.io --no-headers", 0, "leases coordination.k8s.io/v1 true Lease"),
        ("kubectl api-resources --namespaced=false -o name", 0, "componentstatuses namespaces nodes..."),
        ("kubectl api-resources --verbs=list,watch,nothing -o name", 0, ""),
        ("kubectl api-versions", 0, "...coordination.k8s.io/v1 ...events.k8s.io/v1 ...node.k8s.io/v1 ...v1"),
        ("kubectl version", 0, "Client Version: v1... Server Version: v1.35..."),
        ("kubectl get --raw /livez?verbose", 0, "[+]ping ok ...livez check passed"),
        ("kubectl get --raw /readyz", 0, "ok"),
        ("kubectl get --raw /healthz/ping", 0, "ok"),
        ("kubectl get --raw /version", 0, "{...\"gitVersion\": \"v1.35...\"...}"),
        ("kubectl get --raw /nothing", 1, "Error from server (NotFound): the server could not find the requested resource"),
        ("kubectl get --raw /api/v1/namespaces/default", 0, "{\"kind\":\"Namespace\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"default\",...}"),
        ("kubectl create --raw /api/v1/namespaces -f pod.yaml", 1, "Error from server (BadRequest): ..."),
        ("kubectl top nodes", 0, "NAME CPU(cores) ... MEMORY(bytes) ...m ...% ...Mi ...%"),
        ("kubectl cluster-info", 0, "Kubernetes control plane is running at https://127.0.0.1:... To further debug ..."),
    ]);
}
