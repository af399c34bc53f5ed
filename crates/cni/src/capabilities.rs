//! Capability arguments and `CNI_ARGS` of a Pod (containerd's `cniNamespaceOpts`, with the names of the CNI conventions).

use crate::Error;
use api::quantity::Amount;
use runtime::SandboxConfig;
use serde_json::{Map, Value, json};

/// Bounds of a bandwidth, in bits per second (upstream's `validateBandwidthIsReasonable`).
const BANDWIDTH: std::ops::RangeInclusive<i64> = 1_000..=1_000_000_000_000_000;

/// Returns the arguments that plugins get if they have the capability.
pub(crate) fn capabilities(config: &SandboxConfig) -> Result<Map<String, Value>, Error> {
    let mut found = Map::new();
    found.insert("io.kubernetes.cri.pod-annotations".to_owned(), json!(config.annotations));
    let ports = config.port_mappings.iter().filter(|mapping| mapping.host_port > 0);
    let ports = ports.map(|mapping| {
        json!({
            "hostPort": mapping.host_port,
            "containerPort": mapping.container_port,
            "protocol": mapping.protocol.to_ascii_lowercase(),
            "hostIP": mapping.host_ip,
        })
    });
    let ports: Vec<Value> = ports.collect();
    if !ports.is_empty() {
        found.insert("portMappings".to_owned(), ports.into());
    }
    if let Some(bandwidth) = bandwidth(config)? {
        found.insert("bandwidth".to_owned(), bandwidth.into());
    }
    if let Some(dns) = &config.dns {
        let dns = json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options});
        found.insert("dns".to_owned(), dns);
    }
    if let Some(cgroup) = config.cgroup_parent.as_deref().filter(|cgroup| !cgroup.is_empty()) {
        found.insert("cgroupPath".to_owned(), cgroup.into());
    }
    Ok(found)
}

/// Returns the limits of the bandwidth annotations, in bits per second; the burst is not limited.
fn bandwidth(config: &SandboxConfig) -> Result<Option<Map<String, Value>>, Error> {
    let mut limits = Map::new();
    for direction in ["ingress", "egress"] {
        let Some(text) = config.annotations.get(&format!("kubernetes.io/{direction}-bandwidth")) else { continue };
        let rate = Amount::parse(text).map_err(|error| Error::Bandwidth(error.to_string()))?.value();
        if !BANDWIDTH.contains(&rate) {
            let (size, bound) = if rate < *BANDWIDTH.start() { ("small", "< 1kbit") } else { ("large", "> 1Pbit") };
            return Err(Error::Bandwidth(format!("resource is unreasonably {size} ({bound})")));
        }
        limits.insert(format!("{direction}Rate"), rate.into());
        limits.insert(format!("{direction}Burst"), u32::MAX.into());
    }
    Ok((!limits.is_empty()).then_some(limits))
}

/// Returns the value of `CNI_ARGS`.
pub(crate) fn arguments(sandbox: &str, config: &SandboxConfig) -> Result<String, Error> {
    let arguments = [
        ("K8S_POD_NAMESPACE", config.namespace.as_str()),
        ("K8S_POD_NAME", &config.name),
        ("K8S_POD_INFRA_CONTAINER_ID", sandbox),
        ("K8S_POD_UID", &config.uid),
        ("IgnoreUnknown", "1"),
    ];
    // A static Pod chooses its UID.
    if let Some((name, _)) = arguments.iter().find(|(_, value)| value.contains(';')) {
        return Err(Error::InvalidArgument(name));
    }
    Ok(arguments.map(|(name, value)| format!("{name}={value}")).join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::{Dns, PortMapping};

    fn annotated(name: &str, value: &str) -> SandboxConfig {
        let annotations = [(format!("kubernetes.io/{name}-bandwidth"), value.to_owned())].into();
        SandboxConfig { annotations, ..crate::tests::sandbox_config() }
    }

    #[test]
    fn capabilities_have_the_names_of_the_conventions() {
        let port = |host_port, protocol: &str, host_ip: &str| PortMapping {
            protocol: protocol.into(),
            container_port: 80,
            host_port,
            host_ip: host_ip.into(),
        };
        let config = SandboxConfig {
            dns: Some(Dns { servers: vec!["10.96.0.10".into()], searches: vec!["svc".into()], options: Vec::new() }),
            port_mappings: vec![port(8080, "UDP", "127.0.0.1"), port(0, "TCP", "")],
            cgroup_parent: Some("/kubepods/pod1".into()),
            ..annotated("egress", "10M")
        };
        let expected = json!({
            "io.kubernetes.cri.pod-annotations": {"kubernetes.io/egress-bandwidth": "10M"},
            "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "127.0.0.1"}],
            "bandwidth": {"egressRate": 10_000_000, "egressBurst": u32::MAX},
            "dns": {"servers": ["10.96.0.10"], "searches": ["svc"], "options": []},
            "cgroupPath": "/kubepods/pod1",
        });
        assert_eq!(Value::from(capabilities(&config).unwrap()), expected);
        let without = capabilities(&crate::tests::sandbox_config()).unwrap();
        assert_eq!(Value::from(without), json!({"io.kubernetes.cri.pod-annotations": {}}));
    }

    #[test]
    fn unreasonable_bandwidth_is_refused() {
        for (value, expected) in
            [("1", "unreasonably small (< 1kbit)"), ("1E", "unreasonably large (> 1Pbit)"), ("x", "")]
        {
            let error = capabilities(&annotated("ingress", value)).unwrap_err().to_string();
            assert!(error.contains("reading pod bandwidth annotations: ") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn arguments_name_the_pod() {
        let config = crate::tests::sandbox_config();
        assert_eq!(
            arguments("s1", &config).unwrap(),
            "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u1;IgnoreUnknown=1"
        );
        let forged = SandboxConfig { uid: "u;K8S_POD_NAME=other".into(), ..config };
        assert!(arguments("s1", &forged).is_err());
    }
}
