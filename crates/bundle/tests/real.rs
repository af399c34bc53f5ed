//! Containers of translated specifications, run by runc. Needs root, runc and a static busybox.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests fail by panicking")]

use bundle::{
    CapabilitySet, ContainerContext, DeviceKind, DeviceNode, HostInfo, ImageConfig, MountSource, Namespace, PodFiles,
    PodNamespaces, Spec, UserDatabase, container_spec, encode, update_resources,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::stat::{major, minor},
};
use runtime::{ContainerConfig, LinuxResources, Mount, Propagation, SandboxConfig, SeccompProfile};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, symlink},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
};
use tempfile::TempDir;

/// Reports what the container observes of itself, as lines of `KEY VALUE`.
const SCRIPT: &str = r#"
for field in Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp; do
    echo "$field" $(grep "^$field:" /proc/1/status | cut -d: -f2)
done
tr '\0' '\n' < /proc/1/environ | sed 's/^/env /'
sed 's/^/mount /' /proc/self/mounts
echo cwd $(pwd)
echo hostname $(hostname)
echo oom $(cat /proc/1/oom_score_adj)
echo memory $(cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null)
echo net $(readlink /proc/1/ns/net)
for file in /file /data/file /ro/file /proc/sys/net/core/somaxconn /sys/kernel/x; do
    (: >> $file) 2>/dev/null && echo "write $file yes" || echo "write $file no"
done
echo keys $(cat /proc/keys | wc -c)
for device in /dev/*; do [ -c $device ] && [ ! -L $device ] && echo device $device; done
mount -t tmpfs none /data 2>/dev/null && echo "tmpfs yes" || echo "tmpfs no"
"#;

/// Inputs of a translation, with an owner.
struct Input {
    config: ContainerConfig,
    sandbox: SandboxConfig,
    image: ImageConfig,
    passwd: Vec<u8>,
    group: Vec<u8>,
    namespaces: PodNamespaces,
    mounts: Vec<MountSource>,
    host: HostInfo,
}

impl Input {
    fn spec(&self) -> Spec {
        let context = ContainerContext {
            id: "c1",
            sandbox_id: "s1",
            config: &self.config,
            sandbox: &self.sandbox,
            image: &self.image,
            users: UserDatabase { passwd: Some(&self.passwd), group: Some(&self.group) },
            namespaces: &self.namespaces,
            files: &PodFiles::default(),
            mounts: &self.mounts,
            volumes: &BTreeMap::new(),
            devices: &[],
            recursive_read_only: false,
            seccomp_profile: Err("not used"),
            apparmor: None,
        };
        container_spec(&context, &self.host).unwrap()
    }
}

/// A bundle, whose container and cgroup are removed on drop.
struct Bundle {
    dir: TempDir,
    id: String,
    cgroup: String,
}

impl Bundle {
    /// Creates the root file system, or prints why containers cannot run here.
    fn new(name: &str) -> Option<Self> {
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).is_file());
        if !nix::unistd::geteuid().is_root() || Command::new("runc").arg("--version").output().is_err() {
            println!("skipped: needs root and runc");
            return None;
        }
        let Some(busybox) = busybox else {
            println!("skipped: busybox is not installed");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("rootfs");
        for name in ["bin", "etc", "work", "data", "ro", "proc", "sys", "dev"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::copy(busybox, root.join("bin/busybox")).unwrap();
        for applet in ["sh", "cat", "grep", "cut", "tr", "sed", "hostname", "readlink", "wc", "mount", "sleep"] {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let id = format!("podium-bundle-{name}-{}", std::process::id());
        Some(Self { dir, cgroup: format!("/{id}"), id })
    }

    /// Returns an input for this bundle: a container that runs the script.
    fn input(&self) -> Input {
        let command = ["sh", "-c", SCRIPT].map(str::to_owned).into();
        let cgroup_parent = Some(self.cgroup.clone());
        let mut input = Input {
            config: ContainerConfig { command, ..ContainerConfig::default() },
            sandbox: SandboxConfig { cgroup_parent, privileged: true, ..SandboxConfig::default() },
            image: ImageConfig::default(),
            passwd: Vec::new(),
            group: Vec::new(),
            namespaces: PodNamespaces::default(),
            mounts: Vec::new(),
            host: host(),
        };
        for (target, readonly) in [("/data", false), ("/ro", true)] {
            let source = self.dir.path().join(target.trim_start_matches('/'));
            fs::create_dir_all(&source).unwrap();
            std::os::unix::fs::chown(&source, Some(1000), None).unwrap();
            input.config.mounts.push(Mount {
                host_path: source.clone(),
                image: None,
                container_path: target.to_owned(),
                readonly,
                recursive_read_only: false,
                propagation: Propagation::Private,
            });
            input.mounts.push(MountSource::new(source));
        }
        input
    }

    fn runc(&self, args: &[&str]) -> Command {
        let mut runc = Command::new("timeout");
        runc.args(["--kill-after=5", "60", "runc", "--root"]).arg(self.dir.path().join("state"));
        runc.args(args).stdin(Stdio::null());
        runc
    }

    /// Returns the command that runs a container.
    fn run_command(&self, spec: &Spec, options: &[&str]) -> Command {
        fs::write(self.dir.path().join("config.json"), encode(spec).unwrap()).unwrap();
        let mut runc = self.runc(&["run"]);
        runc.args(options).arg("--bundle").arg(self.dir.path()).arg(&self.id);
        runc
    }

    /// Runs the container until it ends, and returns its report.
    fn run(&self, spec: &Spec) -> Report {
        let output = self.run_command(spec, &[]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} {error}", output.status);
        Report(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        self.runc(&["delete", "--force", &self.id]).output().ok();
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain(["/sys/fs/cgroup".into()]) {
            fs::remove_dir(hierarchy.join(self.cgroup.trim_start_matches('/'))).ok();
        }
    }
}

/// Lines that a container wrote.
struct Report(Vec<String>);

impl Report {
    /// Returns the values of a key.
    fn all(&self, key: &str) -> Vec<&str> {
        let value =
            |line: &'_ String| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(' ') || rest.is_empty());
        self.0.iter().filter(|line| value(line)).map(|line| line[key.len()..].trim()).collect()
    }

    #[track_caller]
    fn check(&self, key: &str, expected: &str) {
        assert_eq!(self.all(key), [expected], "{key}: {:#?}", self.0);
    }

    /// Checks that each mount of a specification is there, with its type and access.
    fn check_mounts(&self, spec: &Spec) {
        let lines: Vec<Vec<&str>> = self.all("mount").iter().map(|line| line.split(' ').collect()).collect();
        for mount in spec.mounts().iter().flatten() {
            let (kind, options) = (mount.typ().as_deref().unwrap(), mount.options().as_ref().unwrap());
            let target = mount.destination().display().to_string();
            // With cgroup v1, runc mounts each hierarchy below a tmpfs.
            let is_mount = |fields: &&Vec<&str>| {
                let is_hierarchy = kind == "cgroup" && fields[2] == kind && Path::new(fields[1]).starts_with(&target);
                is_hierarchy || fields[1] == target && (kind == "bind" || fields[2].starts_with(kind))
            };
            let found = lines.iter().rfind(is_mount);
            let found = found.unwrap_or_else(|| panic!("{target} is not mounted: {lines:#?}"));
            let expects_readonly = options.iter().any(|option| option == "ro");
            assert_eq!(found[3].split(',').any(|option| option == "ro"), expects_readonly, "{target}: {found:?}");
        }
    }
}

/// Reads the features of this machine.
fn host() -> HostInfo {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut version = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    HostInfo {
        hostname: "node".to_owned(),
        kernel: (version.next().unwrap(), version.next().unwrap()),
        capabilities: CapabilitySet::from_bits(u64::from_str_radix(field("CapEff").unwrap(), 16).unwrap()),
        seccomp: field("Seccomp").is_some(),
        cgroup_v2: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
        swap_limit: Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists(),
        ..HostInfo::default()
    }
}

fn character_devices() -> Vec<DeviceNode> {
    let entries = fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
    // runc makes these two itself.
    let devices = entries.filter(|path| !path.ends_with("console") && !path.ends_with("ptmx")).filter_map(|path| {
        let data = fs::symlink_metadata(&path).ok().filter(|data| data.file_type().is_char_device())?;
        let number = |part: u64| i64::try_from(part).unwrap();
        let (major, minor) = (number(major(data.rdev())), number(minor(data.rdev())));
        let (mode, uid, gid) = (data.mode(), data.uid(), data.gid());
        Some(DeviceNode { path, kind: DeviceKind::Char, major, minor, mode, uid, gid })
    });
    devices.collect()
}

#[test]
fn container_has_what_its_specification_says() {
    let Some(bundle) = Bundle::new("default") else { return };
    let mut input = bundle.input();
    input.passwd = b"app:x:1000:1001::/home/app:/bin/sh\n".to_vec();
    input.group = b"extra:x:50:app\n".to_vec();
    input.image.user = "app".to_owned();
    input.image.env = vec!["PATH=/bin".to_owned(), "A=1".to_owned()];
    input.config.env = vec![("A".to_owned(), "2".to_owned())];
    input.config.working_dir = "/work".to_owned();
    input.config.resources.memory_limit = 64 << 20;
    input.config.resources.oom_score_adj = 500;
    let security = &mut input.config.security;
    security.supplemental_groups = vec![2000];
    security.readonly_rootfs = true;
    security.no_new_privs = true;
    security.seccomp = SeccompProfile::RuntimeDefault;
    security.add_capabilities = vec!["NET_ADMIN".to_owned()];
    security.drop_capabilities = vec!["CHOWN".to_owned()];
    let spec = input.spec();
    let report = bundle.run(&spec);
    report.check("Uid", "1000 1000 1000 1000");
    report.check("Gid", "1001 1001 1001 1001");
    report.check("Groups", "50 1001 2000");
    let bounding = CapabilitySet::from_bits(0xa804_25fb | 1 << 12).bits() & !1 & input.host.capabilities.bits();
    report.check("CapBnd", &format!("{bounding:016x}"));
    for empty in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        report.check(empty, "0000000000000000");
    }
    report.check("NoNewPrivs", "1");
    report.check("Seccomp", "2");
    // runc adds HOME, from the image's file, or `/` without an entry.
    assert_eq!(report.all("env"), ["PATH=/bin", "HOSTNAME=node", "A=2", "HOME=/"]);
    report.check("cwd", "/work");
    report.check("oom", "500");
    report.check("memory", &(64 << 20).to_string());
    report.check("keys", "0");
    report.check("tmpfs", "no");
    let writes = ["/file no", "/data/file yes", "/ro/file no", "/proc/sys/net/core/somaxconn no", "/sys/kernel/x no"];
    assert_eq!(report.all("write"), writes);
    report.check_mounts(&spec);
    let devices = ["full", "null", "random", "tty", "urandom", "zero"].map(|name| format!("/dev/{name}"));
    assert_eq!(report.all("device"), devices);
}

#[test]
fn privileged_container_has_all_of_the_machine() {
    let Some(bundle) = Bundle::new("privileged") else { return };
    let mut input = bundle.input();
    input.config.security.privileged = true;
    input.config.security.seccomp = SeccompProfile::RuntimeDefault;
    input.host.devices = character_devices();
    let spec = input.spec();
    let report = bundle.run(&spec);
    report.check("Uid", "0 0 0 0");
    report.check("Groups", "0");
    for full in ["CapEff", "CapPrm", "CapBnd"] {
        report.check(full, &format!("{:016x}", input.host.capabilities.bits()));
    }
    report.check("Seccomp", "0");
    report.check("tmpfs", "yes");
    assert!(report.all("write").contains(&"/proc/sys/net/core/somaxconn yes"));
    let devices = report.all("device");
    assert!(input.host.devices.iter().all(|node| devices.contains(&node.path.to_str().unwrap())), "{devices:?}");
    report.check_mounts(&spec);
}

#[test]
fn container_joins_the_namespaces_of_its_pod() {
    let Some(bundle) = Bundle::new("namespaces") else { return };
    let (ready, created) = mpsc::channel();
    let (done, finished) = mpsc::channel::<()>();
    let pod = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC).unwrap();
        nix::unistd::sethostname("pod-host").unwrap();
        let thread = format!("/proc/{}/task/{}/ns", std::process::id(), nix::unistd::gettid());
        ready.send((fs::read_link(format!("{thread}/net")).unwrap(), thread)).unwrap();
        // Ends with the sender.
        finished.recv().unwrap_err();
    });
    let (network, thread) = created.recv().unwrap();
    let path = |name: &str| Namespace::Path(format!("{thread}/{name}").into());
    let mut input = bundle.input();
    input.namespaces =
        PodNamespaces { network: path("net"), ipc: path("ipc"), uts: path("uts"), ..PodNamespaces::default() };
    let report = bundle.run(&input.spec());
    drop(done);
    pod.join().unwrap();
    report.check("hostname", "pod-host");
    report.check("net", network.to_str().unwrap());
}

#[test]
fn running_container_gets_new_limits() {
    let Some(bundle) = Bundle::new("update") else { return };
    let mut input = bundle.input();
    input.config.command = ["sleep", "1000"].map(str::to_owned).into();
    input.config.resources.memory_limit = 64 << 20;
    input.config.resources.cpu_shares = 512;
    let mut spec = input.spec();
    let mut run = bundle.run_command(&spec, &["--detach"]);
    // The container keeps its streams: a pipe would not end.
    assert!(run.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let limits = LinuxResources { memory_limit: 32 << 20, ..LinuxResources::default() };
    let update = encode(&update_resources(&mut spec, &limits, &input.host).unwrap()).unwrap();
    let file = bundle.dir.path().join("update.json");
    fs::write(&file, update).unwrap();
    let output = bundle.runc(&["update", "--resources", file.to_str().unwrap(), &bundle.id]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cgroup = spec.linux().as_ref().unwrap().cgroups_path().clone().unwrap();
    let read = |controller: &str, name: &str| {
        let dir = Path::new("/sys/fs/cgroup").join(controller).join(cgroup.strip_prefix("/").unwrap());
        fs::read_to_string(dir.join(name)).unwrap().trim().to_owned()
    };
    if input.host.cgroup_v2 {
        assert_eq!(read("", "memory.max"), (32 << 20).to_string());
        return;
    }
    assert_eq!(read("memory", "memory.limit_in_bytes"), (32 << 20).to_string());
    assert_eq!(read("cpu", "cpu.shares"), "512");
}
