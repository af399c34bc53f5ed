//! DNS configuration of Pods: `resolv.conf` by `dnsPolicy` and `dnsConfig` (upstream's `pkg/kubelet/network/dns`).

use crate::config::KubeletConfiguration;
use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};
use runtime::Dns;
use std::io;

/// Limits of resolvers.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

/// The node's `resolv.conf` is needed but cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}")]
pub(crate) struct ResolvConfError {
    path: String,
    source: io::Error,
}

/// Returns the Pod's DNS configuration, and upstream's messages about exceeded limits.
pub(crate) fn pod_dns(
    spec: &PodSpec,
    namespace: &str,
    config: &KubeletConfiguration,
) -> Result<(Dns, Vec<String>), ResolvConfError> {
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let on_host = spec.host_network == Some(true);
    let cluster = match policy {
        "None" => None,
        "ClusterFirst" => Some(!on_host),
        "ClusterFirstWithHostNet" => Some(true),
        _ => Some(false),
    };
    let mut dns = match cluster {
        None => Dns::default(),
        // Without a cluster DNS, ClusterFirst is Default.
        Some(true) if !config.cluster_dns.is_empty() => cluster_dns(host_dns(config)?, namespace, config),
        Some(_) if config.resolv_conf.is_empty() => {
            Dns { servers: vec!["127.0.0.1".to_owned()], searches: vec![".".to_owned()], options: Vec::new() }
        }
        Some(_) => host_dns(config)?,
    };
    if let Some(pod_config) = &spec.dns_config {
        append_dns_config(&mut dns, pod_config);
    }
    let warnings = apply_limits(&mut dns);
    Ok((dns, warnings))
}

fn host_dns(config: &KubeletConfiguration) -> Result<Dns, ResolvConfError> {
    if config.resolv_conf.is_empty() {
        return Ok(Dns::default());
    }
    match crate::host_file::read_text(&config.resolv_conf) {
        Ok(text) => Ok(parse(&text)),
        Err(source) => Err(ResolvConfError { path: config.resolv_conf.clone(), source }),
    }
}

fn cluster_dns(host_dns: Dns, namespace: &str, config: &KubeletConfiguration) -> Dns {
    let domain = &config.cluster_domain;
    let mut searches = Vec::new();
    if !domain.is_empty() {
        searches.extend([format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()]);
    }
    searches.extend(host_dns.searches);
    Dns { servers: config.cluster_dns.clone(), searches: unique(searches), options: vec!["ndots:5".to_owned()] }
}

/// Parses a `resolv.conf`; the last `search` line counts.
fn parse(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().filter(|l| !l.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let (key, rest) = (words.next().unwrap_or_default(), words.map(str::to_owned));
        match key {
            "nameserver" => dns.servers.extend(rest.take(1)),
            "search" => {
                let domain = |d: String| if d == "." { d } else { d.trim_end_matches('.').to_owned() };
                dns.searches = rest.map(domain).collect();
            }
            "options" => dns.options = rest.collect(),
            _ => {}
        }
    }
    dns
}

fn append_dns_config(dns: &mut Dns, pod_config: &PodDNSConfig) {
    dns.servers = unique(dns.servers.drain(..).chain(pod_config.nameservers.iter().flatten().cloned()));
    dns.searches = unique(dns.searches.drain(..).chain(pod_config.searches.iter().flatten().cloned()));
    for option in pod_config.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        dns.options.retain(|known| known.split(':').next() != Some(name));
        dns.options.push(match option.value.as_deref().filter(|v| !v.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name.to_owned(),
        });
    }
}

fn unique(list: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for item in list {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// Truncates to the limits of resolvers; returns a message for each exceeded limit.
fn apply_limits(dns: &mut Dns) -> Vec<String> {
    let mut warnings = Vec::new();
    if dns.servers.len() > MAX_SERVERS {
        dns.servers.truncate(MAX_SERVERS);
        warnings.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            dns.servers.join(" ")
        ));
    }
    let all = dns.searches.len();
    dns.searches.truncate(MAX_SEARCHES);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
    if dns.searches.len() < all {
        warnings.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            dns.searches.join(" ")
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::fs;

    fn pod_dns_with(spec: Value, cluster_dns: &[&str]) -> (Dns, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let text = "# comment\nnameserver 192.0.2.53\nsearch old.example\nsearch example.com. lan\noptions rotate\n";
        fs::write(&path, text).unwrap();
        let mut config = KubeletConfiguration::default();
        config.resolv_conf = path.display().to_string();
        config.cluster_dns = cluster_dns.iter().map(|s| (*s).to_owned()).collect();
        config.cluster_domain = "cluster.local".to_owned();
        let mut full = json!({"containers": []});
        spec.as_object().unwrap().iter().for_each(|(k, v)| full[k] = v.clone());
        pod_dns(&serde_json::from_value(full).unwrap(), "ns", &config).unwrap()
    }

    #[track_caller]
    fn check(spec: Value, servers: &str, searches: &str, options: &str) {
        let (dns, warnings) = pod_dns_with(spec, &["10.96.0.10"]);
        assert_eq!((dns.servers.join(" "), dns.searches.join(" ")), (servers.to_owned(), searches.to_owned()));
        assert_eq!((dns.options.join(" "), warnings.len()), (options.to_owned(), 0));
    }

    const HOST: (&str, &str, &str) = ("192.0.2.53", "example.com lan", "rotate");
    const CLUSTER: (&str, &str, &str) =
        ("10.96.0.10", "ns.svc.cluster.local svc.cluster.local cluster.local example.com lan", "ndots:5");

    #[test]
    fn dns_policy_selects_the_resolver() {
        for (spec, (servers, searches, options)) in [
            (json!({}), CLUSTER),
            (json!({"dnsPolicy": "Default"}), HOST),
            (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), HOST),
            (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), CLUSTER),
            (json!({"dnsPolicy": "None"}), ("", "", "")),
        ] {
            check(spec, servers, searches, options);
        }
    }

    #[test]
    fn dns_config_is_merged_with_the_policy() {
        let pod_config = json!({"nameservers": ["192.0.2.53", "192.0.2.54"], "searches": ["lan", "own"],
            "options": [{"name": "rotate"}, {"name": "ndots", "value": "2"}]});
        let spec = |policy: &str| json!({"dnsPolicy": policy, "dnsConfig": pod_config});
        check(spec("Default"), "192.0.2.53 192.0.2.54", "example.com lan own", "rotate ndots:2");
        check(spec("None"), "192.0.2.53 192.0.2.54", "lan own", "rotate ndots:2");
    }

    #[test]
    fn pods_use_the_node_resolver_without_cluster_dns() {
        let (dns, _) = pod_dns_with(json!({}), &[]);
        assert_eq!(dns.servers, ["192.0.2.53"]);
    }

    #[test]
    fn exceeded_resolver_limits_are_truncated_and_reported() {
        let servers: Vec<String> = (1..6).map(|n| format!("192.0.2.{n}")).collect();
        let searches: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
        let spec = json!({"dnsPolicy": "None", "dnsConfig": {"nameservers": servers, "searches": searches}});
        let (dns, warnings) = pod_dns_with(spec, &[]);
        assert_eq!((dns.servers.len(), dns.searches.len(), warnings.len()), (3, 32, 2));
        assert!(warnings[0].ends_with("192.0.2.1 192.0.2.2 192.0.2.3"), "{warnings:?}");
    }
}
