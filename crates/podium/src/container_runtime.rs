//! The container runtime of a node and its Pod network: Podium's engine, or a CRI endpoint.

use crate::{
    cli::NodeArgs,
    cluster::{interfaces, parse_pod_cidr},
    data_dir::{DataDir, RecordedRuntime},
    image_archives::ImageArchives,
    load_balancer_pool, pod_network,
};
use anyhow::{Context, Result, bail};
use cni::{Cni, CniOptions};
use engine::{Engine, EngineOptions, PodNetwork};
use images::ImageStore;
use lifecycle::HandlerSupport;
use network::{Ipv4Net, Network, PodConnector};
use runtime::{CriRuntime, Runtime};
use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories with `HOST/hosts.toml`: that of containerd, which administrators have already.
const REGISTRY_HOSTS_DIRS: [&str; 2] = ["/etc/podium/certs.d", "/etc/containerd/certs.d"];

/// Container runtime and Pod network.
pub(crate) struct NodeRuntime {
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Name of the runtime, the scheme of container IDs.
    pub(crate) name: String,
    /// Network of Podium's own; `None` with a CRI endpoint.
    pub(crate) network: Option<Network>,
    pub(crate) load_balancer_pool: Option<Ipv4Net>,
    /// Images to import beside the kubelet.
    pub(crate) archives: Option<ImageArchives>,
}

/// Returns which runtime handlers support recursive read-only mounts; none if the runtime does not report it.
pub(crate) async fn recursive_read_only_mounts(runtime: &dyn Runtime) -> HandlerSupport {
    let handlers = runtime.status().await.map(|status| status.handlers).unwrap_or_default();
    HandlerSupport {
        default_handler: handlers.iter().any(|handler| handler.name.is_empty() && handler.recursive_read_only_mounts),
        all_handlers: !handlers.is_empty() && handlers.iter().all(|handler| handler.recursive_read_only_mounts),
    }
}

/// Starts or connects to the runtime of the arguments, and sets up the Pod network.
///
/// # Errors
/// When the data directory has Pods in another runtime, or a part cannot be started.
pub(crate) async fn start(dir: &DataDir, args: &NodeArgs, node_name: &str) -> Result<NodeRuntime> {
    let requested = requested(args);
    check_unchanged(dir, &requested)?;
    if let RecordedRuntime::External(endpoint) = &requested {
        // Checked before the endpoint is recorded in the data directory.
        let version = async { CriRuntime::new(endpoint, dir.root())?.version().await };
        let version =
            version.await.with_context(|| format!("--runtime-endpoint {endpoint}: no container runtime responds"))?;
        dir.record_runtime(&requested)?;
        let runtime = Arc::new(CriRuntime::new(endpoint, dir.root())?);
        let (network, load_balancer_pool, archives) = (None, None, None);
        return Ok(NodeRuntime { runtime, name: version.name, network, load_balancer_pool, archives });
    }
    check_image_store(dir, args.image_store.path())?;
    check_connector(dir, args)?;
    dir.record_runtime(&requested)?;
    let mut options = network::Options::new(dir.root());
    options.pod_cidr = args.pod_cidr.as_deref().map(parse_pod_cidr).transpose()?;
    if args.cni.cni_conf_dir.is_some() {
        options.connector = PodConnector::Cni;
    }
    let network = Network::prepare(options).await?;
    let load_balancer_pool = load_balancer_pool(args, &network).await?;
    let images = open_image_store(args.image_store.path())?.of_cluster(dir.root())?;
    let archives = ImageArchives::new(dir, images.clone());
    let runtime = Arc::new(start_engine(dir, args, node_name, images, &archives, network.clone()).await?);
    let name = runtime.version().await?.name;
    Ok(NodeRuntime { runtime, name, network: Some(network), load_balancer_pool, archives: Some(archives) })
}

fn requested(args: &NodeArgs) -> RecordedRuntime {
    args.runtime_endpoint.clone().map_or(RecordedRuntime::Engine, RecordedRuntime::External)
}

/// Refuses another runtime than that of the Pods in the data directory, which it would not know.
fn check_unchanged(dir: &DataDir, requested: &RecordedRuntime) -> Result<()> {
    if *requested != RecordedRuntime::Engine && engine::has_sandboxes(dir.root()) {
        bail!(
            "the Pods of {} run in Podium's engine, not in {requested}; delete them first, with Podium running without \
             --runtime-endpoint",
            dir.root().display()
        );
    }
    Ok(())
}

/// Refuses another image store than that of the Pods in the data directory: their images are not in it, and their uses are not
/// recorded there.
fn check_image_store(dir: &DataDir, requested: &Path) -> Result<()> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match engine::image_store(dir.root()) {
        Some(recorded) if real(&recorded) != real(requested) && engine::has_sandboxes(dir.root()) => bail!(
            "the Pods of {} use the image store {}, not {}: start with --image-store {1}, or delete the Pods first",
            dir.root().display(),
            recorded.display(),
            requested.display()
        ),
        _ => Ok(()),
    }
}

/// Refuses a connector that does not know the Pods that another one has connected.
fn check_connector(dir: &DataDir, args: &NodeArgs) -> Result<()> {
    let root = dir.root().display();
    let uses_cni = args.cni.cni_conf_dir.is_some();
    if uses_cni && network::has_attachments(dir.root())? {
        bail!(
            "the Pods of {root} use Podium's own network; delete them first, with Podium running without --cni-conf-dir"
        );
    }
    // Not those of deleted Pods, which only wait for DEL.
    if !uses_cni && cni::attached(dir.root())?.iter().any(|id| engine::has_sandbox(dir.root(), id)) {
        bail!(
            "the Pods of {root} are connected by CNI plugins; delete them first, with Podium running with --cni-conf-dir"
        );
    }
    Ok(())
}

/// Returns what connects the engine's sandboxes.
fn pod_network(dir: &DataDir, args: &NodeArgs, network: Network) -> Result<Arc<dyn PodNetwork>> {
    let Some(conf_dir) = &args.cni.cni_conf_dir else {
        return Ok(Arc::new(pod_network::NetlinkPodNetwork(network)));
    };
    let mut options = CniOptions::new(dir.root(), std::path::absolute(conf_dir)?);
    if !args.cni.cni_bin_dir.is_empty() {
        let absolute = args.cni.cni_bin_dir.iter().map(std::path::absolute);
        options.bin_dirs = absolute.collect::<Result<_, _>>()?;
    }
    let cni = Cni::open(options).context("failed to open the records of CNI connections")?;
    Ok(Arc::new(pod_network::CniPodNetwork(cni)))
}

async fn load_balancer_pool(args: &NodeArgs, network: &Network) -> Result<Option<Ipv4Net>> {
    if !network.proxies_services {
        return Ok(None);
    }
    let addresses: Vec<Ipv4Addr> = interfaces().map(|(_, ip)| ip).collect();
    let gateways = Network::gateways().await?;
    load_balancer_pool::choose(args.load_balancer_cidr.as_ref(), network.cidr, &addresses, &gateways)
}

async fn start_engine(
    dir: &DataDir,
    args: &NodeArgs,
    node_name: &str,
    images: ImageStore,
    archives: &ImageArchives,
    network: Network,
) -> Result<Engine> {
    let options = EngineOptions {
        data_dir: dir.root().to_owned(),
        images,
        images_imported: archives.ended(),
        registry_hosts_dirs: registry_hosts_dirs(),
        keeper_program: keeper_program()?,
        default_handler: args.default_runtime.clone(),
        node_name: node_name.to_owned(),
        network: pod_network(dir, args, network)?,
    };
    Engine::open(options).await.context("failed to start the engine")
}

/// Returns the directories of registry configurations.
pub(crate) fn registry_hosts_dirs() -> Vec<PathBuf> {
    REGISTRY_HOSTS_DIRS.map(PathBuf::from).into()
}

/// Opens the image store of the machine.
///
/// # Errors
/// When its directory cannot be created.
pub(crate) fn open_image_store(root: &Path) -> Result<ImageStore> {
    ImageStore::open(root).with_context(|| format!("failed to open the image store {}", root.display()))
}

/// Returns the path of this program. The link of the kernel stays valid if the file is replaced by an upgrade.
fn keeper_program() -> Result<PathBuf> {
    let path = format!("/proc/{}/exe", std::process::id());
    std::fs::metadata(&path).with_context(|| format!("failed to find {path}"))?;
    Ok(path.into())
}
