//! The KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`): the fields that Podium supports.

mod access;
pub(crate) mod duration;
mod error;
mod eviction;
mod images;
mod known;
mod reserved;
mod serving;
mod shutdown;

pub(crate) use access::AccessSettings;
use api::feature_gates::{FeatureGates, Gate};
pub use error::ConfigError;
use error::InvalidValueError;
pub use eviction::EvictionSettings;
use eviction::EvictionSettingsError;
pub use images::ImagesConfiguration;
use k8s_openapi::api::core::v1::Taint;
use lifecycle::eviction::EvictionPolicy;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
pub use serving::ServingSettings;
pub use shutdown::ShutdownSettings;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Supported fields of the KubeletConfiguration, with upstream's defaults.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    /// Maximum number of Pods.
    pub max_pods: u32,
    /// Maximum number of Pods per CPU; 0 for no limit. `max_pods` is still the limit.
    pub pods_per_core: u32,
    /// Size in bytes at which a container's log is rotated (`10Mi`).
    #[serde(deserialize_with = "bytes", serialize_with = "quantity")]
    pub container_log_max_size: u64,
    /// Maximum number of log files of a container, including the current one.
    pub container_log_max_files: u32,
    /// Interval at which log sizes are checked.
    #[serde(with = "duration")]
    pub container_log_monitor_interval: Duration,
    /// Duration of the node's Lease, which is renewed after a quarter of it.
    pub node_lease_duration_seconds: u32,
    /// Interval at which the node's status is computed.
    #[serde(with = "duration")]
    pub node_status_update_frequency: Duration,
    /// Interval at which an unchanged node status is reported.
    #[serde(with = "duration")]
    pub node_status_report_frequency: Duration,
    /// Restart back-off of containers.
    pub crash_loop_back_off: CrashLoopBackOff,
    /// The node's `resolv.conf`, for Pods with `dnsPolicy: Default`.
    #[serde(rename = "resolvConf")]
    pub resolv_conf: String,
    /// IP addresses of the cluster DNS servers.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    /// The cluster's domain.
    pub cluster_domain: String,
    /// Maximum number of images in the node's status; -1 for all.
    pub node_status_max_images: i64,
    /// Whether the node registers itself.
    pub register_node: bool,
    /// Taints of a node that registers for the first time.
    pub register_with_taints: Vec<Taint>,
    /// Resources reserved for system daemons.
    pub system_reserved: BTreeMap<String, String>,
    /// Resources reserved for Kubernetes daemons.
    pub kube_reserved: BTreeMap<String, String>,
    /// Enforcement of node allocatable: `pods` limits the cgroup of all Pods.
    pub enforce_node_allocatable: Vec<String>,
    /// Whether Pods have their own cgroups.
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    /// Whether CPU limits are enforced.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// The period of CPU limits.
    #[serde(rename = "cpuCFSQuotaPeriod", with = "duration")]
    pub cpu_cfs_quota_period: Duration,
    /// Maximum number of processes of a Pod; -1 for no limit.
    pub pod_pids_limit: i64,
    /// Whether only the process that the kernel selects is killed when a container exceeds its memory limit. By default all of its
    /// processes are killed with cgroup v2, and one with cgroup v1.
    #[serde(rename = "singleProcessOOMKill", skip_serializing_if = "Option::is_none")]
    pub single_process_oom_kill: Option<bool>,
    /// Whether `RuntimeDefault` is the default seccomp profile.
    pub seccomp_default: bool,
    /// Allowed unsafe sysctls: names, or prefixes followed by `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Parent cgroup of all Pods; `None` for one that is derived from the data directory.
    pub cgroup_root: Option<String>,
    /// `cgroupfs` or `systemd`. The driver that a CRI runtime reports takes precedence.
    pub cgroup_driver: String,
    /// Directory or file of static Pod manifests; empty for none.
    pub static_pod_path: Option<PathBuf>,
    /// Interval at which static Pod manifests are read, in addition to inotify events.
    #[serde(with = "duration")]
    pub file_check_frequency: Duration,
    /// Feature gates, as `--feature-gates` sets them.
    pub feature_gates: BTreeMap<String, bool>,
    /// Eviction thresholds.
    #[serde(flatten)]
    pub eviction: EvictionSettings,
    /// Image pulls and image garbage collection.
    #[serde(flatten)]
    pub images: ImagesConfiguration,
    /// Graceful node shutdown.
    #[serde(flatten)]
    pub shutdown: ShutdownSettings,
    /// HTTPS server of the kubelet.
    #[serde(flatten)]
    pub serving: ServingSettings,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Restart back-off of the node's containers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CrashLoopBackOff {
    /// Maximum delay between restarts, 1 s to 300 s.
    #[serde(deserialize_with = "duration::deserialize_some", serialize_with = "duration::serialize_some")]
    pub max_container_restart_period: Option<Duration>,
}

impl Default for KubeletConfiguration {
    fn default() -> Self {
        Self {
            max_pods: 110,
            pods_per_core: 0,
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            container_log_monitor_interval: Duration::from_secs(10),
            node_lease_duration_seconds: 40,
            node_status_update_frequency: Duration::from_secs(10),
            node_status_report_frequency: Duration::from_secs(300),
            crash_loop_back_off: CrashLoopBackOff::default(),
            resolv_conf: "/etc/resolv.conf".to_owned(),
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            node_status_max_images: 50,
            register_node: true,
            register_with_taints: Vec::new(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            enforce_node_allocatable: vec!["pods".to_owned()],
            cgroups_per_qos: true,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: Duration::from_millis(100),
            pod_pids_limit: -1,
            single_process_oom_kill: None,
            seccomp_default: false,
            allowed_unsafe_sysctls: Vec::new(),
            cgroup_root: None,
            cgroup_driver: "cgroupfs".to_owned(),
            static_pod_path: None,
            file_check_frequency: Duration::from_secs(20),
            feature_gates: BTreeMap::new(),
            eviction: EvictionSettings::default(),
            images: ImagesConfiguration::default(),
            shutdown: ShutdownSettings::default(),
            serving: ServingSettings::default(),
            rest: BTreeMap::new(),
        }
    }
}

impl KubeletConfiguration {
    /// Parses a KubeletConfiguration from YAML or JSON.
    ///
    /// # Errors
    /// For another kind, unknown fields (all are listed), or a value out of range.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut value: Value = serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(Box::new(error)))?;
        let word = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind) = (word("apiVersion"), word("kind"));
        if kind != "KubeletConfiguration" || api_version != "kubelet.config.k8s.io/v1beta1" {
            return Err(ConfigError::WrongKind { api_version, kind });
        }
        if let Value::Object(fields) = &mut value {
            let unset = |key: &str, value: &Value| known::ZERO_IS_DEFAULT.contains(&key) && is_zero(value);
            fields.retain(|key, value| !(value.is_null() || unset(key, value)));
        }
        let config: Self = serde_json::from_value(value).map_err(ConfigError::FieldType)?;
        let unknown = known::unknown(&config.rest);
        if !unknown.is_empty() {
            return Err(ConfigError::UnknownFields(unknown));
        }
        config.validate()?;
        Ok(config)
    }

    /// Returns the non-empty fields of the file that upstream has and Podium ignores.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let used = |(key, _): &(&String, &Value)| {
            matches!(key.as_str(), "apiVersion" | "kind" | "authentication" | "authorization")
        };
        let is_set = move |field: &(&String, &Value)| !used(field) && !is_zero(field.1);
        self.rest.iter().filter(is_set).map(|(key, _)| key.as_str())
    }

    /// Parses the feature gates of the file.
    ///
    /// # Errors
    /// For a gate that does not exist, or that is locked to another value.
    pub fn gates(&self) -> Result<FeatureGates, ConfigError> {
        let mut gates = FeatureGates::default();
        for (name, value) in &self.feature_gates {
            gates.set(name, *value).map_err(InvalidValueError::from)?;
        }
        Ok(gates)
    }

    /// Returns the node's maximum restart delay, if set (upstream's `ValidateKubeletConfiguration`).
    ///
    /// # Errors
    /// If it is out of range, or set while its feature gate is disabled.
    pub fn max_restart_period(&self, gates: &FeatureGates) -> Result<Option<Duration>, ConfigError> {
        let period = self.crash_loop_back_off.max_container_restart_period;
        match period {
            Some(_) if !gates.enabled(Gate::KubeletCrashLoopBackOffMax) => {
                Err(InvalidValueError::RestartPeriodGate.into())
            }
            Some(p) if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&p) => {
                Err(InvalidValueError::RestartPeriod(p).into())
            }
            _ => Ok(period),
        }
    }

    /// Returns the eviction policy.
    pub(crate) fn evictions(&self) -> Result<EvictionPolicy, EvictionSettingsError> {
        self.eviction.policy(self.enforce_node_allocatable.iter().any(|name| name == "pods"))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.validate_values()?;
        self.gates().map(drop)
    }

    fn validate_values(&self) -> Result<(), InvalidValueError> {
        if self.container_log_max_files < 2 {
            return Err(InvalidValueError::LogMaxFiles);
        }
        self.images.validate()?;
        self.check_serving()?;
        self.access()?;
        if self.container_log_monitor_interval < Duration::from_secs(3) {
            return Err(InvalidValueError::LogMonitorInterval);
        }
        if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&self.cpu_cfs_quota_period) {
            return Err(InvalidValueError::CpuQuotaPeriod);
        }
        if self.node_status_max_images < -1 {
            return Err(InvalidValueError::NodeStatusMaxImages);
        }
        if !matches!(self.cgroup_driver.as_str(), "cgroupfs" | "systemd") {
            return Err(InvalidValueError::CgroupDriver);
        }
        if let Some(error) = self.allowed_unsafe_sysctls.iter().find_map(|p| lifecycle::sysctls::pattern_error(p)) {
            return Err(InvalidValueError::Sysctl(error));
        }
        self.check_reserved()?;
        self.evictions()?;
        Ok(())
    }
}

/// Whether a value is Go's zero value, which counts as unset.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || duration::parse(text).is_some_and(|d| d.is_zero()),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let amount = api::quantity::Amount::parse(&text).map_err(serde::de::Error::custom)?;
    u64::try_from(amount.value()).map_err(serde::de::Error::custom)
}

fn quantity<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    let amount = api::quantity::Amount::units(i64::try_from(*bytes).unwrap_or(i64::MAX));
    serializer.serialize_str(&amount.to_binary_quantity().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(super) fn parse(body: &str) -> Result<KubeletConfiguration, ConfigError> {
        let text = format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{body}");
        KubeletConfiguration::parse(&text)
    }

    #[track_caller]
    pub(super) fn refuses(body: &str, part: &str) {
        let error = parse(body).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn supported_fields_are_parsed() {
        let config = parse(
            "maxPods: 7\ncontainerLogMaxSize: 1Mi\nnodeStatusUpdateFrequency: 1m30s\ncrashLoopBackOff:\n  maxContainerRestartPeriod: 2s\nresolvConf: /x\nclusterDNS: [10.0.0.10]\nevictionHard: {memory.available: 5%}\noomScoreAdj: -1",
        )
        .unwrap();
        assert_eq!((config.max_pods, config.container_log_max_size), (7, 1 << 20));
        assert_eq!(config.node_status_update_frequency, Duration::from_secs(90));
        assert_eq!(config.crash_loop_back_off.max_container_restart_period, Some(Duration::from_secs(2)));
        assert_eq!((config.resolv_conf.as_str(), config.cluster_dns.len()), ("/x", 1));
        assert_eq!(config.unused().collect::<Vec<_>>(), ["oomScoreAdj"]);
        assert_eq!(config.evictions().unwrap().thresholds.len(), 2);
    }

    #[test]
    fn invalid_configuration_is_rejected_with_the_field() {
        refuses("maxPod: 7\nfoo: 1", "unknown fields: foo, maxPod");
        refuses("maxPods: x", "cannot be read");
        refuses("authentication: {x509: {}, basic: {}}", "unknown fields: authentication.basic");
        refuses("featureGates: {Nope: true}", "unrecognized feature gate: Nope");
        refuses("containerLogMaxFiles: 1", "containerLogMaxFiles");
        refuses("crashLoopBackOff: {max: 1s}", "unknown field");
        refuses("systemReserved: {cpu: lots}", "lots");
        refuses("evictionHard: {disk: 1%}", "unsupported eviction signal disk");
        assert!(matches!(KubeletConfiguration::parse("kind: Pod"), Err(ConfigError::WrongKind { .. })));
    }

    #[track_caller]
    fn check_period(period: &str, gates: &str, expected: Result<u64, &str>) {
        let config = parse(&format!("crashLoopBackOff: {{maxContainerRestartPeriod: {period}}}")).unwrap();
        let found = config.max_restart_period(&FeatureGates::parse(gates).unwrap());
        let found = found.map(|p| p.unwrap().as_secs()).map_err(|e| e.to_string());
        let prefix = "the KubeletConfiguration is invalid: invalid configuration: ";
        assert_eq!(found, expected.map_err(|words| format!("{prefix}{words}")), "{period} {gates}");
    }

    #[test]
    fn max_restart_period_is_validated_with_its_feature_gate() {
        check_period("1s", "", Ok(1));
        check_period("5m", "", Ok(300));
        let range = |got| {
            format!("CrashLoopBackOff.MaxContainerRestartPeriod (got: {got} seconds) must be set between 1s and 300s")
        };
        check_period("301s", "", Err(&range("301")));
        check_period("500ms", "", Err(&range("0.5")));
        let off = "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must not be set";
        check_period("2s", "KubeletCrashLoopBackOffMax=false", Err(off));
    }

    #[test]
    fn empty_fields_of_kubeadm_files_mean_the_default() {
        let config = parse(
            "nodeStatusUpdateFrequency: 0s\nnodeStatusReportFrequency: 0s\nmaxPods: 0\nfileCheckFrequency: 0s\nlogging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}}}\nclusterDomain: cluster.local",
        );
        let config = config.unwrap();
        assert_eq!((config.node_status_update_frequency, config.max_pods), (Duration::from_secs(10), 110));
        assert_eq!(config.unused().count(), 0);
        assert_eq!(config.cluster_domain, "cluster.local");
    }

    #[test]
    fn it_is_shown_as_it_is_written() {
        let config =
            parse("maxPods: 7\nnodeStatusUpdateFrequency: 1m30s\ncontainerLogMaxSize: 1Mi\noomScoreAdj: -1").unwrap();
        let shown = serde_json::to_value(&config).unwrap();
        for (field, expected) in [
            ("maxPods", json!(7)),
            ("nodeStatusUpdateFrequency", json!("1m30s")),
            ("evictionPressureTransitionPeriod", json!("5m0s")),
            ("cpuCFSQuotaPeriod", json!("100ms")),
            ("fileCheckFrequency", json!("20s")),
            ("enableSystemLogHandler", json!(true)),
            ("containerLogMaxSize", json!("1Mi")),
            ("oomScoreAdj", json!(-1)),
        ] {
            assert_eq!(shown[field], expected, "{field}");
        }
    }
}
