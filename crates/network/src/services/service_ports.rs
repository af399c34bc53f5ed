//! Service ports and their endpoints, from Services and EndpointSlices: pure (upstream's `pkg/proxy/serviceport.go`,
//! `endpointslicecache.go` and `topology.go`).

use super::reserved_ips::{ReservedIps, is_special};
use api::address::{cidr, ipv4};
use ipnet::Ipv4Net;
use k8s_openapi::api::{
    core::v1::{Service, ServicePort as Port, ServiceSpec},
    discovery::v1::{Endpoint, EndpointSlice},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    sync::Arc,
};

/// Label of Services of another proxy.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Label of Services without a proxy (`IsHeadlessService`).
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Label of a slice with its Service's name.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const AFFINITY_SECONDS: i32 = 10_800;

/// Port of a Service with its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// `namespace/name/protocol/port name`.
    pub(crate) name: String,
    /// `tcp`, `udp` or `sctp`.
    pub(crate) protocol: &'static str,
    pub(crate) cluster_ip: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) node_port: Option<u16>,
    pub(crate) external_ips: Vec<Ipv4Addr>,
    /// Load balancer addresses with `ipMode: VIP`.
    pub(crate) load_balancer_ips: Vec<Ipv4Addr>,
    /// `loadBalancerSourceRanges`; `None` allows all clients. A list of IPv6 ranges alone is empty here, and allows
    /// none.
    pub(crate) sources: Option<Vec<Ipv4Net>>,
    /// Session affinity timeout, in seconds.
    pub(crate) affinity: Option<i32>,
    /// Traffic policy `Local`, for internal and for external traffic.
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// Endpoints of the cluster.
    pub(crate) endpoints: BTreeSet<SocketAddrV4>,
    /// Endpoints of this node.
    pub(crate) local_endpoints: BTreeSet<SocketAddrV4>,
}

/// EndpointSlices by `(namespace, name)` of their Service.
pub(crate) type Slices<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>;

/// Groups slices by their Services.
pub(crate) fn by_service(slices: &[Arc<EndpointSlice>]) -> Slices<'_> {
    let mut found = Slices::new();
    for slice in slices.iter().filter(|slice| slice.address_type == "IPv4") {
        let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_NAME));
        if let (Some(namespace), Some(name)) = (&slice.metadata.namespace, name) {
            found.entry((namespace, name)).or_default().push(slice);
        }
    }
    found
}

/// Returns the Service ports, sorted by name, without `reserved` addresses.
pub(crate) fn service_ports(
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    node: &str,
    reserved: &ReservedIps,
) -> Vec<ServicePort> {
    let slices = by_service(slices);
    let mut all: Vec<ServicePort> =
        services.iter().flat_map(|service| of_service(service, &slices, node, reserved)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Service with a ClusterIP, handled by this proxy.
struct ProxiedService<'a> {
    service: &'a Service,
    spec: &'a ServiceSpec,
    namespace: &'a str,
    name: &'a str,
    cluster_ip: Ipv4Addr,
}

impl<'a> ProxiedService<'a> {
    /// Returns `None` for headless and `ExternalName` Services, and for those of another proxy.
    fn of(service: &'a Service) -> Option<Self> {
        let labels = service.metadata.labels.as_ref();
        let is_ignored = labels.is_some_and(|labels| labels.contains_key(OTHER_PROXY) || labels.contains_key(HEADLESS));
        let spec = service.spec.as_ref().filter(|spec| !is_ignored && spec.type_.as_deref() != Some("ExternalName"))?;
        let cluster_ip = ipv4(spec.cluster_ip.as_ref()?)?;
        let (namespace, name) = (service.metadata.namespace.as_deref()?, service.metadata.name.as_deref()?);
        Some(Self { service, spec, namespace, name, cluster_ip })
    }

    fn port(&self, port: &Port, slices: &[&EndpointSlice], node: &str, reserved: &ReservedIps) -> Option<ServicePort> {
        let (spec, protocol) = (self.spec, protocol(port.protocol.as_deref())?);
        let port_name = port.name.as_deref().unwrap_or_default();
        let endpoints = Endpoints::of(slices, port_name, protocol, node);
        let external_ips = spec.external_ips.iter().flatten().filter_map(|ip| ipv4(ip));
        Some(ServicePort {
            name: format!("{}/{}/{protocol}/{port_name}", self.namespace, self.name),
            protocol,
            cluster_ip: self.cluster_ip,
            port: u16::try_from(port.port).ok()?,
            node_port: port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
            external_ips: external_ips.filter(|ip| !reserved.contains(*ip)).collect(),
            load_balancer_ips: load_balancer_ips(self.service).filter(|ip| !reserved.contains(*ip)).collect(),
            sources: sources(spec),
            affinity: affinity(spec),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            endpoints: endpoints.all,
            local_endpoints: endpoints.local,
        })
    }
}

fn of_service(service: &Service, slices: &Slices<'_>, node: &str, reserved: &ReservedIps) -> Vec<ServicePort> {
    let Some(service) = ProxiedService::of(service) else { return Vec::new() };
    let slices = slices.get(&(service.namespace, service.name)).map_or(&[][..], Vec::as_slice);
    service.spec.ports.iter().flatten().filter_map(|port| service.port(port, slices, node, reserved)).collect()
}

fn sources(spec: &ServiceSpec) -> Option<Vec<Ipv4Net>> {
    let ranges = spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty())?;
    Some(ranges.iter().filter_map(|cidr| network(cidr.trim())).collect())
}

fn affinity(spec: &ServiceSpec) -> Option<i32> {
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|client| client.timeout_seconds).unwrap_or(AFFINITY_SECONDS);
    (spec.session_affinity.as_deref() == Some("ClientIP")).then_some(seconds)
}

/// Returns the nftables name of a protocol.
pub(crate) fn protocol(name: Option<&str>) -> Option<&'static str> {
    match name.unwrap_or("TCP") {
        "TCP" => Some("tcp"),
        "UDP" => Some("udp"),
        "SCTP" => Some("sctp"),
        _ => None,
    }
}

/// Parses an IPv4 CIDR.
pub(crate) fn network(text: &str) -> Option<Ipv4Net> {
    match cidr(text)? {
        (IpAddr::V4(ip), bits) => Ipv4Net::new(ip, bits).ok().map(|net| net.trunc()),
        (IpAddr::V6(_), _) => None,
    }
}

/// Returns the load balancer addresses, without those with `ipMode: Proxy`.
fn load_balancer_ips(service: &Service) -> impl Iterator<Item = Ipv4Addr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let not_proxied = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    not_proxied.filter_map(|ingress| ipv4(ingress.ip.as_ref()?))
}

/// Usable endpoints: the ready ones; if there is none, serving terminating ones (KEP-1669).
struct Endpoints {
    all: BTreeSet<SocketAddrV4>,
    local: BTreeSet<SocketAddrV4>,
}

impl Endpoints {
    fn of(slices: &[&EndpointSlice], port: &str, protocol: &str, node: &str) -> Self {
        let all: Vec<(SocketAddrV4, &Endpoint)> =
            slices.iter().flat_map(|slice| of_slice(slice, port, protocol)).collect();
        let select = |only_here: bool| {
            let with_condition = |condition: fn(&Endpoint) -> bool| -> BTreeSet<SocketAddrV4> {
                let candidates = all.iter().filter(|(_, e)| !only_here || e.node_name.as_deref() == Some(node));
                candidates.filter(|(_, e)| condition(e)).map(|(address, _)| *address).collect()
            };
            let ready = with_condition(is_ready);
            if ready.is_empty() { with_condition(is_serving_terminating) } else { ready }
        };
        Self { all: select(false), local: select(true) }
    }
}

/// Returns the addresses of a slice's endpoints at the named port.
fn of_slice<'a>(
    slice: &'a EndpointSlice,
    port: &str,
    protocol: &'a str,
) -> impl Iterator<Item = (SocketAddrV4, &'a Endpoint)> {
    let mut ports = slice.ports.iter().flatten();
    let found = ports.find(|p| {
        p.name.as_deref().unwrap_or_default() == port && self::protocol(p.protocol.as_deref()) == Some(protocol)
    });
    let number = found.and_then(|p| u16::try_from(p.port?).ok()).filter(|number| *number != 0);
    let endpoints = number.into_iter().flat_map(move |n| slice.endpoints.iter().map(move |e| (n, e)));
    // Only the first address is used, as the API documents. Loopback addresses would be the node's own.
    let address = |e: &Endpoint| ipv4(e.addresses.first()?).filter(|ip| !is_special(*ip));
    endpoints.filter_map(move |(n, e)| Some((SocketAddrV4::new(address(e)?, n), e)))
}

/// Returns whether the endpoint is ready; an unset condition means true.
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
}

fn is_serving_terminating(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_some_and(|c| c.serving.unwrap_or(c.ready.unwrap_or(true)) && c.terminating == Some(true))
}
