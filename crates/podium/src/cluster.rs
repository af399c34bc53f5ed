//! A cluster in one process: every component, wired to the others through the API alone.

use crate::{
    api_address::ApiAddress, certificates, cli::NodeArgs, cluster_services::Services,
    control_plane_runtime::ControlPlaneRuntime, data_dir::DataDir, encryption_config, kubelet_config,
    kubelet_pipe::KubeletPipe, listening, load_balancers, storage, store_quota,
};
use anyhow::{Context, Result};
use encryption::Encryption;
use ipnet::Ipv4Net;
use kube::Client;
use kubelet::{Kubelet, KubeletConfiguration};
use lifecycle::NodePolicy;
use network::Network;
use nix::sys::socket::{SockaddrIn6, SockaddrStorage};
use runtime::{CriRuntime, Runtime, containerd::OwnContainerd};
use server::{AdmissionPlugins, ApiServer, AuditLog, Pki, TokenFile, TokenLifetime, UserInfo};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};
use store::{FjallEngine, FjallOptions, Store, TransformedEngine};
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long containerd may take to answer on a busy machine.
const RUNTIME_LIMIT: Duration = Duration::from_secs(60);

/// A running cluster.
pub(crate) struct Cluster {
    /// A client with every right.
    pub(crate) client: Client,
    /// Where the API answers.
    pub(crate) url: String,
    /// Name of the node.
    pub(crate) node: String,
    stop: CancellationToken,
    tasks: TaskTracker,
    containerd: Option<Arc<OwnContainerd>>,
    kubelet: Kubelet,
    audit: Option<Arc<AuditLog>>,
    _control_plane: ControlPlaneRuntime,
}

/// Who is let in beside those with certificates, where it is noted what they do, and how much they do at a time.
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) tokens: TokenFile,
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) token_lifetime: TokenLifetime,
    /// How many requests are carried out at a time, if it is not the usual number.
    pub(crate) inflight: Option<usize>,
}

/// Where the node itself answers HTTPS.
struct NodeEndpoint {
    listener: TcpListener,
    port: u16,
    /// The authorities of those who are answered, in PEM, if they are not the cluster's own.
    clients: Option<String>,
}

impl NodeEndpoint {
    async fn bind(config: &KubeletConfiguration) -> Result<Option<Self>> {
        let Some(address) = config.endpoint() else { return Ok(None) };
        let taken = || format!("the node cannot listen on {address}: choose another port in the KubeletConfiguration");
        let listener = TcpListener::bind(address).await.with_context(taken)?;
        let read = |file: std::path::PathBuf| {
            std::fs::read_to_string(&file).with_context(|| format!("clientCAFile {}", file.display()))
        };
        let clients = config.client_ca_file().map(read).transpose()?;
        Ok(Some(Self { listener, port: address.port(), clients }))
    }
}

impl Cluster {
    /// Starts everything; the API serves when this returns, and the node is on its way.
    pub(crate) async fn start(
        dir: &DataDir,
        api: &ApiAddress,
        kubeconfig: &Path,
        args: &NodeArgs,
        access: Access,
    ) -> Result<Self> {
        let node = node_name(args)?;
        let encryption = encryption_config::load(&args.encryption)?;
        // Before there are many files, and before containerd starts.
        let listen = listening::options();
        let listener = TcpListener::bind(api.bind)
            .await
            .with_context(|| format!("cannot listen on {}: choose another address with --bind", api.bind))?;
        let mut config = kubelet_config::load(args.kubelet_config.as_deref())?;
        config.check_capacity(dir.root())?;
        let policy = kubelet_config::policy(&config, &args.feature_gates)?;
        let providers = kubelet_config::credential_providers(args)?;
        let endpoint = NodeEndpoint::bind(&config).await?;
        let Started { runtime, containerd, network, load_balancer_pool } = start_runtime(dir, args).await?;
        let cidr = network.as_ref().map_or_else(|| args.pod_cidr.clone(), |network| Some(network.cidr.to_string()));
        let address = listener.local_addr()?;
        let services = match network.filter(|network| network.leads_services) {
            Some(network) => Some(Services::prepare(network, load_balancer_pool, address, &mut config, &listen).await?),
            None => None,
        };
        let advertised = api.reached(address, node_ip());
        let reached = services.as_ref().map_or(advertised, Services::api_address);
        let mut ips = vec![advertised.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(server::API_IP), reached.ip()];
        ips.extend(api.ips(address, &machine_ips()));
        let mut names = vec![node.clone(), format!("kubernetes.default.svc.{}", config.cluster_domain)];
        names.extend(api.names(&nix::unistd::gethostname()?.to_string_lossy().to_lowercase()));
        let pki = Pki::load_or_create(&dir.pki(), &names, &ips)?;
        let store = open_store(dir, args, encryption)?;
        let control_plane = ControlPlaneRuntime::new()?;
        let pipe = Arc::new(KubeletPipe::new(&node, Handle::current()));
        let gates = policy.gates.clone();
        let server = api_server(ApiServer::new(store, pipe.clone()), &pki, advertised, args, access.clone())?
            .with_gates(gates.clone());
        server.bootstrap().await;
        server.bootstrap_service(reached).await;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        // The API serves meanwhile: those who need the roles wait for them.
        tasks.spawn(server.bootstrap_access());
        let addressed = server.clone();
        tasks.spawn(async move {
            addressed.bootstrap_addresses().await;
            addressed.bootstrap_token_tracking().await;
        });
        let serve = |listener, listen| -> Result<()> {
            let listener = control_plane.adopt(listener)?;
            let serving = server::serve(server.clone(), listener, pki.server_tls()?, listen, stop.clone());
            tasks.spawn_on(serving, control_plane.handle());
            Ok(())
        };
        serve(listener, listen)?;
        let url = format!("https://{advertised}");
        pki.write_admin_kubeconfig(kubeconfig, &url)?;
        let client = |user: UserInfo| Client::new(server.local(user), "default");
        let network_readiness = match services {
            Some(services) => Some(services.start(&server, serve, &node, &config, &tasks, &stop)?),
            None => None,
        };
        let options = kubelet::Options {
            node_name: node.clone(),
            root_dir: dir.kubelet(),
            node_ip: node_ip(),
            pod_cidr: cidr,
            policy: NodePolicy { host_ips: vec![node_ip()], ..policy },
            config,
            pod_rules: server::prepare_static_pod,
            clock: kubelet::Clock::system(),
            random: rand::random(),
            port: endpoint.as_ref().map_or(0, |endpoint| endpoint.port),
            home: std::env::home_dir(),
            credential_providers: Arc::new(providers),
        };
        files::create_private_dir_all(&dir.kubelet())?;
        let runtime: Arc<dyn Runtime> = Arc::new(CriRuntime::new(&runtime, dir.root())?);
        let mut kubelet = Kubelet::new(options, client(UserInfo::node(&node)), runtime, stop.clone());
        if let Some(readiness) = network_readiness {
            kubelet = kubelet.with_network_readiness(readiness);
        }
        pipe.connect(kubelet.clone());
        if let Some(endpoint) = endpoint {
            let tls =
                pki.node_config(&node, &[node_ip(), IpAddr::V4(Ipv4Addr::LOCALHOST)], endpoint.clients.as_deref())?;
            tasks.spawn(kubelet.clone().serve_https(endpoint.listener, tls));
        }
        let user = UserInfo::named("system:kube-scheduler");
        let scheduler = scheduler::Scheduler::new(client(user), scheduler::Options::default());
        note_task(&server, "scheduler", &tasks.spawn_on(scheduler.run(stop.clone()), control_plane.handle()));
        let provisioner = storage::provisioner(dir, &node, &server).await?;
        let reporting = store_quota::report(server.quota_alarm(), client(UserInfo::node(&node)), node.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(reporting));
        let admin = client(UserInfo::component("kubernetes-admin"));
        let monitoring =
            certificates::monitor(pki.clone(), kubeconfig.to_owned(), url.clone(), admin.clone(), node.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(monitoring));
        tasks.spawn(storage::tell_strays(dir.volumes(), admin.clone()));
        let asked = controllers::Options {
            provisioner: Some(provisioner),
            load_balancer_pool,
            root_ca_pem: Some(pki.ca_pem().to_owned()),
            token_maker: Some(token_maker(&pki)?),
            signer: Some(signer(&pki)?),
            gates,
            ..controllers::Options::default()
        };
        let running =
            tasks.spawn_on(controllers::run(of_controllers(&server), asked, stop.clone()), control_plane.handle());
        note_task(&server, "controller-manager", &running);
        let containerd = containerd.map(Arc::new);
        let (own, runs) = (containerd.clone(), kubelet.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
            // The kubelet starts when its runtime answers: the first thing that it does is to ask it what is there.
            // Why it does not, if it does not, is told by `wait_runtime_ready`.
            if ready(own.as_deref()).await.is_ok() {
                runs.run().await;
            }
        }));
        tasks.close();
        Ok(Self {
            client: admin,
            url,
            node,
            stop,
            tasks,
            containerd,
            kubelet,
            audit: access.audit,
            _control_plane: control_plane,
        })
    }

    /// Waits until the container runtime can run Pods, if it is our own.
    pub(crate) async fn wait_runtime_ready(&self) -> Result<()> {
        ready(self.containerd.as_deref()).await
    }

    /// Waits until the node is Ready.
    pub(crate) async fn wait_node_ready(&self) -> Result<()> {
        self.wait_runtime_ready().await?;
        self.kubelet.wait_ready().await;
        Ok(())
    }

    /// Stops every component; containerd and its containers go on.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!("a component did not stop in time");
        }
        if let Some(audit) = self.audit {
            audit.flush().await;
        }
        if let Some(containerd) = self.containerd {
            containerd.leave();
        }
    }
}

fn open_store(dir: &DataDir, args: &NodeArgs, encryption: Encryption) -> Result<Store> {
    let engine = FjallEngine::open(dir.store(), FjallOptions::default())?;
    let engine = TransformedEngine::new(engine, Arc::new(encryption));
    let quota_bytes = store_quota::bytes(args.quota_backend_bytes);
    let options = store::Options { quota_bytes, ..store::Options::default() };
    Store::open(engine, options).map_err(encryption_config::explained)
}

/// The server as it was asked for.
fn api_server(server: ApiServer, pki: &Pki, address: SocketAddr, args: &NodeArgs, access: Access) -> Result<ApiServer> {
    let plugins = AdmissionPlugins::new(&args.enable_admission_plugins, &args.disable_admission_plugins);
    let plugins = plugins.map_err(anyhow::Error::msg)?;
    let mut server = server
        .with_admission(plugins)
        .with_signing_key(pki.signing_key()?)
        .with_address(&address.to_string())
        .with_front_proxy(pki.front_proxy(), pki.ca_pem())
        .with_token_lifetime(access.token_lifetime)
        .with_tokens(access.tokens);
    if let Some(log) = access.audit {
        server = server.with_audit(log);
    }
    Ok(match access.inflight {
        Some(total) => server.with_requests_at_a_time(total),
        None => server,
    })
}

/// Makes a component known, which is there for as long as its task is.
fn note_task(server: &ApiServer, name: &str, task: &tokio::task::JoinHandle<()>) {
    let task = task.abort_handle();
    server.note_component(name, move || if task.is_finished() { Err("it has ended".to_owned()) } else { Ok(()) });
}

/// The cluster's own authority signs for the controllers.
fn signer(pki: &Pki) -> Result<controllers::Signer> {
    let authority = pki.authority()?;
    Ok(controllers::Signer::new(move |order| {
        let validity = (order.from, order.until);
        authority.issue(order.request, order.uses, validity).map_err(|e| e.to_string())
    }))
}

/// What the server takes for an account's token, the controllers may make.
fn token_maker(pki: &Pki) -> Result<controllers::TokenMaker> {
    let key = pki.signing_key()?;
    Ok(controllers::TokenMaker::new(move |of| key.legacy_token(of.namespace, of.account, of.uid, of.secret)))
}

/// Controllers watch together, and each acts as the service account of its name.
fn of_controllers(server: &ApiServer) -> controllers::Clients {
    let manager = server.local(UserInfo::named("system:kube-controller-manager"));
    let server = server.clone();
    let account = move |name: &str| Client::new(server.local(UserInfo::account("kube-system", name)), "default");
    controllers::Clients::new(Client::new(manager, "default"), account)
}

async fn ready(containerd: Option<&OwnContainerd>) -> Result<()> {
    match containerd {
        Some(containerd) => Ok(containerd.wait_ready(RUNTIME_LIMIT).await?),
        None => Ok(()),
    }
}

/// What runs Pods.
struct Started {
    /// The runtime's endpoint.
    runtime: String,
    containerd: Option<OwnContainerd>,
    network: Option<Network>,
    load_balancer_pool: Option<Ipv4Net>,
}

/// The given runtime, or one of our own with its network.
async fn start_runtime(dir: &DataDir, args: &NodeArgs) -> Result<Started> {
    if let Some(endpoint) = &args.runtime_endpoint {
        // Before it is written down: where nobody answers is no runtime.
        let asked = async { CriRuntime::new(endpoint, dir.root())?.version().await };
        asked.await.with_context(|| format!("--runtime-endpoint {endpoint}: no container runtime answers there"))?;
        if runtime::containerd::has_containers(dir.root()) {
            anyhow::bail!(
                "--runtime-endpoint {endpoint}: the Pods of {} run in Podium's own containerd; delete them first, by a \
                 Podium without this flag",
                dir.root().display()
            );
        }
    }
    dir.note_runtime(args.runtime_endpoint.as_deref())?;
    if let Some(endpoint) = &args.runtime_endpoint {
        return Ok(Started { runtime: endpoint.clone(), containerd: None, network: None, load_balancer_pool: None });
    }
    let mut options = network::Options::new(dir.root());
    options.pod_cidr = args.pod_cidr.as_deref().map(pod_cidr).transpose()?;
    let network = Network::prepare(options).await?;
    let own: Vec<Ipv4Addr> = interfaces().map(|(_, ip)| ip).collect();
    let load_balancer_pool = match network.leads_services {
        true => {
            let gateways = Network::gateways().await?;
            load_balancers::pool(args.load_balancer_cidr.as_ref(), network.cidr, &own, &gateways)?
        }
        false => None,
    };
    let containerd =
        OwnContainerd::start(dir.root().to_path_buf(), network.conf_dir.clone(), args.default_runtime).await?;
    let (runtime, containerd, network) = (containerd.endpoint(), Some(containerd), Some(network));
    Ok(Started { runtime, containerd, network, load_balancer_pool })
}

fn pod_cidr(text: &str) -> Result<Ipv4Net> {
    let cidr: Ipv4Net = text.parse().with_context(|| format!("--pod-cidr {text}: it must be an IPv4 block"))?;
    let (first, prefix) = server::SERVICE_RANGE;
    let services = Ipv4Net::new_assert(first, prefix);
    if cidr.contains(&services) || services.contains(&cidr) {
        anyhow::bail!("--pod-cidr {cidr} overlaps with the addresses of Services, {services}");
    }
    Ok(cidr)
}

fn node_name(args: &NodeArgs) -> Result<String> {
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()?.to_string_lossy().to_lowercase(),
    };
    // It is the value of the label `kubernetes.io/hostname`, too.
    let (mut errors, label) = (api::names::dns1123_subdomain(&name), api::names::label_value(&name));
    errors.extend(label);
    match errors.first() {
        None => Ok(name),
        Some(error) => anyhow::bail!("{name:?} cannot be a node's name: {error}"),
    }
}

/// The first address that is not loopback's, else loopback's.
fn node_ip() -> IpAddr {
    let found =
        interfaces().find(|(name, ip)| !ip.is_loopback() && !name.starts_with("podium") && !name.starts_with("pd-"));
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, ip)| IpAddr::V4(ip))
}

/// All addresses of the machine but those of links.
fn machine_ips() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    let v4 = |a: &SockaddrStorage| a.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    let v6 = |a: &SockaddrStorage| a.as_sockaddr_in6().map(SockaddrIn6::ip).filter(|ip| !ip.is_unicast_link_local());
    all.filter_map(|address| v4(&address).or_else(|| v6(&address).map(IpAddr::V6))).collect()
}

/// The machine's interfaces with their addresses.
fn interfaces() -> impl Iterator<Item = (String, Ipv4Addr)> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    all.filter_map(|a| Some((a.interface_name, a.address?.as_sockaddr_in()?.ip())))
}
