//! Service proxy, cluster DNS and the Service `kubernetes`, on Podium's own network.

use crate::listen_options;
use anyhow::{Context, Result};
use futures::FutureExt;
use kube::Client;
use kubelet::{KubeletConfiguration, NetworkReadiness};
use network::{ApiClients, DnsListener, Ipv4Net, Network, NetworkServeOptions, PodGate};
use server::{ApiServer, ListenOptions, UserInfo};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Default of `clusterDomain` in the KubeletConfiguration.
const DEFAULT_CLUSTER_DOMAIN: &str = "cluster.local";

/// Bound sockets of the Service network, before it is started.
pub(crate) struct Services {
    network: Network,
    load_balancer_pool: Option<Ipv4Net>,
    names: DnsListener,
    /// Listener of the API server at the Pod gateway, unless Pods can reach the main listener.
    api: Option<TcpListener>,
    listen: ListenOptions,
    api_address: SocketAddr,
}

impl Services {
    /// Binds the sockets, and sets `clusterDNS` and `clusterDomain` unless the configuration has them.
    pub(crate) async fn prepare(
        network: Network,
        load_balancer_pool: Option<Ipv4Net>,
        api: SocketAddr,
        config: &mut KubeletConfiguration,
        listen: &ListenOptions,
    ) -> Result<Self> {
        let names = network.bind_dns().await?;
        if config.cluster_dns.is_empty() {
            config.cluster_dns.push(server::DNS_IP.to_string());
        }
        if config.cluster_domain.is_empty() {
            DEFAULT_CLUSTER_DOMAIN.clone_into(&mut config.cluster_domain);
        }
        let at_gateway = SocketAddr::new(IpAddr::V4(network.gateway), api.port());
        // Pods cannot reach the node's 127.0.0.1. A listener on the unspecified address includes the gateway.
        let (api, api_address) = match api.ip() {
            ip if ip.is_loopback() => {
                let listener = TcpListener::bind(at_gateway).await;
                let context = || format!("failed to listen on {at_gateway}, the address of the API server for Pods");
                (Some(listener.with_context(context)?), at_gateway)
            }
            ip if ip.is_unspecified() => (None, at_gateway),
            _ => (None, api),
        };
        let listen = listen_options::for_gateway(listen, network.peers());
        Ok(Self { network, load_balancer_pool, names, api, listen, api_address })
    }

    /// Returns the address of the API server for Pods.
    pub(crate) fn api_address(&self) -> SocketAddr {
        self.api_address
    }

    /// Starts the API listener for Pods, the Service proxy and DNS. Returns a readiness check that delays a Pod until its
    /// network policy rules are applied.
    pub(crate) fn start(
        self,
        server: &ApiServer,
        serve: impl FnOnce(TcpListener, ListenOptions) -> Result<()>,
        node: &str,
        config: &KubeletConfiguration,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<NetworkReadiness> {
        if let Some(listener) = self.api {
            serve(listener, self.listen)?;
        }
        let (ip, prefix) = server::SERVICE_RANGE;
        let dns_address = SocketAddrV4::new(self.network.gateway, self.names.port());
        let options = NetworkServeOptions {
            node_name: node.to_owned(),
            service_cidr: Ipv4Net::new_assert(ip, prefix),
            load_balancer_cidr: self.load_balancer_pool,
            dns_ip: server::DNS_IP,
            cluster_domain: config.cluster_domain.clone(),
            resolv_conf: config.resolv_conf.clone().into(),
            name_server: self.names,
        };
        let client = |user: &str| Client::new(server.local(UserInfo::named(user)), "default");
        // Upstream has no role for network policies alone; the controller manager may watch all that they need.
        let policies = client("system:kube-controller-manager");
        let gate = PodGate::new(&self.network, policies.clone());
        let clients = ApiClients { services: client("system:kube-proxy"), policies };
        let opened = gate.clone();
        let (network, server, stop) = (self.network, server.clone(), stop.clone());
        // In a task: the start of the API server does not wait for it.
        tasks.spawn(async move {
            server.bootstrap_name_server(dns_address).await;
            network.serve(&clients, options, opened, stop).await;
        });
        Ok(NetworkReadiness::new(move |network| {
            let gate = gate.clone();
            async move {
                let opened = gate.wait(network.pod, &network.ips).await;
                opened.map_err(|error| error.to_string())
            }
            .boxed()
        }))
    }
}
