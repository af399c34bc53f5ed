//! Names of the controllers, as upstream's `--controllers` has them (`cmd/kube-controller-manager/names`).

pub(crate) const CERTIFICATE_SIGNING_REQUEST_APPROVING: &str = "certificatesigningrequest-approving-controller";
pub(crate) const CERTIFICATE_SIGNING_REQUEST_CLEANER: &str = "certificatesigningrequest-cleaner-controller";
pub(crate) const CERTIFICATE_SIGNING_REQUEST_SIGNING: &str = "certificatesigningrequest-signing-controller";
pub(crate) const CLUSTER_ROLE_AGGREGATION: &str = "clusterrole-aggregation-controller";
pub(crate) const CRON_JOB: &str = "cronjob-controller";
pub(crate) const DAEMON_SET: &str = "daemonset-controller";
pub(crate) const DEPLOYMENT: &str = "deployment-controller";
pub(crate) const DISRUPTION: &str = "disruption-controller";
/// Also maintains Endpoints (`endpoints-controller`), and mirrors them (`endpointslice-mirroring-controller`).
pub(crate) const ENDPOINT_SLICE: &str = "endpointslice-controller";
pub(crate) const EPHEMERAL_VOLUME: &str = "ephemeral-volume-controller";
pub(crate) const GARBAGE_COLLECTOR: &str = "garbage-collector-controller";
pub(crate) const HORIZONTAL_POD_AUTOSCALER: &str = "horizontal-pod-autoscaler-controller";
pub(crate) const JOB: &str = "job-controller";
pub(crate) const LEGACY_SERVICE_ACCOUNT_TOKEN_CLEANER: &str = "legacy-serviceaccount-token-cleaner-controller";
pub(crate) const NAMESPACE: &str = "namespace-controller";
pub(crate) const NODE_LIFECYCLE: &str = "node-lifecycle-controller";
pub(crate) const PERSISTENT_VOLUME_BINDER: &str = "persistentvolume-binder-controller";
pub(crate) const PERSISTENT_VOLUME_CLAIM_PROTECTION: &str = "persistentvolumeclaim-protection-controller";
pub(crate) const PERSISTENT_VOLUME_PROTECTION: &str = "persistentvolume-protection-controller";
pub(crate) const POD_GARBAGE_COLLECTOR: &str = "pod-garbage-collector-controller";
pub(crate) const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";
pub(crate) const REPLICA_SET: &str = "replicaset-controller";
pub(crate) const RESOURCE_QUOTA: &str = "resourcequota-controller";
pub(crate) const ROOT_CA_CERTIFICATE_PUBLISHER: &str = "root-ca-certificate-publisher-controller";
pub(crate) const SERVICE_ACCOUNT: &str = "serviceaccount-controller";
pub(crate) const SERVICE_ACCOUNT_TOKEN: &str = "serviceaccount-token-controller";
pub(crate) const SERVICE_CIDR: &str = "service-cidr-controller";
/// Of the cloud controller manager.
pub(crate) const SERVICE_LB: &str = "service-lb-controller";
pub(crate) const STATEFUL_SET: &str = "statefulset-controller";
pub(crate) const TAINT_EVICTION: &str = "taint-eviction-controller";
pub(crate) const TTL_AFTER_FINISHED: &str = "ttl-after-finished-controller";
pub(crate) const VOLUME_ATTRIBUTES_CLASS_PROTECTION: &str = "volumeattributesclass-protection-controller";
