//! A cluster in one process. Its components communicate only through the API.

use crate::{
    api_address::ApiAddress,
    certificates, cgroup_driver,
    cli::NodeArgs,
    cluster_services::Services,
    container_runtime::{self, NodeRuntime},
    control_plane_runtime::ControlPlaneRuntime,
    data_dir::DataDir,
    encryption_config, image_archives, kubelet_config,
    kubelet_dialer::KubeletDialer,
    listen_options, local_volumes, store_quota,
};
use anyhow::{Context, Result};
use audit::AuditLog;
use auth::{
    pki::Pki,
    tokens::{TokenFile, TokenLifetime},
};
use encryption::Encryption;
use ipnet::Ipv4Net;
use kube::Client;
use kubelet::{Kubelet, KubeletConfiguration};
use lifecycle::NodePolicy;
use nix::sys::socket::{SockaddrIn6, SockaddrStorage};
use runtime::Runtime;
use server::{AdmissionPlugins, ApiServer, UserInfo};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};
use store::{FjallEngine, FjallOptions, MemoryEngine, Store, TransformedEngine};
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A running cluster.
pub(crate) struct Cluster {
    /// A client of the cluster administrator.
    pub(crate) client: Client,
    /// URL of the API server.
    pub(crate) url: String,
    /// Name of the node.
    pub(crate) node: String,
    stop: CancellationToken,
    tasks: TaskTracker,
    kubelet: Kubelet,
    runtime: Arc<dyn Runtime>,
    audit: Option<Arc<AuditLog>>,
    _control_plane: ControlPlaneRuntime,
}

/// Authentication, audit and request limits of the API server.
#[derive(Clone, Default)]
pub(crate) struct ApiServerOptions {
    pub(crate) tokens: TokenFile,
    pub(crate) audit: Option<Arc<AuditLog>>,
    pub(crate) token_lifetime: TokenLifetime,
    /// Maximum number of requests in flight; `None` for the default.
    pub(crate) max_inflight: Option<usize>,
    /// Whether the cluster is not started again: its store is in memory.
    pub(crate) temporary: bool,
}

/// HTTPS listener of the kubelet.
struct KubeletEndpoint {
    listener: TcpListener,
    port: u16,
    /// `clientCAFile` in PEM; `None` for the cluster's CA.
    client_ca_pem: Option<String>,
}

impl KubeletEndpoint {
    async fn bind(config: &KubeletConfiguration) -> Result<Option<Self>> {
        let Some(address) = config.endpoint() else { return Ok(None) };
        let context = || {
            format!("failed to listen on {address} for the kubelet: choose another port in the KubeletConfiguration")
        };
        let listener = TcpListener::bind(address).await.with_context(context)?;
        let read = |file: std::path::PathBuf| {
            std::fs::read_to_string(&file).with_context(|| format!("clientCAFile {}", file.display()))
        };
        let client_ca_pem = config.client_ca_file().map(read).transpose()?;
        Ok(Some(Self { listener, port: address.port(), client_ca_pem }))
    }
}

impl Cluster {
    /// Starts all components. When this returns, the API server serves, and the node is not yet Ready.
    pub(crate) async fn start(
        dir: &DataDir,
        api: &ApiAddress,
        kubeconfig: &Path,
        args: &NodeArgs,
        options: ApiServerOptions,
    ) -> Result<Self> {
        let node = node_name(args)?;
        let encryption = encryption_config::load(&args.encryption)?;
        // Raises the limit of open files, for the API's connections.
        let listen = listen_options::with_fd_limit();
        let listener = TcpListener::bind(api.bind)
            .await
            .with_context(|| format!("failed to listen on {}: choose another address with --bind", api.bind))?;
        let mut config = kubelet_config::load(args.kubelet_config.as_deref())?;
        config.check_capacity(dir.root())?;
        let policy = kubelet_config::node_policy(&config, &args.feature_gates)?;
        let providers = kubelet_config::credential_providers(args)?;
        let endpoint = KubeletEndpoint::bind(&config).await?;
        let NodeRuntime { runtime, name, network, load_balancer_pool, archives } =
            container_runtime::start(dir, args, &node).await?;
        cgroup_driver::resolve(dir, &*runtime, &mut config).await?;
        let cidr = network.as_ref().map_or_else(|| args.pod_cidr.clone(), |network| Some(network.cidr.to_string()));
        let address = listener.local_addr()?;
        let services = match network.filter(|network| network.proxies_services) {
            Some(network) => Some(Services::prepare(network, load_balancer_pool, address, &mut config, &listen).await?),
            None => None,
        };
        let node_ip = node_ip(cidr.as_deref());
        let advertised = api.advertised_address(address, node_ip);
        let service_endpoint = services.as_ref().map_or(advertised, Services::api_address);
        let mut ips =
            vec![advertised.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(server::API_IP), service_endpoint.ip()];
        ips.extend(api.ips(address, &machine_ips()));
        let mut names = vec![node.clone(), format!("kubernetes.default.svc.{}", config.cluster_domain)];
        names.extend(api.names(&nix::unistd::gethostname()?.to_string_lossy().to_lowercase()));
        let pki = Pki::load_or_create(&dir.pki(), &names, &ips)?;
        let store = open_store(dir, args, encryption, options.temporary)?;
        let control_plane = ControlPlaneRuntime::new()?;
        let dialer = Arc::new(KubeletDialer::new(&node, Handle::current()));
        let gates = policy.gates.clone();
        let server =
            configure_api_server(ApiServer::new(store, dialer.clone()), &pki, advertised, args, options.clone())?
                .with_gates(gates.clone());
        server.bootstrap().await;
        server.bootstrap_service(service_endpoint).await;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        // The API server serves meanwhile; clients that need the RBAC roles wait for them.
        tasks.spawn(server.bootstrap_rbac());
        let bootstrapped = server.clone();
        tasks.spawn(async move {
            bootstrapped.bootstrap_addresses().await;
            bootstrapped.bootstrap_token_tracking().await;
        });
        let serve = |listener, listen| -> Result<()> {
            let listener = control_plane.register(listener)?;
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
        let recursive_read_only_mounts = container_runtime::recursive_read_only_mounts(&*runtime).await;
        let kubelet_options = kubelet::Options {
            node_name: node.clone(),
            root_dir: dir.kubelet(),
            node_ip,
            pod_cidr: cidr,
            policy: NodePolicy { host_ips: vec![node_ip], runtime_name: name, recursive_read_only_mounts, ..policy },
            config,
            pod_rules: |pod, gates| Ok(server::prepare_static_pod(pod, gates)?),
            clock: kubelet::Clock::system(),
            random: rand::random(),
            port: endpoint.as_ref().map_or(0, |endpoint| endpoint.port),
            home: std::env::home_dir(),
            credential_providers: Arc::new(providers),
        };
        files::create_private_dir_all(&dir.kubelet())?;
        let mut kubelet = Kubelet::new(kubelet_options, client(UserInfo::node(&node)), runtime.clone(), stop.clone());
        kubelet.prepare_cgroups().await?;
        if let Some(readiness) = network_readiness {
            kubelet = kubelet.with_network_readiness(readiness);
        }
        dialer.connect(kubelet.clone());
        if let Some(endpoint) = endpoint {
            let tls = pki.node_server_config(
                &node,
                &[node_ip, IpAddr::V4(Ipv4Addr::LOCALHOST)],
                endpoint.client_ca_pem.as_deref(),
            )?;
            tasks.spawn(kubelet.clone().serve_https(endpoint.listener, tls));
        }
        let user = UserInfo::named("system:kube-scheduler");
        let controller_clients = controller_clients(&server);
        let scheduler = scheduler::Scheduler::new(client(user), scheduler::Options::default())
            .with_informers(controller_clients.informers().clone());
        register_component(&server, "scheduler", &tasks.spawn_on(scheduler.run(stop.clone()), control_plane.handle()));
        let provisioner = local_volumes::provisioner(dir, &node, &server).await?;
        let reporting = store_quota::report(server.quota_alarm(), client(UserInfo::node(&node)), node.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(reporting));
        let admin = client(UserInfo::component("kubernetes-admin"));
        let monitoring =
            certificates::monitor(pki.clone(), kubeconfig.to_owned(), url.clone(), admin.clone(), node.clone());
        tasks.spawn(stop.clone().run_until_cancelled_owned(monitoring));
        tasks.spawn(local_volumes::report_orphaned_volumes(dir.volumes(), admin.clone()));
        let controller_options = controllers::Options {
            provisioner: Some(provisioner),
            load_balancer_pool,
            root_ca_pem: Some(pki.ca_pem().to_owned()),
            token_issuer: Some(legacy_token_maker(&pki)?),
            signer: Some(signer(&pki)?),
            gates,
            ..controllers::Options::default()
        };
        let running = tasks
            .spawn_on(controllers::run(controller_clients, controller_options, stop.clone()), control_plane.handle());
        register_component(&server, "controller-manager", &running);
        if let Some(archives) = archives {
            let importing = image_archives::import(archives, client(UserInfo::node(&node)), node.clone(), stop.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(importing));
        }
        let runs = kubelet.clone();
        tasks.spawn(stop.clone().run_until_cancelled_owned(async move { runs.run().await }));
        tasks.close();
        let audit = options.audit;
        Ok(Self { client: admin, url, node, stop, tasks, kubelet, runtime, audit, _control_plane: control_plane })
    }

    /// Waits until the node is Ready.
    pub(crate) async fn wait_node_ready(&self) {
        self.kubelet.wait_ready().await;
    }

    /// Stops all components. Containers keep running.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if tokio::time::timeout(Duration::from_secs(5), self.tasks.wait()).await.is_err() {
            tracing::warn!("timed out waiting for components to stop");
        }
        self.runtime.close().await;
        if let Some(audit) = self.audit {
            audit.flush().await;
        }
    }
}

fn open_store(dir: &DataDir, args: &NodeArgs, encryption: Encryption, is_temporary: bool) -> Result<Store> {
    let quota_bytes = store_quota::bytes(args.quota_backend_bytes);
    let options = store::Options { quota_bytes, ..store::Options::default() };
    let store = if is_temporary {
        Store::open(MemoryEngine::new(), options)
    } else {
        let engine = FjallEngine::open(dir.store(), FjallOptions::default())?;
        Store::open(TransformedEngine::new(engine, Arc::new(encryption)), options)
    };
    store.map_err(encryption_config::explain)
}

/// Configures the API server.
fn configure_api_server(
    server: ApiServer,
    pki: &Pki,
    address: SocketAddr,
    args: &NodeArgs,
    options: ApiServerOptions,
) -> Result<ApiServer> {
    let plugins = AdmissionPlugins::new(&args.enable_admission_plugins, &args.disable_admission_plugins)?;
    let mut server = server
        .with_admission(plugins)
        .with_signing_key(pki.signing_key()?)
        .with_address(&address.to_string())
        .with_front_proxy(pki.front_proxy(), pki.ca_pem())
        .with_token_lifetime(options.token_lifetime)
        .with_tokens(options.tokens);
    if let Some(log) = options.audit {
        server = server.with_audit(log);
    }
    Ok(match options.max_inflight {
        Some(total) => server.with_max_requests_inflight(total),
        None => server,
    })
}

/// Registers a component status, which is healthy while its task runs.
fn register_component(server: &ApiServer, name: &str, task: &tokio::task::JoinHandle<()>) {
    let task = task.abort_handle();
    server.register_component(name, move || if task.is_finished() { Err("task has ended".into()) } else { Ok(()) });
}

/// Returns the CA signer for the certificate controllers.
fn signer(pki: &Pki) -> Result<controllers::Signer> {
    let signer = pki.signer()?;
    Ok(controllers::Signer::new(move |request| {
        let validity = (request.from, request.until);
        Ok(signer.issue(request.request, request.uses, validity)?)
    }))
}

/// Returns the signer of legacy service account tokens, for the token controller.
fn legacy_token_maker(pki: &Pki) -> Result<controllers::TokenIssuer> {
    let key = pki.signing_key()?;
    Ok(controllers::TokenIssuer::new(move |request| {
        key.legacy_token(request.namespace, request.account, request.uid, request.secret)
    }))
}

/// Returns the clients of the controllers: one for shared watches, and one per controller, with the service account of its
/// name.
fn controller_clients(server: &ApiServer) -> controllers::Clients {
    let manager = server.local(UserInfo::named("system:kube-controller-manager"));
    let server = server.clone();
    let account =
        move |name: &str| Client::new(server.local(UserInfo::service_account("kube-system", name)), "default");
    controllers::Clients::new(Client::new(manager, "default"), account)
}

/// Parses `--pod-cidr`.
///
/// # Errors
/// When it is invalid, or overlaps with the Service CIDR.
pub(crate) fn parse_pod_cidr(text: &str) -> Result<Ipv4Net> {
    let cidr: Ipv4Net = text.parse().with_context(|| format!("--pod-cidr {text}: must be an IPv4 CIDR"))?;
    let (first, prefix) = server::SERVICE_RANGE;
    let services = Ipv4Net::new_assert(first, prefix);
    if cidr.contains(&services) || services.contains(&cidr) {
        anyhow::bail!("--pod-cidr {cidr}: must not overlap with the Service CIDR {services}");
    }
    Ok(cidr)
}

fn node_name(args: &NodeArgs) -> Result<String> {
    let name = match &args.node_name {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()?.to_string_lossy().to_lowercase(),
    };
    // The name is also the value of the label `kubernetes.io/hostname`.
    let (mut errors, label) = (api::names::dns1123_subdomain(&name), api::names::label_value(&name));
    errors.extend(label);
    match errors.first() {
        None => Ok(name),
        Some(error) => anyhow::bail!("invalid node name {name:?}: {error}"),
    }
}

/// Returns the first address that is not a loopback address, else 127.0.0.1.
fn node_ip(pods: Option<&str>) -> IpAddr {
    // A bridge of CNI plugins has an address of the Pod CIDR.
    let pods: Option<Ipv4Net> = pods.and_then(|cidr| cidr.parse().ok());
    let is_own = |name: &str| name.starts_with("podium") || name.starts_with("pd-");
    let is_of_pods = |ip: &Ipv4Addr| pods.is_some_and(|pods| pods.contains(ip));
    let found = interfaces().find(|(name, ip)| !ip.is_loopback() && !is_own(name) && !is_of_pods(ip));
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, ip)| IpAddr::V4(ip))
}

/// Returns all addresses of the machine except link-local ones.
fn machine_ips() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten().filter_map(|interface| interface.address);
    let v4 = |a: &SockaddrStorage| a.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    let v6 = |a: &SockaddrStorage| a.as_sockaddr_in6().map(SockaddrIn6::ip).filter(|ip| !ip.is_unicast_link_local());
    all.filter_map(|address| v4(&address).or_else(|| v6(&address).map(IpAddr::V6))).collect()
}

/// Returns the machine's interfaces and their IPv4 addresses.
pub(crate) fn interfaces() -> impl Iterator<Item = (String, Ipv4Addr)> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    all.filter_map(|a| Some((a.interface_name, a.address?.as_sockaddr_in()?.ip())))
}
