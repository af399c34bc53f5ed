//! Hostname of a Pod, and the hosts file of its containers (upstream's `kubelet_pods.go`).

use crate::config::KubeletConfiguration;
use k8s_openapi::api::core::v1::{HostAlias, PodSpec};
use std::{fmt::Write, net::IpAddr};

/// Maximum length of a hostname in bytes.
const MAX_LENGTH: usize = 63;

/// The FQDN (`setHostnameAsFQDN`) is too long for the kernel, with upstream's message.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long (64 characters is the max, {} characters requested)",
    .fqdn.len()
)]
pub(crate) struct FqdnTooLongError {
    fqdn: String,
}

/// Hostname and domain of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodHostname {
    /// Hostname without domain.
    pub(crate) short: String,
    /// `SUBDOMAIN.NAMESPACE.svc.CLUSTERDOMAIN`; empty without a subdomain.
    pub(crate) domain: String,
}

impl PodHostname {
    pub(crate) fn new(spec: &PodSpec, name: &str, namespace: &str, config: &KubeletConfiguration) -> Self {
        if let Some(short) = spec.hostname_override.clone() {
            return Self { short, domain: String::new() };
        }
        let requested = spec.hostname.as_deref().filter(|h| !h.is_empty()).unwrap_or(name);
        let truncated: String = requested.chars().take(MAX_LENGTH).collect();
        let short = if truncated.len() < requested.len() {
            truncated.trim_end_matches(['-', '.']).to_owned()
        } else {
            truncated
        };
        let domain = match spec.subdomain.as_deref().filter(|s| !s.is_empty()) {
            Some(subdomain) => format!("{subdomain}.{namespace}.svc.{}", config.cluster_domain),
            None => String::new(),
        };
        Self { short, domain }
    }

    /// Returns the hostname that is set in the Pod.
    pub(crate) fn hostname_in_pod(&self, spec: &PodSpec) -> Result<String, FqdnTooLongError> {
        if spec.set_hostname_as_fqdn != Some(true) || self.domain.is_empty() {
            return Ok(self.short.clone());
        }
        let fqdn = format!("{}.{}", self.short, self.domain);
        if fqdn.len() > 64 { Err(FqdnTooLongError { fqdn }) } else { Ok(fqdn) }
    }
}

/// Returns the hosts file of a Pod with its own network (`managedHostsFileContent`).
pub(crate) fn managed_hosts_file(ips: &[IpAddr], name: &PodHostname, aliases: &[HostAlias]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for ip in ips {
        // Writing to a String cannot fail.
        let _ = if name.domain.is_empty() {
            writeln!(text, "{ip}\t{}", name.short)
        } else {
            writeln!(text, "{ip}\t{}.{}\t{}", name.short, name.domain, name.short)
        };
    }
    text + &host_alias_entries(aliases)
}

/// Returns the hosts file of a Pod in the host network: the node's, and host aliases (`nodeHostsFileContent`).
pub(crate) fn node_hosts_file(node: &str, aliases: &[HostAlias]) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node}{}", host_alias_entries(aliases))
}

fn host_alias_entries(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let line = |alias: &HostAlias| {
        format!("{}\t{}\n", alias.ip, alias.hostnames.iter().flatten().cloned().collect::<Vec<_>>().join("\t"))
    };
    format!("\n# Entries added by HostAliases.\n{}", aliases.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hostname(fields: Value) -> (PodHostname, PodSpec) {
        let mut spec = json!({"containers": []});
        fields.as_object().unwrap().iter().for_each(|(k, v)| spec[k] = v.clone());
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let mut config = KubeletConfiguration::default();
        config.cluster_domain = "cluster.local".to_owned();
        (PodHostname::new(&spec, "p", "ns", &config), spec)
    }

    #[track_caller]
    fn check(fields: Value, short: &str, domain: &str, hostname_in_pod: Result<&str, &str>) {
        let (name, spec) = hostname(fields);
        assert_eq!((name.short.as_str(), name.domain.as_str()), (short, domain));
        match (name.hostname_in_pod(&spec), hostname_in_pod) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(found), Err(part)) => assert!(found.to_string().contains(part), "{found}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn hostname_and_domain_follow_the_pod_spec() {
        check(json!({}), "p", "", Ok("p"));
        check(json!({"hostname": "h", "subdomain": "s"}), "h", "s.ns.svc.cluster.local", Ok("h"));
        let fqdn = json!({"subdomain": "s", "setHostnameAsFQDN": true});
        check(fqdn, "p", "s.ns.svc.cluster.local", Ok("p.s.ns.svc.cluster.local"));
        check(json!({"hostname": "h", "subdomain": "s", "hostnameOverride": "o.x"}), "o.x", "", Ok("o.x"));
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(9));
        let truncated = "a".repeat(62);
        check(json!({"hostname": long}), &truncated, "", Ok(&truncated));
        let domain = "s.ns.svc.cluster.local";
        check(
            json!({"hostname": long, "subdomain": "s", "setHostnameAsFQDN": true}),
            &truncated,
            domain,
            Err("too long"),
        );
    }

    #[test]
    fn hosts_file_has_the_pod_and_its_host_aliases() {
        let aliases: Vec<HostAlias> =
            serde_json::from_value(json!([{"ip": "192.0.2.9", "hostnames": ["a", "b"]}])).unwrap();
        let (name, _) = hostname(json!({"subdomain": "s"}));
        let text = managed_hosts_file(&["10.0.0.7".parse().unwrap()], &name, &aliases);
        assert!(text.ends_with(
            "fe00::2\tip6-allrouters\n10.0.0.7\tp.s.ns.svc.cluster.local\tp\n\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n"
        ));
        let text = node_hosts_file("127.0.0.1 localhost\n", &[]);
        assert_eq!(text, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n");
    }
}
