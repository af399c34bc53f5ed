//! Conversion between CRI messages and the types of this crate.

use super::proto;
use crate::{
    AppArmorProfile, CgroupDriver, ContainerConfig, ContainerDisk, ContainerId, ContainerState, ContainerStatus, Exit,
    Handler, IdMapping, Image, LinuxResources, Mount, NamespaceMode, Namespaces, Propagation, RuntimeError,
    SandboxConfig, SandboxId, SandboxStatus, SeccompProfile, StopSignal, SupplementalGroupsPolicy, labels,
};
use jiff::Timestamp;
use std::collections::HashMap;

/// Default masked paths of upstream's kubelet (`pkg/securitycontext`).
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Default read-only paths of upstream's kubelet.
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) fn error(status: &tonic::Status) -> RuntimeError {
    let message = status.message().to_owned();
    match status.code() {
        tonic::Code::NotFound => RuntimeError::NotFound(message),
        tonic::Code::AlreadyExists => RuntimeError::AlreadyExists(message),
        tonic::Code::DeadlineExceeded => RuntimeError::Deadline(message),
        tonic::Code::Unavailable => RuntimeError::Unavailable(message),
        tonic::Code::Unimplemented => RuntimeError::Unimplemented(message),
        // containerd reports a reserved name with the code Unknown.
        _ if message.contains("is reserved for") => RuntimeError::AlreadyExists(message),
        _ => RuntimeError::Failed(message),
    }
}

/// Converts the CRI's enumeration `CgroupDriver`.
pub(super) fn cgroup_driver(driver: i32) -> Result<CgroupDriver, RuntimeError> {
    match driver {
        0 => Ok(CgroupDriver::Systemd),
        1 => Ok(CgroupDriver::Cgroupfs),
        unknown => Err(RuntimeError::Failed(format!("runtime returned an unknown cgroup driver {unknown}"))),
    }
}

pub(super) fn time(nanoseconds: i64) -> Option<Timestamp> {
    if nanoseconds <= 0 { None } else { Timestamp::from_nanosecond(i128::from(nanoseconds)).ok() }
}

fn mode(mode: NamespaceMode) -> i32 {
    match mode {
        NamespaceMode::Pod => 0,
        NamespaceMode::Container => 1,
        NamespaceMode::Node => 2,
    }
}

fn namespaces(n: Namespaces, target: Option<&ContainerId>) -> proto::NamespaceOption {
    let (pid, target_id) = target.map_or((mode(n.pid), String::new()), |t| (3, t.0.clone()));
    let userns_options = n.users.map(|users| {
        let ids = ids(users);
        proto::UserNamespace { mode: mode(NamespaceMode::Pod), uids: ids.clone(), gids: ids }
    });
    proto::NamespaceOption { network: mode(n.network), pid, ipc: mode(n.ipc), target_id, userns_options }
}

fn ids(users: IdMapping) -> Vec<proto::IdMapping> {
    vec![proto::IdMapping { host_id: users.host_id, container_id: 0, length: users.length }]
}

/// Converts a mount. In a user namespace the mount is ID-mapped, so that files keep their owners.
fn mount(m: &Mount, users: Option<IdMapping>) -> proto::Mount {
    proto::Mount {
        container_path: m.container_path.clone(),
        host_path: m.host_path.display().to_string(),
        readonly: m.readonly,
        recursive_read_only: m.recursive_read_only,
        propagation: match m.propagation {
            Propagation::Private => 0,
            Propagation::HostToContainer => 1,
            Propagation::Bidirectional => 2,
        },
        uid_mappings: users.map(ids).unwrap_or_default(),
        gid_mappings: users.map(ids).unwrap_or_default(),
        image: m.image.as_ref().map(|image| proto::ImageSpec {
            image: image.image_ref.clone(),
            user_specified_image: image.image.clone(),
            ..proto::ImageSpec::default()
        }),
        image_sub_path: m.image.as_ref().map(|image| image.sub_path.clone()).unwrap_or_default(),
    }
}

pub(super) fn handler(h: proto::RuntimeHandler) -> Handler {
    let features = h.features.unwrap_or_default();
    Handler {
        name: h.name,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}

pub(super) fn sandbox_config(c: &SandboxConfig, owner: &str) -> proto::PodSandboxConfig {
    let mut all: HashMap<String, String> = c.labels.clone().into_iter().collect();
    all.insert(labels::POD_NAME.to_owned(), c.name.clone());
    all.insert(labels::POD_NAMESPACE.to_owned(), c.namespace.clone());
    all.insert(labels::POD_UID.to_owned(), c.uid.clone());
    all.insert(labels::OWNER.to_owned(), owner.to_owned());
    proto::PodSandboxConfig {
        metadata: Some(proto::PodSandboxMetadata {
            name: c.name.clone(),
            uid: c.uid.clone(),
            namespace: c.namespace.clone(),
            attempt: c.attempt,
        }),
        hostname: c.hostname.clone(),
        log_directory: c.log_directory.display().to_string(),
        dns_config: c.dns.as_ref().map(|d| proto::DnsConfig {
            servers: d.servers.clone(),
            searches: d.searches.clone(),
            options: d.options.clone(),
        }),
        port_mappings: c
            .port_mappings
            .iter()
            .map(|p| proto::PortMapping {
                protocol: ["TCP", "UDP", "SCTP"]
                    .iter()
                    .position(|x| *x == p.protocol)
                    .and_then(|i| i.try_into().ok())
                    .unwrap_or(0),
                container_port: p.container_port.into(),
                host_port: p.host_port.into(),
                host_ip: p.host_ip.clone(),
            })
            .collect(),
        labels: all,
        annotations: c.annotations.clone().into_iter().collect(),
        linux: Some(proto::LinuxPodSandboxConfig {
            cgroup_parent: c.cgroup_parent.clone().unwrap_or_default(),
            security_context: Some(proto::LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(c.namespaces, None)),
                run_as_user: c.run_as_user.map(|value| proto::Int64Value { value }),
                run_as_group: c.run_as_group.map(|value| proto::Int64Value { value }),
                supplemental_groups: c.supplemental_groups.clone(),
                privileged: c.privileged,
                seccomp: Some(seccomp(&SeccompProfile::RuntimeDefault)),
            }),
            sysctls: c.sysctls.clone().into_iter().collect(),
        }),
    }
}

fn seccomp(profile: &SeccompProfile) -> proto::SecurityProfile {
    let (profile_type, localhost_ref) = match profile {
        SeccompProfile::RuntimeDefault => (0, String::new()),
        SeccompProfile::Unconfined => (1, String::new()),
        SeccompProfile::Localhost(path) => (2, path.display().to_string()),
    };
    proto::SecurityProfile { profile_type, localhost_ref }
}

pub(super) fn resources(r: &LinuxResources) -> proto::LinuxContainerResources {
    proto::LinuxContainerResources {
        cpu_period: r.cpu_period,
        cpu_quota: r.cpu_quota,
        cpu_shares: r.cpu_shares,
        memory_limit_in_bytes: r.memory_limit,
        oom_score_adj: r.oom_score_adj,
        cpuset_cpus: r.cpuset_cpus.clone(),
        cpuset_mems: r.cpuset_mems.clone(),
        hugepage_limits: r
            .hugepage_limits
            .iter()
            .map(|(size, limit)| proto::HugepageLimit { page_size: size.clone(), limit: *limit })
            .collect(),
        unified: r.unified.clone().into_iter().collect(),
    }
}

fn security(c: &ContainerConfig) -> proto::LinuxContainerSecurityContext {
    let s = &c.security;
    let owned = |list: &[&str]| list.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
    let (masked, readonly) = if s.privileged { (Vec::new(), Vec::new()) } else { (owned(&MASKED), owned(&READONLY)) };
    proto::LinuxContainerSecurityContext {
        capabilities: Some(proto::Capability {
            add_capabilities: s.add_capabilities.clone(),
            drop_capabilities: s.drop_capabilities.clone(),
        }),
        privileged: s.privileged,
        namespace_options: Some(namespaces(s.namespaces, s.target_container.as_ref())),
        run_as_user: s.run_as_user.map(|value| proto::Int64Value { value }),
        run_as_username: s.username.clone(),
        readonly_rootfs: s.readonly_rootfs,
        supplemental_groups: s.supplemental_groups.clone(),
        supplemental_groups_policy: (s.supplemental_groups_policy == SupplementalGroupsPolicy::Strict).into(),
        no_new_privs: s.no_new_privs,
        run_as_group: s.run_as_group.map(|value| proto::Int64Value { value }),
        masked_paths: s.masked_paths.clone().unwrap_or(masked),
        readonly_paths: s.readonly_paths.clone().unwrap_or(readonly),
        seccomp: Some(seccomp(&s.seccomp)),
        apparmor: s.apparmor.as_ref().map(|profile| apparmor(profile).0),
        apparmor_profile: s.apparmor.as_ref().map(|profile| apparmor(profile).1).unwrap_or_default(),
    }
}

/// Converts an AppArmor profile to the field and to the deprecated string for older runtimes.
fn apparmor(profile: &AppArmorProfile) -> (proto::SecurityProfile, String) {
    let (profile_type, localhost_ref, old) = match profile {
        AppArmorProfile::RuntimeDefault => (0, String::new(), "runtime/default".to_owned()),
        AppArmorProfile::Unconfined => (1, String::new(), "unconfined".to_owned()),
        AppArmorProfile::Localhost(name) => (2, name.clone(), format!("localhost/{name}")),
    };
    (proto::SecurityProfile { profile_type, localhost_ref }, old)
}

pub(super) fn container_config(c: &ContainerConfig, pod: &SandboxConfig) -> proto::ContainerConfig {
    let mut all: HashMap<String, String> = c.labels.clone().into_iter().collect();
    all.insert(labels::POD_NAME.to_owned(), pod.name.clone());
    all.insert(labels::POD_NAMESPACE.to_owned(), pod.namespace.clone());
    all.insert(labels::POD_UID.to_owned(), pod.uid.clone());
    all.insert(labels::CONTAINER_NAME.to_owned(), c.name.clone());
    let mut annotations: HashMap<String, String> = c.annotations.clone().into_iter().collect();
    annotations.insert(labels::IMAGE.to_owned(), c.image.clone());
    proto::ContainerConfig {
        metadata: Some(proto::ContainerMetadata { name: c.name.clone(), attempt: c.attempt }),
        image: Some(proto::ImageSpec {
            image: c.image_ref.clone(),
            user_specified_image: c.image.clone(),
            ..proto::ImageSpec::default()
        }),
        command: c.command.clone(),
        args: c.args.clone(),
        working_dir: c.working_dir.clone(),
        envs: c.env.iter().map(|(key, value)| proto::KeyValue { key: key.clone(), value: value.clone() }).collect(),
        mounts: c.mounts.iter().map(|m| mount(m, c.security.namespaces.users)).collect(),
        devices: c
            .devices
            .iter()
            .map(|d| proto::Device {
                container_path: d.container_path.display().to_string(),
                host_path: d.host_path.display().to_string(),
                permissions: d.permissions.clone(),
            })
            .collect(),
        labels: all,
        annotations,
        log_path: c.log_path.display().to_string(),
        stdin: c.stdin,
        stdin_once: c.stdin_once,
        tty: c.tty,
        linux: Some(proto::LinuxContainerConfig {
            resources: Some(resources(&c.resources)),
            security_context: Some(security(c)),
        }),
        stop_signal: c.stop_signal.map_or(0, StopSignal::cri),
    }
}

pub(super) fn sandbox_status(id: String, m: proto::PodSandboxMetadata, state: i32, created_at: i64) -> SandboxStatus {
    SandboxStatus {
        id: SandboxId(id),
        uid: m.uid,
        name: m.name,
        namespace: m.namespace,
        attempt: m.attempt,
        ready: state == 0,
        created_at: time(created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        ips: Vec::new(),
    }
}

pub(super) fn container_state(state: i32) -> ContainerState {
    match state {
        0 => ContainerState::Created,
        1 => ContainerState::Running,
        2 => ContainerState::Exited,
        _ => ContainerState::Unknown,
    }
}

pub(super) fn container(c: proto::Container) -> ContainerStatus {
    let m = c.metadata.unwrap_or_default();
    ContainerStatus {
        id: ContainerId(c.id),
        sandbox: Some(SandboxId(c.pod_sandbox_id)),
        uid: c.labels.get(labels::POD_UID).cloned().unwrap_or_default(),
        name: m.name,
        attempt: m.attempt,
        state: container_state(c.state),
        created_at: time(c.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        started_at: None,
        exit: None,
        image: c.image.unwrap_or_default().image,
        image_ref: c.image_ref,
        spec_image: None,
        stop_signal: None,
    }
}

pub(super) fn container_status(c: proto::ContainerStatus) -> ContainerStatus {
    let m = c.metadata.unwrap_or_default();
    let created_at = time(c.created_at).unwrap_or(Timestamp::UNIX_EPOCH);
    let state = container_state(c.state);
    let exit = (state == ContainerState::Exited).then(|| Exit {
        code: c.exit_code,
        reason: c.reason,
        message: c.message,
        finished_at: time(c.finished_at).unwrap_or(created_at),
    });
    ContainerStatus {
        id: ContainerId(c.id),
        sandbox: None,
        uid: c.labels.get(labels::POD_UID).cloned().unwrap_or_default(),
        name: m.name,
        attempt: m.attempt,
        state,
        created_at,
        started_at: time(c.started_at),
        exit,
        image: c.image.unwrap_or_default().image,
        image_ref: c.image_ref,
        spec_image: c.annotations.get(labels::IMAGE).cloned(),
        stop_signal: StopSignal::from_cri(c.stop_signal),
    }
}

pub(super) fn container_disk(stats: proto::ContainerStats) -> Option<ContainerDisk> {
    let layer = stats.writable_layer?;
    let number = |n: Option<proto::UInt64Value>| n.map_or(0, |n| n.value);
    Some(ContainerDisk { bytes: number(layer.used_bytes), inodes: number(layer.inodes_used) })
}

/// Whether this is a name of upstream's sandbox image.
fn is_pause(tag: &str) -> bool {
    ["registry.k8s.io/pause:", "k8s.gcr.io/pause:"].iter().any(|name| tag.starts_with(name))
}

pub(super) fn image(i: proto::Image) -> Image {
    // Runtimes before CRI 1.23 do not pin the sandbox image.
    let pinned = i.pinned || i.repo_tags.iter().any(|tag| is_pause(tag));
    Image {
        pinned,
        id: i.id,
        tags: i.repo_tags,
        digests: i.repo_digests,
        size: i.size,
        uid: i.uid.map(|u| u.value),
        username: i.username,
    }
}

/// Parses the `STOPSIGNAL` in the verbose image status of containerd and CRI-O.
pub(super) fn image_stop_signal(info: &str) -> Option<StopSignal> {
    let info: serde_json::Value = serde_json::from_str(info).ok()?;
    StopSignal::parse(info["imageSpec"]["config"]["StopSignal"].as_str()?)
}
