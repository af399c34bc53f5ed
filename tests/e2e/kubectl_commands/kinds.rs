//! kubectl with every kind: create, list, describe, explain, scale and delete.

use super::shell;
use tests::{Cluster, e2e_test};

/// kubectl's name of an object, and its manifest.
const KINDS: &[(&str, &str)] = &[
    ("controllerrevision.apps/NAME", "{apiVersion: apps/v1, kind: ControllerRevision, data: {a: b}, revision: 1}"),
    ("daemonset.apps/NAME", "{apiVersion: apps/v1, kind: DaemonSet, spec: {selector: SELECTOR, template: TEMPLATE}}"),
    (
        "deployment.apps/NAME",
        "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0, selector: SELECTOR, template: TEMPLATE}}",
    ),
    (
        "replicaset.apps/NAME",
        "{apiVersion: apps/v1, kind: ReplicaSet, spec: {replicas: 0, selector: SELECTOR, template: TEMPLATE}}",
    ),
    (
        "statefulset.apps/NAME",
        "{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 0, serviceName: s, selector: SELECTOR, template: TEMPLATE}}",
    ),
    (
        "job.batch/NAME",
        "{apiVersion: batch/v1, kind: Job, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}",
    ),
    (
        "cronjob.batch/NAME",
        "{apiVersion: batch/v1, kind: CronJob, spec: {schedule: '@daily', suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}",
    ),
    (
        "endpoints/NAME",
        "{apiVersion: v1, kind: Endpoints, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}",
    ),
    ("limitrange/NAME", "{apiVersion: v1, kind: LimitRange, spec: {limits: [{type: Container, max: {cpu: 2}}]}}"),
    (
        "persistentvolume/NAME",
        "{apiVersion: v1, kind: PersistentVolume, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /v}}}",
    ),
    (
        "persistentvolumeclaim/NAME",
        "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
    ),
    ("podtemplate/NAME", "{apiVersion: v1, kind: PodTemplate, template: TEMPLATE}"),
    (
        "replicationcontroller/NAME",
        "{apiVersion: v1, kind: ReplicationController, spec: {replicas: 0, template: TEMPLATE}}",
    ),
    ("resourcequota/NAME", "{apiVersion: v1, kind: ResourceQuota, spec: {hard: {pods: 9}}}"),
    (
        "endpointslice.discovery.k8s.io/NAME",
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}]}",
    ),
    (
        "poddisruptionbudget.policy/NAME",
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: SELECTOR}}",
    ),
    ("priorityclass.scheduling.k8s.io/NAME", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, value: 7}"),
    (
        "clusterrole.rbac.authorization.k8s.io/NAME",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: [{nonResourceURLs: [/x], verbs: [get]}]}",
    ),
    (
        "clusterrolebinding.rbac.authorization.k8s.io/NAME",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, roleRef: {kind: ClusterRole, name: r, apiGroup: rbac.authorization.k8s.io}, subjects: [{kind: User, name: u, apiGroup: rbac.authorization.k8s.io}]}",
    ),
    (
        "role.rbac.authorization.k8s.io/NAME",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
    ),
    (
        "rolebinding.rbac.authorization.k8s.io/NAME",
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: {kind: Role, name: r, apiGroup: rbac.authorization.k8s.io}}",
    ),
    (
        "validatingadmissionpolicy.admissionregistration.k8s.io/NAME",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [x.example.com], apiVersions: [v1], resources: [xs]}]}, validations: [{expression: 'true'}]}}",
    ),
    (
        "validatingadmissionpolicybinding.admissionregistration.k8s.io/NAME",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, spec: {policyName: p, validationActions: [Audit]}}",
    ),
    (
        "mutatingwebhookconfiguration.admissionregistration.k8s.io/NAME",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: []}",
    ),
    (
        "validatingwebhookconfiguration.admissionregistration.k8s.io/NAME",
        "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: []}",
    ),
    (
        "horizontalpodautoscaler.autoscaling/NAME",
        "{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}",
    ),
    (
        "certificatesigningrequest.certificates.k8s.io/NAME",
        "{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, spec: {request: REQUEST, signerName: example.com/s, usages: [client auth]}}",
    ),
    (
        "flowschema.flowcontrol.apiserver.k8s.io/NAME",
        "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, spec: {priorityLevelConfiguration: {name: p}}}",
    ),
    (
        "prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/NAME",
        "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}",
    ),
    (
        "ingress.networking.k8s.io/NAME",
        "{apiVersion: networking.k8s.io/v1, kind: Ingress, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}",
    ),
    (
        "ingressclass.networking.k8s.io/NAME",
        "{apiVersion: networking.k8s.io/v1, kind: IngressClass, spec: {controller: example.com/c}}",
    ),
    (
        "networkpolicy.networking.k8s.io/NAME",
        "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, spec: {podSelector: {}}}",
    ),
    (
        "servicecidr.networking.k8s.io/NAME",
        "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, spec: {cidrs: [10.77.0.0/24]}}",
    ),
    (
        "deviceclass.resource.k8s.io/NAME",
        "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, spec: {selectors: [{cel: {expression: 'true'}}]}}",
    ),
    ("resourceclaim.resource.k8s.io/NAME", "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, spec: CLAIM}"),
    (
        "resourceclaimtemplate.resource.k8s.io/NAME",
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, spec: {spec: CLAIM}}",
    ),
    (
        "resourceslice.resource.k8s.io/NAME",
        "{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, spec: {driver: example.com, allNodes: true, pool: {name: p, generation: 1, resourceSliceCount: 1}}}",
    ),
    (
        "csidriver.storage.k8s.io/NAME",
        "{apiVersion: storage.k8s.io/v1, kind: CSIDriver, spec: {attachRequired: false}}",
    ),
    ("csinode.storage.k8s.io/NAME", "{apiVersion: storage.k8s.io/v1, kind: CSINode, spec: {drivers: []}}"),
    (
        "csistoragecapacity.storage.k8s.io/NAME",
        "{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, storageClassName: s}",
    ),
    (
        "storageclass.storage.k8s.io/NAME",
        "{apiVersion: storage.k8s.io/v1, kind: StorageClass, provisioner: example.com/p}",
    ),
    (
        "volumeattachment.storage.k8s.io/NAME",
        "{apiVersion: storage.k8s.io/v1, kind: VolumeAttachment, spec: {attacher: example.com, nodeName: node-1, source: {persistentVolumeName: v}}}",
    ),
    (
        "volumeattributesclass.storage.k8s.io/NAME",
        "{apiVersion: storage.k8s.io/v1, kind: VolumeAttributesClass, driverName: example.com, parameters: {iops: '9'}}",
    ),
];

/// Placeholders of the manifests above, and their values.
const PARTS: [(&str, &str); 4] = [
    ("TEMPLATE", "{metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}"),
    ("SELECTOR", "{matchLabels: {app: web}}"),
    ("CLAIM", "{devices: {requests: [{name: r, exactly: {deviceClassName: d}}]}}"),
    // For the name `test`, with a discarded Ed25519 key.
    (
        "REQUEST",
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHT01FSUNBUUF3RHpFTk1Bc0dBMVVFQXd3RWRHVnpkREFxTUFVR0F5dGxjQU1oQU9xMFFLVmpuY3pjNzBsYwo5OGE1d25VeWRoVEV2dW0veGNLdEY0QXkxc0tCb0FBd0JRWURLMlZ3QTBFQXBKVThieTFSckRqczRieHhyRXNUCmxMWnR5OFV4U2FDL0RpZ1h0a2xQZDJ3ZGlNMCtXU0VTT0F2eGZmT29KRWZuZlZ2SElKS0tacFM0eEVkc3oxaHcKQmc9PQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K",
    ),
];

#[e2e_test("kubectl creates, shows, describes and deletes every kind")]
fn every_kind_is_created_shown_and_deleted(cluster: &Cluster) {
    let shell = shell(cluster);
    // Cluster-scoped objects have the test's namespace in their name.
    let name = shell.kubectl().namespace().to_owned();
    for (called, manifest) in KINDS {
        let called = called.replace("NAME", &name);
        let manifest = PARTS.iter().fold((*manifest).to_owned(), |text, (part, value)| text.replace(part, value));
        // Text that begins with a brace would be parsed as JSON.
        shell.file("one.yaml", manifest.replacen('{', &format!("--- # {called}\n{{metadata: {{name: {name}}}, "), 1));
        let kind = called.split(['.', '/']).next().unwrap_or_default();
        // kubectl 1.32 describes these in versions that Kubernetes 1.35 does not serve by default.
        let beta = ["servicecidr", "volumeattributesclass"].contains(&kind);
        let described = if beta { "get" } else { "describe" };
        let warned = if kind == "endpoints" {
            "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        } else {
            ""
        };
        let done = |verb: &str| format!("{called} {verb} {warned}");
        shell.check(&[
            ("kubectl create -f one.yaml --validate=strict", 0, &done("created")),
            (&format!("kubectl get {called} -o name"), 0, &format!("{called} {warned}")),
            (&format!("kubectl get {called} --no-headers"), 0, &format!("{name}...")),
            (&format!("kubectl {described} {called}"), 0, &format!("N...{name}...")),
            (&format!("kubectl explain {kind}"), 0, "...KIND: ...VERSION: ..."),
            ("kubectl apply -f one.yaml --server-side --force-conflicts", 0, &done("serverside-applied")),
            (&format!("kubectl label {called} seen=yes"), 0, &done("labeled")),
            (&format!("kubectl delete {called} --timeout=90s"), 0, &format!("...{name}\" deleted...")),
            (&format!("kubectl get {called}"), 1, "Error from server (NotFound): ..."),
        ]);
    }
}

#[e2e_test("kubectl scale changes the replicas of every kind that has a scale")]
fn scale_changes_replicas(cluster: &Cluster) {
    let shell = shell(cluster);
    shell.check(&[
        ("kubectl create deployment web --image=i --replicas=0", 0, "deployment.apps/web created"),
        (
            "kubectl scale deployment web --replicas=3 --current-replicas=1",
            1,
            "error: Expected replicas to be 1, was 0",
        ),
        ("kubectl scale deployment web --replicas=0", 0, "deployment.apps/web scaled"),
        ("kubectl get deployment web", 0, "NAME READY UP-TO-DATE AVAILABLE AGE web 0/0 0 0 ..."),
        ("kubectl set image deployment/web i=j:1", 0, "deployment.apps/web image updated"),
        ("kubectl get deployment web -o wide --no-headers", 0, "web 0/0 0 0 ... i j:1 app=web"),
        ("kubectl delete deployment web", 0, "...\"web\" deleted..."),
    ]);
}

#[e2e_test("a Pod gets the priority of its PriorityClass")]
fn pod_gets_priority_of_its_class(cluster: &Cluster) {
    let shell = shell(cluster);
    let class = shell.kubectl().namespace().to_owned();
    shell.check(&[
        (
            &format!("kubectl create priorityclass {class} --value=1000 --preemption-policy=Never"),
            0,
            &format!("priorityclass.scheduling.k8s.io/{class} created"),
        ),
        (&format!("kubectl get priorityclass {class} --no-headers"), 0, &format!("{class} 1000 false ... Never")),
        (
            &format!("kubectl run p --image=i --restart=Never --overrides='{{\"spec\":{{\"priorityClassName\":\"{class}\",\"schedulerName\":\"none\"}}}}'"),
            0,
            "pod/p created",
        ),
        ("kubectl get pod p -o jsonpath='{.spec.priority} {.spec.preemptionPolicy}'", 0, "1000 Never"),
        (&format!("kubectl delete priorityclass {class}"), 0, "...deleted..."),
        ("kubectl delete pod p --now", 0, "..."),
    ]);
}
