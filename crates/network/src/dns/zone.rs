//! Cluster DNS zone, from Services and their EndpointSlices: pure (Kubernetes DNS specification 1.1.0; where it is
//! silent, CoreDNS).

use crate::services::service_ports::{Slices, by_service, is_ready};
use api::address::ipv4;
use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointSlice},
};
use std::{
    collections::{BTreeSet, HashMap},
    net::Ipv4Addr,
    sync::Arc,
};

/// Version of the specification, in the TXT record of `dns-version`.
const VERSION: &str = "1.1.0";

/// Records of a name. A name without records exists if there are names below it (empty non-terminal).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) addresses: BTreeSet<Ipv4Addr>,
    /// SRV records, in a stable order.
    pub(crate) services: BTreeSet<Srv>,
    /// CNAME target.
    pub(crate) alias: Option<String>,
    pub(crate) texts: Vec<String>,
    /// PTR targets.
    pub(crate) pointers: BTreeSet<String>,
}

/// SRV record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Srv {
    pub(crate) target: String,
    pub(crate) port: u16,
}

/// Result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Entry(std::borrow::Cow<'a, Entry>),
    /// The name does not exist in the zone (NXDOMAIN).
    Nothing,
    /// The name is outside the zone, and forwarded.
    Elsewhere,
}

/// Cluster DNS zone; names are in lower case and without the final dot.
#[derive(Debug, Default)]
pub(crate) struct Zone {
    domain: String,
    entries: HashMap<String, Entry>,
}

impl Zone {
    pub(crate) fn new(domain: &str, services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> Self {
        let mut zone = Self { domain: domain.to_lowercase(), entries: HashMap::new() };
        let slices = by_service(slices);
        for kind in ["svc", "pod"] {
            zone.entry(&format!("{kind}.{}", zone.domain));
        }
        let version = format!("dns-version.{}", zone.domain);
        zone.entry(&version).texts.push(VERSION.to_owned());
        services.iter().for_each(|service| zone.add(service, &slices));
        zone
    }

    /// Returns the cluster domain.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// Looks up a name, in lower case and without the final dot.
    pub(crate) fn find(&self, name: &str) -> Found<'_> {
        if let Some(entry) = self.entries.get(name) {
            return Found::Entry(std::borrow::Cow::Borrowed(entry));
        }
        let below = name.strip_suffix(self.domain.as_str()).filter(|rest| rest.is_empty() || rest.ends_with('.'));
        match below {
            None => Found::Elsewhere,
            Some(rest) => pod(rest).map_or(Found::Nothing, |entry| Found::Entry(std::borrow::Cow::Owned(entry))),
        }
    }

    fn add(&mut self, service: &Service, slices: &Slices<'_>) {
        let (Some(spec), Some(namespace), Some(name)) =
            (&service.spec, service.metadata.namespace.as_deref(), service.metadata.name.as_deref())
        else {
            return;
        };
        let service_domain = format!("{name}.{namespace}.svc.{}", self.domain);
        if spec.type_.as_deref() == Some("ExternalName") {
            let alias = spec.external_name.as_deref().unwrap_or_default().trim_end_matches('.').to_lowercase();
            self.entry(&service_domain).alias = Some(alias).filter(|alias| !alias.is_empty());
        } else if let Some(ip) = spec.cluster_ip.as_deref().and_then(ipv4) {
            self.entry(&service_domain).addresses.insert(ip);
            self.point(ip, &service_domain);
            for port in spec.ports.iter().flatten() {
                let number = u16::try_from(port.port).unwrap_or_default();
                self.srv(&service_domain, port.name.as_deref(), port.protocol.as_deref(), &service_domain, number);
            }
        } else {
            for slice in slices.get(&(namespace, name)).into_iter().flatten() {
                slice.endpoints.iter().for_each(|endpoint| self.endpoint(&service_domain, slice, endpoint));
            }
        }
    }

    /// Adds an endpoint of a headless Service.
    fn endpoint(&mut self, service: &str, slice: &EndpointSlice, endpoint: &Endpoint) {
        if !is_ready(endpoint) {
            return;
        }
        for ip in endpoint.addresses.iter().filter_map(|ip| ipv4(ip)) {
            let dashed = ip.to_string().replace('.', "-");
            let target = format!("{}.{service}", endpoint.hostname.as_deref().unwrap_or(&dashed).to_lowercase());
            self.entry(service).addresses.insert(ip);
            self.entry(&target).addresses.insert(ip);
            self.point(ip, &target);
            for port in slice.ports.iter().flatten() {
                let number = port.port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
                self.srv(service, port.name.as_deref(), port.protocol.as_deref(), &target, number);
            }
        }
    }

    /// Adds the SRV records of a port: under its name, and under the Service.
    fn srv(&mut self, service: &str, name: Option<&str>, protocol: Option<&str>, target: &str, port: u16) {
        let srv = Srv { target: target.to_owned(), port };
        self.entry(service).services.insert(srv.clone());
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let protocol = protocol.unwrap_or("TCP").to_lowercase();
            self.entry(&format!("_{name}._{protocol}.{service}")).services.insert(srv);
        }
    }

    fn point(&mut self, ip: Ipv4Addr, name: &str) {
        let [a, b, c, d] = ip.octets();
        // Not `entry`: names above are outside the zone.
        let reverse = self.entries.entry(format!("{d}.{c}.{b}.{a}.in-addr.arpa")).or_default();
        reverse.pointers.insert(name.to_owned());
    }

    /// Returns the entry of a name, and creates those above it.
    fn entry(&mut self, name: &str) -> &mut Entry {
        let mut above = name;
        while let Some((_, rest)) = above.split_once('.').filter(|(_, rest)| rest.len() >= self.domain.len()) {
            if self.entries.contains_key(rest) {
                break;
            }
            self.entries.insert(rest.to_owned(), Entry::default());
            above = rest;
        }
        self.entries.entry(name.to_owned()).or_default()
    }
}

/// Resolves `10-1-2-3.namespace.pod.` from the name itself (CoreDNS' `pods insecure`, kubeadm's default).
fn pod(rest: &str) -> Option<Entry> {
    let mut labels = rest.strip_suffix(".pod.")?.split('.');
    let (dashed, _namespace, None) = (labels.next()?, labels.next()?, labels.next()) else { return None };
    let ip = dashed.replace('-', ".").parse().ok()?;
    Some(Entry { addresses: [ip].into(), ..Entry::default() })
}
