//! Prepares a container: root file system, OCI bundle, the keeper's orders, record. All of it blocks.

use crate::{
    host, in_root, mount_table,
    pod_files::PodFiles,
    records::{self, ContainerRecord, SandboxRecord, VERSION},
    rootfs,
    state::{Container, Inner},
    steps::failed,
};
use bundle::{
    AppArmor, ContainerContext, DeviceSource, ImageConfig, MountSource, Namespace, PodNamespaces, Spec, UserDatabase,
};
use images::{AcquiredImage, MappedLayers};
use jiff::Timestamp;
use keeper::{ContainerOptions, Hello};
use oci_spec::runtime::{LinuxNamespaceType, PosixRlimitBuilder, PosixRlimitType};
use runtime::{
    ContainerConfig, IdMapping, ImageMount, LinuxResources, NamespaceMode, RuntimeError, SandboxConfig, SeccompProfile,
};
use serde_json::value::RawValue;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Use of an image as root file system.
const ROOTFS: &str = "rootfs";
/// Writable layer.
pub(crate) const UPPER: &str = "upper";
const WORK: &str = "work";
/// Where ID-mapped layers are mounted until the overlay is.
pub(crate) const LOWER: &str = "lower";
/// Mount points of image volumes.
pub(crate) const IMAGES: &str = "images";
/// OCI configuration.
pub(crate) const CONFIG: &str = "config.json";
/// Options for the keeper.
pub(crate) const OPTIONS: &str = "container.json";
/// Maximum size of an OCI configuration in bytes: environment and mounts of a Pod of 1.5 MiB.
const MAX_CONFIG: u64 = 16 << 20;

/// A container to prepare.
pub(crate) struct Request {
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    pub(crate) config: ContainerConfig,
    pub(crate) sandbox: SandboxRecord,
    pub(crate) sandbox_config: SandboxConfig,
    pub(crate) files: PodFiles,
    pub(crate) namespaces: Hello,
    /// Process namespace that the containers of the Pod share, if the keeper has none.
    pub(crate) pid_namespace: Option<PathBuf>,
    pub(crate) apparmor: Option<AppArmor>,
    /// Whether the OCI runtime has recursive read-only mounts.
    pub(crate) recursive_read_only: bool,
}

/// Prepares a container.
///
/// # Errors
/// When a step fails. The caller removes what the earlier steps created.
pub(crate) fn prepare(inner: &Inner, request: &Request) -> Result<ContainerRecord, RuntimeError> {
    let make_directories =
        || [WORK, IMAGES].iter().try_for_each(|name| files::create_private_dir_all(&request.dir.join(name)));
    make_directories().map_err(failed("create the container's directory"))?;
    let (image, image_config, root) = mount_root(inner, request)?;
    let record = record(request, &image, &image_config);
    let spec = spec(inner, request, &image_config, root)?;
    let config = bundle::encode(&spec).map_err(failed("encode the OCI configuration"))?;
    let write = || -> io::Result<()> {
        // The start syncs the record. After a power failure before it, the container does not exist.
        let options = serde_json::to_vec(&options(inner, request, &record))?;
        files::replace_private_unsynced(&request.dir.join(CONFIG), &config)?;
        files::replace_private_unsynced(&request.dir.join(OPTIONS), &options)?;
        records::save_unsynced(&Container::record_path(&request.dir), &record)
    };
    write().map_err(failed("write the container's configuration"))?;
    Ok(record)
}

/// Mounts the root file system of the image.
fn mount_root(inner: &Inner, request: &Request) -> Result<(AcquiredImage, ImageConfig, PathBuf), RuntimeError> {
    let store = &inner.options.images;
    let reference = &request.config.image_ref;
    let image = store
        .acquire(&inner.options.data_dir, &use_name(&request.id, ROOTFS), reference)
        .map_err(failed(format!("unpack image {reference:?}")))?;
    let mount = || {
        let (upper, work) = (request.dir.join(UPPER), request.dir.join(WORK));
        let target = rootfs::create(&request.dir, &request.sandbox.id, &request.id, users(request))?;
        with_mapped_layers(request, &image.lower_dirs, |layers| {
            images::create_upper(layers, &upper)?;
            mount_volatile(layers, &upper, &work, &target)
        })?;
        Ok::<_, io::Error>(target)
    };
    let root = mount().map_err(failed("mount the container's root file system"))?;
    in_root::check_mount_points(&root).map_err(failed(format!("use image {reference:?}")))?;
    let config = ImageConfig::parse(&image.config).map_err(failed(format!("read image {reference:?}")))?;
    Ok((image, config, root))
}

/// Returns the range of IDs of a Pod with a user namespace.
fn users(request: &Request) -> Option<IdMapping> {
    request.config.security.namespaces.users
}

/// Runs a function with the layers of an image, whose files belong to the IDs of the Pod's user namespace, if it has one.
fn with_mapped_layers<T>(
    request: &Request,
    layers: &[PathBuf],
    run: impl FnOnce(&[PathBuf]) -> io::Result<T>,
) -> io::Result<T> {
    if users(request).is_none() {
        return run(layers);
    }
    let hello = &request.namespaces;
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the keeper of the sandbox has no user namespace");
    let user_namespace = fs::File::open(hello.namespace_path(hello.namespaces.user.ok_or_else(missing)?))?;
    let lower = request.dir.join(LOWER);
    files::create_private_dir_all(&lower)?;
    let mapped = MappedLayers::mount(layers, &lower, &user_namespace)?;
    run(&mapped.paths())
}

/// Mounts a root file system whose unmount does not sync the disk: the writable layer ends with the container. Linux before
/// 5.10 does not know the option.
fn mount_volatile(layers: &[PathBuf], upper: &Path, work: &Path, target: &Path) -> io::Result<()> {
    match images::mount_overlay(layers, upper, work, target, &["volatile"]) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            images::mount_overlay(layers, upper, work, target, &[])
        }
        mounted => mounted,
    }
}

/// Name of the use of an image by a container.
fn use_name(id: &str, purpose: &str) -> String {
    format!("{id}-{purpose}")
}

/// Releases all images of a container.
pub(crate) fn release_images(inner: &Inner, id: &str) -> io::Result<()> {
    let (images, owner) = (&inner.options.images, &inner.options.data_dir);
    for (user, _) in images.uses(owner).map_err(io::Error::other)? {
        if user.strip_prefix(id).is_some_and(|purpose| purpose.starts_with('-')) {
            images.release(owner, &user).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn record(request: &Request, image: &AcquiredImage, image_config: &ImageConfig) -> ContainerRecord {
    let config = &request.config;
    let parent = request.sandbox_config.cgroup_parent.as_deref();
    ContainerRecord {
        version: VERSION,
        id: request.id.clone(),
        sandbox: request.sandbox.id.clone(),
        uid: request.sandbox.uid.clone(),
        name: config.name.clone(),
        attempt: config.attempt,
        created_at: Timestamp::now(),
        started_at: None,
        exit: None,
        image: image.tags.first().or(image.digests.first()).cloned().unwrap_or_else(|| image.id.to_string()),
        image_ref: image.digests.first().cloned().unwrap_or_else(|| image.id.to_string()),
        spec_image: config.image.clone(),
        stop_signal: config.stop_signal.or_else(|| runtime::StopSignal::parse(&image_config.stop_signal)),
        tty: config.tty,
        target_container: config.security.target_container.as_ref().map(|target| target.0.clone()),
        cgroup: bundle::cgroup_path(parent, &request.id),
    }
}

fn options(inner: &Inner, request: &Request, record: &ContainerRecord) -> ContainerOptions {
    let config = &request.config;
    let has_log = !config.log_path.as_os_str().is_empty();
    let file = match inner.host.cgroup_v2 {
        true => Path::new("/sys/fs/cgroup").join(record.cgroup.trim_start_matches('/')).join("memory.events"),
        false => {
            Path::new("/sys/fs/cgroup/memory").join(record.cgroup.trim_start_matches('/')).join("memory.oom_control")
        }
    };
    ContainerOptions {
        bundle: PathBuf::new(),
        terminal: config.tty,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        log_path: has_log.then(|| request.sandbox.log_directory.join(&config.log_path)),
        shares_pid_namespace: config.security.target_container.is_some()
            || config.security.namespaces.pid != NamespaceMode::Container,
        oom_events: Some(file),
    }
}

fn spec(inner: &Inner, request: &Request, image: &ImageConfig, root: PathBuf) -> Result<Spec, RuntimeError> {
    let config = &request.config;
    let user_file = |path| in_root::read(&root, path, bundle::MAX_USER_FILE_BYTES);
    let passwd = user_file("/etc/passwd").map_err(failed("read /etc/passwd of the image"))?;
    let group = user_file("/etc/group").map_err(failed("read /etc/group of the image"))?;
    let mounts = mount_sources(inner, request)?;
    let volumes = volumes(request, image, &root).map_err(failed("create a volume of the image"))?;
    let devices = config.devices.iter().map(|device| device_source(&device.host_path)).collect::<Vec<_>>();
    let profile = match &config.security.seccomp {
        SeccompProfile::Localhost(path) => {
            let limit = u64::try_from(bundle::MAX_PROFILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
            files::read_bounded(path, limit).map_err(|error| error.to_string())
        }
        SeccompProfile::Unconfined | SeccompProfile::RuntimeDefault => Ok(Vec::new()),
    };
    let context = ContainerContext {
        id: &request.id,
        sandbox_id: &request.sandbox.id,
        config,
        sandbox: &request.sandbox_config,
        image,
        users: UserDatabase { passwd: Some(&passwd), group: Some(&group) },
        namespaces: &namespaces(request),
        files: &pod_files(request),
        mounts: &mounts,
        volumes: &volumes,
        devices: &devices,
        recursive_read_only: request.recursive_read_only,
        seccomp_profile: profile.as_deref().map_err(String::as_str),
        apparmor: request.apparmor.as_ref(),
    };
    let mut spec =
        bundle::container_spec(&context, &inner.host).map_err(|error| RuntimeError::Failed(error.to_string()))?;
    if users(request).is_some() {
        let mut oci_root = spec.root().clone().unwrap_or_default();
        oci_root.set_path(root);
        spec.set_root(Some(oci_root));
    }
    limit_open_files(&mut spec).map_err(failed("limit the container's open files"))?;
    Ok(spec)
}

/// Sets the limit of open files, which this process has raised for itself: some programs iterate over all descriptors.
fn limit_open_files(spec: &mut Spec) -> io::Result<()> {
    let (soft, hard) = runtime::container_file_limits()?;
    let limit = PosixRlimitBuilder::default().typ(PosixRlimitType::RlimitNofile).soft(soft).hard(hard).build();
    let mut process = spec.process().clone().unwrap_or_default();
    process.set_rlimits(Some(vec![limit.map_err(io::Error::other)?]));
    spec.set_process(Some(process));
    Ok(())
}

fn pod_files(request: &Request) -> bundle::PodFiles {
    let files = &request.files;
    bundle::PodFiles {
        hostname: Some(files.hostname.clone()),
        hosts: None,
        resolv_conf: Some(files.resolv_conf.clone()),
        shm: Some(files.shm.clone()),
    }
}

fn namespaces(request: &Request) -> PodNamespaces {
    let hello = &request.namespaces;
    let of_pod = |mode, descriptor| pod_namespace(hello, mode, descriptor);
    let modes = request.config.security.namespaces;
    let held = hello.namespaces;
    PodNamespaces {
        network: of_pod(modes.network, held.network),
        ipc: of_pod(modes.ipc, held.ipc),
        uts: of_pod(modes.network, held.uts),
        pid: match (&request.config.security.target_container, &request.pid_namespace) {
            // Replaced at the start (`join_pid_namespace`).
            (Some(_), _) => of_pod(NamespaceMode::Pod, None),
            (None, Some(path)) => Namespace::Path(path.clone()),
            (None, None) => of_pod(modes.pid, held.pid),
        },
        user: users(request).map_or(Namespace::Node, |_| user_namespace(hello)),
    }
}

/// Returns a namespace of a container, which is that of the keeper's descriptor if the Pod shares it.
pub(crate) fn pod_namespace(hello: &Hello, mode: NamespaceMode, descriptor: Option<i32>) -> Namespace {
    match mode {
        NamespaceMode::Node => Namespace::Node,
        NamespaceMode::Container => Namespace::New,
        // Without a descriptor the OCI runtime must refuse: an isolated namespace would be a silent error.
        NamespaceMode::Pod => Namespace::Path(hello.namespace_path(descriptor.unwrap_or(-1))),
    }
}

/// Returns the user namespace of a Pod. `runc` 1.3.6 takes a path that begins with `/proc/PID/` for one of the process with that ID,
/// and not for a descriptor, when it reads the mapping.
fn user_namespace(hello: &Hello) -> Namespace {
    Namespace::Path(format!("/proc/./{}/fd/{}", hello.pid, hello.namespaces.user.unwrap_or(-1)).into())
}

/// Resolves what the mounts of the configuration mount.
fn mount_sources(inner: &Inner, request: &Request) -> Result<Vec<MountSource>, RuntimeError> {
    let table = mount_table::read().map_err(failed("read the mounts of the machine"))?;
    let mut sources = Vec::new();
    for (index, mount) in request.config.mounts.iter().enumerate() {
        let path = match &mount.image {
            Some(image) => image_volume(inner, request, index, image)?,
            None => mount.host_path.clone(),
        };
        let source = ensure_exists(&path).and_then(|()| mount_table::source(&path, &table));
        sources.push(source.map_err(failed(format!("mount {}", path.display())))?);
    }
    Ok(sources)
}

/// Creates a directory for a path that does not exist, as containerd does.
fn ensure_exists(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => files::create_dir_all_with_mode(path, 0o755),
        other => other.map(drop),
    }
}

/// Mounts an image read-only, and returns the directory of its volume.
fn image_volume(inner: &Inner, request: &Request, index: usize, image: &ImageMount) -> Result<PathBuf, RuntimeError> {
    let store = &inner.options.images;
    let name = use_name(&request.id, &format!("image-{index}"));
    let acquired = store
        .acquire(&inner.options.data_dir, &name, &image.image_ref)
        .map_err(failed(format!("unpack image {:?}", image.image)))?;
    let target = request.dir.join(IMAGES).join(index.to_string());
    files::create_private_dir_all(&target).map_err(failed("create the directory of an image volume"))?;
    with_mapped_layers(request, &acquired.lower_dirs, |layers| store.mount_read_only(layers, &target))
        .map_err(failed(format!("mount image {:?}", image.image)))?;
    let found = in_root::resolve(&target, Path::new(&image.sub_path));
    found.map_err(|error| {
        RuntimeError::Failed(format!("failed to find subPath {:?} of image {:?}: {error}", image.sub_path, image.image))
    })
}

/// Returns the directories of the image's volumes. They are part of the writable layer, which goes with the container, too,
/// and has the files of the image; the mount of its own keeps them writable in a read-only root file system.
fn volumes(request: &Request, image: &ImageConfig, root: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let volumes = bundle::image_volumes(&request.config, image).into_iter();
    let owner = users(request).map_or(0, |users| users.host_id);
    volumes.map(|path| Ok((path.clone(), in_root::resolve_or_create(root, Path::new(&path), owner)?))).collect()
}

fn device_source(path: &Path) -> DeviceSource {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    DeviceSource { nodes: host::devices_at(&path), path }
}

/// Reads the OCI configuration of a container.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read_spec(dir: &Path) -> io::Result<Spec> {
    Ok(serde_json::from_slice(&files::read_bounded(&dir.join(CONFIG), MAX_CONFIG)?)?)
}

/// Sets the process namespace in the OCI configuration of a container.
///
/// # Errors
/// When the file system fails.
pub(crate) fn join_pid_namespace(dir: &Path, path: &Path) -> io::Result<()> {
    let mut spec = read_spec(dir)?;
    let mut linux = spec.linux().clone().unwrap_or_default();
    let mut namespaces = linux.namespaces().clone().unwrap_or_default();
    for namespace in namespaces.iter_mut().filter(|namespace| namespace.typ() == LinuxNamespaceType::Pid) {
        namespace.set_path(Some(path.to_owned()));
    }
    linux.set_namespaces(Some(namespaces));
    spec.set_linux(Some(linux));
    files::replace_private(&dir.join(CONFIG), &bundle::encode(&spec).map_err(io::Error::other)?)
}

/// Sets new limits in the OCI configuration of a container, and returns what the OCI runtime must get (`update`).
///
/// # Errors
/// When a limit is invalid, or the file system fails.
pub(crate) fn update_resources(
    inner: &Inner,
    container: &Container,
    limits: &LinuxResources,
) -> io::Result<Box<RawValue>> {
    let mut spec = read_spec(&container.dir)?;
    let update = bundle::update_resources(&mut spec, limits, &inner.host).map_err(io::Error::other)?;
    files::replace_private(&container.dir.join(CONFIG), &bundle::encode(&spec).map_err(io::Error::other)?)?;
    Ok(serde_json::value::to_raw_value(&update)?)
}
