//! What Podium's own network gives to a cluster: traffic for its Services, names for them, and the API for Pods.

use crate::listening;
use anyhow::{Context, Result};
use futures::FutureExt;
use kube::Client;
use kubelet::{KubeletConfiguration, NetworkReadiness};
use network::{Clients, Ipv4Net, NameServer, Network, PodGate, ServiceOptions};
use server::{ApiServer, ListenOptions, UserInfo};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The cluster's domain where the KubeletConfiguration names none.
const DOMAIN: &str = "cluster.local";

/// Services before anybody has asked for one: all places are taken.
pub(crate) struct Services {
    network: Network,
    load_balancer_pool: Option<Ipv4Net>,
    names: NameServer,
    /// Where Pods reach the API, if that is not where everybody does.
    api: Option<TcpListener>,
    listen: ListenOptions,
    api_address: SocketAddr,
}

impl Services {
    /// Takes the places, and tells Pods of the name server unless they are told of another.
    pub(crate) async fn prepare(
        network: Network,
        load_balancer_pool: Option<Ipv4Net>,
        api: SocketAddr,
        config: &mut KubeletConfiguration,
        listen: &ListenOptions,
    ) -> Result<Self> {
        let names = network.name_server().await?;
        if config.cluster_dns.is_empty() {
            config.cluster_dns.push(server::DNS_IP.to_string());
        }
        if config.cluster_domain.is_empty() {
            DOMAIN.clone_into(&mut config.cluster_domain);
        }
        let at_gateway = SocketAddr::new(IpAddr::V4(network.gateway), api.port());
        // No Pod reaches 127.0.0.1 of its node, and where the API hears everywhere, it hears at the gateway, too.
        let (api, api_address) = match api.ip() {
            ip if ip.is_loopback() => {
                let listener = TcpListener::bind(at_gateway).await;
                let what = || format!("cannot listen on {at_gateway}, where Pods reach the API");
                (Some(listener.with_context(what)?), at_gateway)
            }
            ip if ip.is_unspecified() => (None, at_gateway),
            _ => (None, api),
        };
        let listen = listening::at_gateway(listen, network.peers());
        Ok(Self { network, load_balancer_pool, names, api, listen, api_address })
    }

    /// Where Pods reach the API.
    pub(crate) fn api_address(&self) -> SocketAddr {
        self.api_address
    }

    /// Has the API served where Pods reach it, leads traffic and answers for names from now on. Returns what holds Pods back
    /// until their rules are there.
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
        let hears_at = SocketAddrV4::new(self.network.gateway, self.names.port());
        let options = ServiceOptions {
            node_name: node.to_owned(),
            service_cidr: Ipv4Net::new_assert(ip, prefix),
            load_balancer_cidr: self.load_balancer_pool,
            dns_ip: server::DNS_IP,
            cluster_domain: config.cluster_domain.clone(),
            resolv_conf: config.resolv_conf.clone().into(),
            name_server: self.names,
        };
        let client = |user: &str| Client::new(server.local(UserInfo::named(user)), "default");
        // No role of upstream's is for policies alone; what watches for controllers may see all that these need.
        let policies = client("system:kube-controller-manager");
        let gate = PodGate::new(&self.network, policies.clone());
        let clients = Clients { services: client("system:kube-proxy"), policies };
        let opened = gate.clone();
        let (network, server, stop) = (self.network, server.clone(), stop.clone());
        // The API's first answers do not wait for it.
        tasks.spawn(async move {
            server.bootstrap_name_server(hears_at).await;
            network.serve(&clients, options, opened, stop).await;
        });
        Ok(NetworkReadiness::new(move |network| {
            let gate = gate.clone();
            async move { gate.wait(network.pod, &network.sandbox, &network.ips).await }.boxed()
        }))
    }
}
