//! What the traffic of Services is, from the Services and their EndpointSlices: pure
//! (upstream's `pkg/proxy/serviceport.go`, `endpointslicecache.go` and `topology.go`).

use super::reserved::{Reserved, is_special};
use api::address::{cidr, ipv4};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Service, ServicePort as Port, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Services that somebody else leads say so with this label.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Services that nobody is to lead say so with this one, whatever addresses they have.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The label by which a slice names its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How long a client is led to the same endpoint when nothing else is said (`sessionAffinityConfig.clientIP.timeoutSeconds`).
const AFFINITY_SECONDS: i32 = 10_800;

/// One port of one Service, and who answers there.
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
    /// Addresses of load balancers that hand packets over as they came.
    pub(crate) balancer_ips: Vec<Ipv4Addr>,
    /// The clients that may come through a load balancer; all of them without a list. A list of IPv6 ranges alone is an
    /// empty list here, and lets nobody in.
    pub(crate) sources: Option<Vec<Ipv4Net>>,
    /// For how many seconds a client stays with an endpoint.
    pub(crate) affinity: Option<i32>,
    /// Whether only endpoints of this node are asked, by who comes from inside and by who comes from outside.
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    /// Who answers, wherever it runs.
    pub(crate) endpoints: BTreeSet<SocketAddrV4>,
    /// Those of them that run on this node.
    pub(crate) local_endpoints: BTreeSet<SocketAddrV4>,
}

/// The slices of each Service, by `(namespace, name)`.
pub(crate) type Slices<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a EndpointSlice>>;

/// Orders slices by their Services.
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

/// All traffic that a node leads, in a stable order. None of it is for an address that is `reserved`.
pub(crate) fn traffic(
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    node: &str,
    reserved: &Reserved,
) -> Vec<ServicePort> {
    let slices = by_service(slices);
    let mut all: Vec<ServicePort> =
        services.iter().flat_map(|service| of_service(service, &slices, node, reserved)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// A Service whose traffic is led.
struct Led<'a> {
    service: &'a Service,
    spec: &'a ServiceSpec,
    namespace: &'a str,
    name: &'a str,
    cluster_ip: Ipv4Addr,
}

impl<'a> Led<'a> {
    /// None of those without an address (headless or of another Service by name), nor those of another proxy.
    fn of(service: &'a Service) -> Option<Self> {
        let labels = service.metadata.labels.as_ref();
        let is_others = labels.is_some_and(|labels| labels.contains_key(OTHER_PROXY) || labels.contains_key(HEADLESS));
        let spec = service.spec.as_ref().filter(|spec| !is_others && spec.type_.as_deref() != Some("ExternalName"))?;
        let cluster_ip = ipv4(spec.cluster_ip.as_ref()?)?;
        let (namespace, name) = (service.metadata.namespace.as_deref()?, service.metadata.name.as_deref()?);
        Some(Self { service, spec, namespace, name, cluster_ip })
    }

    fn port(&self, port: &Port, slices: &[&EndpointSlice], node: &str, reserved: &Reserved) -> Option<ServicePort> {
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
            balancer_ips: balancer_ips(self.service).filter(|ip| !reserved.contains(*ip)).collect(),
            sources: sources(spec),
            affinity: affinity(spec),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            endpoints: endpoints.anywhere,
            local_endpoints: endpoints.here,
        })
    }
}

fn of_service(service: &Service, slices: &Slices<'_>, node: &str, reserved: &Reserved) -> Vec<ServicePort> {
    let Some(led) = Led::of(service) else { return Vec::new() };
    let slices = slices.get(&(led.namespace, led.name)).map_or(&[][..], Vec::as_slice);
    led.spec.ports.iter().flatten().filter_map(|port| led.port(port, slices, node, reserved)).collect()
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

/// As nftables calls it.
pub(crate) fn protocol(name: Option<&str>) -> Option<&'static str> {
    match name.unwrap_or("TCP") {
        "TCP" => Some("tcp"),
        "UDP" => Some("udp"),
        "SCTP" => Some("sctp"),
        _ => None,
    }
}

/// A network of IPv4.
pub(crate) fn network(text: &str) -> Option<Ipv4Net> {
    match cidr(text)? {
        (IpAddr::V4(ip), bits) => Ipv4Net::new(ip, bits).ok().map(|net| net.trunc()),
        (IpAddr::V6(_), _) => None,
    }
}

/// The addresses that a load balancer has for a Service, but those that it answers itself (`ipMode: Proxy`).
fn balancer_ips(service: &Service) -> impl Iterator<Item = Ipv4Addr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let by_packets = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    by_packets.filter_map(|ingress| ipv4(ingress.ip.as_ref()?))
}

/// Who answers: those that are ready, and where nobody is, those that still serve while they end.
struct Endpoints {
    anywhere: BTreeSet<SocketAddrV4>,
    here: BTreeSet<SocketAddrV4>,
}

impl Endpoints {
    fn of(slices: &[&EndpointSlice], port: &str, protocol: &str, node: &str) -> Self {
        let all: Vec<(SocketAddrV4, &Endpoint)> =
            slices.iter().flat_map(|slice| of_slice(slice, port, protocol)).collect();
        let select = |only_here: bool| {
            let of = |wanted: fn(&Endpoint) -> bool| -> BTreeSet<SocketAddrV4> {
                let there = all.iter().filter(|(_, e)| !only_here || e.node_name.as_deref() == Some(node));
                there.filter(|(_, e)| wanted(e)).map(|(address, _)| *address).collect()
            };
            let ready = of(is_ready);
            if ready.is_empty() { of(serves_while_it_ends) } else { ready }
        };
        Self { anywhere: select(false), here: select(true) }
    }
}

/// Addresses of a slice's endpoints at the port of that name.
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
    // Only the first address counts, as upstream says of them all. One of loopback would be the node's.
    let address = |e: &Endpoint| ipv4(e.addresses.first()?).filter(|ip| !is_special(*ip));
    endpoints.filter_map(move |(n, e)| Some((SocketAddrV4::new(address(e)?, n), e)))
}

/// A condition that is not told is true, says the API.
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true)
}

fn serves_while_it_ends(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.is_some_and(|c| c.serving.unwrap_or(c.ready.unwrap_or(true)) && c.terminating == Some(true))
}
