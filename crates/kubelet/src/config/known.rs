//! Fields of upstream (`k8s.io/kubelet/config/v1beta1`, 1.35) that Podium ignores: they are accepted, and logged if
//! set.

use serde_json::Value;
use std::collections::BTreeMap;

const TOP: &[&str] = &[
    "apiVersion",
    "authentication",
    "authorization",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxWorkers",
    "containerRuntimeEndpoint",
    "contentType",
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "cpuManagerReconcilePeriod",
    "enableControllerAttachDetach",
    "enableDebugFlagsHandler",
    "enableDebuggingHandlers",
    "enableProfilingHandler",
    "enableServer",
    "enableSystemLogQuery",
    "eventBurst",
    "eventRecordQPS",
    "failCgroupV1",
    "failSwapOn",
    "hairpinMode",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kernelMemcgNotification",
    "kind",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeReservedCgroup",
    "kubeletCgroups",
    "localStorageCapacityIsolation",
    "logging",
    "makeIPTablesUtilChains",
    "maxOpenFiles",
    "memoryManagerPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "oomScoreAdj",
    "podCIDR",
    "podLogsDir",
    "protectKernelDefaults",
    "providerID",
    "qosReserved",
    "reservedMemory",
    "reservedSystemCPUs",
    "rotateCertificates",
    "runOnce",
    "runtimeRequestTimeout",
    "serverTLSBootstrap",
    "showHiddenMetricsForVersion",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "systemReservedCgroup",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
    "topologyManagerPolicy",
    "topologyManagerPolicyOptions",
    "topologyManagerScope",
    "tracing",
    "userNamespaces",
    "volumePluginDir",
    "volumeStatsAggPeriod",
];

/// What may be in those that are objects with fixed fields.
const NESTED: &[(&str, &[&str])] = &[
    ("authentication", &["anonymous", "webhook", "x509"]),
    ("authorization", &["mode", "webhook"]),
    ("logging", &["flushFrequency", "format", "options", "verbosity", "vmodule"]),
    ("memorySwap", &["swapBehavior"]),
    ("tracing", &["endpoint", "samplingRatePerMillion"]),
    ("userNamespaces", &["idsPerPod"]),
];

/// Fields in use that are no pointers upstream: their zero value is the same as none
/// (`SetDefaults_KubeletConfiguration`).
pub(super) const ZERO_IS_DEFAULT: &[&str] = &[
    "address",
    "cgroupDriver",
    "cgroupRoot",
    "containerLogMaxSize",
    "evictionPressureTransitionPeriod",
    "fileCheckFrequency",
    "imageMaximumGCAge",
    "imageMinimumGCAge",
    "imagePullCredentialsVerificationPolicy",
    "maxPods",
    "nodeLeaseDurationSeconds",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
];

/// The paths of all fields that no KubeletConfiguration has.
pub(super) fn unknown(fields: &BTreeMap<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in fields {
        if !TOP.contains(&key.as_str()) {
            found.push(key.clone());
        }
        let Some((_, allowed)) = NESTED.iter().find(|(name, _)| name == key) else { continue };
        let inner = value.as_object().into_iter().flatten().map(|(name, _)| name);
        found.extend(inner.filter(|name| !allowed.contains(&name.as_str())).map(|name| format!("{key}.{name}")));
    }
    found
}
