//! Verifies a created container before it starts: its masked paths are hidden, and its read-only paths are read-only.
//!
//! OCI runtimes hide a file with the container's own `/dev/null`, and bind the terminal by a path of the container's
//! `/dev`. A volume or an image that controls `/dev` could replace both (CVE-2025-31133, CVE-2025-52565), or leave the
//! paths as they are. The process of a created container waits, and no other one is in its mount namespace, so that what
//! is verified stays. Containers whose mounts cannot reach these paths are created and started at once, which is faster.

use crate::{
    in_root, prepare, rootfs,
    state::{Container, Inner, Sandbox},
    steps::blocking,
};
use bundle::Spec;
use files::mounts::{Mount, mounts_of_process};
use oci_spec::runtime::Mount as SpecMount;
use rustix::fs::{FileType, FsWord, OFlags, PROC_SUPER_MAGIC, StatVfsMountFlags, fstat, fstatfs, fstatvfs};
use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::OnceCell;

/// Types of file systems (`linux/magic.h`).
const SYSFS_MAGIC: FsWord = 0x6265_6572;
const DEVPTS_MAGIC: FsWord = 0x1cd1;
/// Files of /proc that a volume may replace, as with `runc`: those that lxcfs has, and others of no harm.
const REPLACEABLE: [&str; 11] = [
    "/proc/cpuinfo",
    "/proc/diskstats",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/dev",
    "/proc/slabinfo",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys/crypto/fips_enabled",
    "/proc/sys/kernel/ns_last_pid",
    "/proc/uptime",
];
/// Major and minor number of `/dev/null`.
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Verification of a container that is being started.
pub(crate) struct PathVerification {
    dir: PathBuf,
    /// OCI configuration. It is read once: meanwhile, only resources and the process namespace may change in the file.
    spec: OnceCell<Arc<Spec>>,
}

impl PathVerification {
    pub(crate) fn new(container: &Container) -> Self {
        Self { dir: container.dir.clone(), spec: OnceCell::new() }
    }

    async fn spec(&self) -> io::Result<Arc<Spec>> {
        let dir = self.dir.clone();
        let read = || blocking(move || Ok(Arc::new(prepare::read_spec(&dir)?)));
        self.spec.get_or_try_init(read).await.cloned()
    }

    /// Returns whether the container must be verified between its creation and its start, because a mount may reach what its
    /// OCI runtime hides paths with.
    ///
    /// # Errors
    /// When the OCI configuration cannot be read.
    pub(crate) async fn is_needed(&self) -> io::Result<bool> {
        let spec = self.spec().await?;
        let root = rootfs::of_spec(&self.dir, &spec);
        blocking(move || Ok(may_be_misled(&root, &spec))).await
    }

    /// Verifies the created container, whose first process is `pid`, if its processes are processes of this machine.
    ///
    /// # Errors
    /// When the OCI runtime was misled: the container must not start.
    pub(crate) async fn verify(&self, inner: &Inner, sandbox: &Sandbox, pid: i32) -> io::Result<()> {
        let handler = inner.handlers.get(&sandbox.record().runtime_handler);
        if handler.is_some_and(|handler| !handler.signals_directly) {
            return Ok(());
        }
        let spec = self.spec().await?;
        blocking(move || verify_paths(pid, &spec)).await
    }
}

fn may_be_misled(root: &Path, spec: &Spec) -> bool {
    let is_bind = |mount: &&SpecMount| {
        let options = mount.options().as_deref().unwrap_or_default();
        options.iter().any(|option| option == "bind" || option == "rbind")
    };
    let binds = spec.mounts().iter().flatten().filter(is_bind).map(|mount| mount.destination().as_path());
    let binds = binds.filter(|path| !HARMLESS.iter().any(|harmless| *path == Path::new(harmless)));
    let mut paths = Vec::new();
    for path in binds {
        // The OCI runtime follows links when it mounts, those of volumes that it has mounted, too.
        match in_root::target(root, path) {
            Some(target) if target == path || is_run_directory(root, path, &target) => {
                paths.extend([path.to_owned(), target]);
            }
            _ => return true,
        }
    }
    let is_nested = |path: &PathBuf| paths.iter().any(|other| path != other && path.starts_with(other));
    paths.iter().any(|path| is_used_for_masking(path) || is_nested(path))
}

/// Mounts of most containers, below the new `/dev`.
const HARMLESS: [&str; 3] = ["/dev/shm", "/dev/mqueue", "/dev/termination-log"];

/// Returns whether a path differs from its target only by `/var/run`, which is a link to `/run` in most images. Tokens of
/// ServiceAccounts are mounted there.
fn is_run_directory(root: &Path, path: &Path, target: &Path) -> bool {
    let is_same = path.strip_prefix("/var/run").is_ok_and(|rest| target == Path::new("/run").join(rest));
    is_same && fs::symlink_metadata(root.join("var")).is_ok_and(|var| var.is_dir())
}

/// Returns whether a mount at a path may change what paths are hidden with, or which ones.
fn is_used_for_masking(path: &Path) -> bool {
    let kernel = ["/dev", "/proc", "/sys"].map(Path::new);
    kernel.iter().any(|kernel| path.starts_with(kernel) || kernel.starts_with(path))
}

/// Verifies the paths of a created container. Containers without masked and read-only paths are privileged or have
/// `procMount: Unmasked`: only volumes in /proc are refused then.
///
/// # Errors
/// When a path is not as the OCI configuration demands, or the process has ended.
fn verify_paths(pid: i32, spec: &Spec) -> io::Result<()> {
    let Some(linux) = spec.linux() else { return Ok(()) };
    let masked = linux.masked_paths().as_deref().unwrap_or_default();
    let readonly = linux.readonly_paths().as_deref().unwrap_or_default();
    let in_proc = readonly.iter().filter(|path| Path::new(path).starts_with("/proc"));
    let hidden: Vec<&Path> = masked.iter().chain(in_proc.clone()).map(Path::new).collect();
    let own_pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
    if let Some(path) = volume_in_proc(&mounts_of_process(pid)?, &hidden, &mounts_of_process(own_pid)?) {
        return Err(io::Error::other(format!("a volume cannot be mounted at {}: it is in /proc", path.display())));
    }
    if hidden.is_empty() && readonly.is_empty() {
        return Ok(());
    }
    let root = in_root::open_root(Path::new(&format!("/proc/{pid}/root")))?;
    let check = |path: &str, problem: &str, is_valid: fn(&OwnedFd) -> io::Result<bool>| {
        let found = match in_root::open(&root, Path::new(path), OFlags::PATH) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        if is_valid(&found)? { Ok(()) } else { Err(io::Error::other(format!("{path} of the container is {problem}"))) }
    };
    check("/proc", "not a proc file system", |found| is_of_type(found, PROC_SUPER_MAGIC))?;
    check("/sys", "not a sysfs file system", |found| is_of_type(found, SYSFS_MAGIC))?;
    masked.iter().try_for_each(|path| check(path, "not masked", is_masked))?;
    readonly.iter().try_for_each(|path| check(path, "not read-only", |found| is_read_only(found)))?;
    in_proc.clone().try_for_each(|path| check(path, "a volume", |found| is_of_type(found, PROC_SUPER_MAGIC)))?;
    if spec.process().as_ref().and_then(bundle::Process::terminal) == Some(true) {
        check("/dev/console", "not a terminal of the container", |found| is_of_type(found, DEVPTS_MAGIC))?;
    }
    Ok(())
}

/// Returns the path of a volume in /proc. `runc` refuses such volumes, `crun` does not: a process that enters the container
/// later writes its labels there. `hidden` are the paths that the OCI runtime has hidden with mounts, `of_node` the mounts of the
/// node, for example `/proc/sys/fs/binfmt_misc`: a volume of the node's /proc has them, too.
fn volume_in_proc<'a>(mounts: &'a [Mount], hidden: &[&Path], of_node: &[Mount]) -> Option<&'a Path> {
    let is_known = |path: &Path| {
        path == Path::new("/proc")
            || hidden.contains(&path)
            || REPLACEABLE.iter().any(|known| path == Path::new(known))
            || of_node.iter().any(|mount| mount.path == path)
    };
    mounts.iter().map(|mount| mount.path.as_path()).find(|path| path.starts_with("/proc") && !is_known(path))
}

fn is_of_type(found: impl AsFd, kind: FsWord) -> io::Result<bool> {
    Ok(fstatfs(found)?.f_type == kind)
}

fn is_read_only(found: impl AsFd) -> io::Result<bool> {
    Ok(fstatvfs(found)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Returns whether a path is the null device, or a read-only directory of no file system of the kernel.
fn is_masked(found: &OwnedFd) -> io::Result<bool> {
    let stat = fstat(found)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice => (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == NULL_DEVICE,
        FileType::Directory => {
            is_read_only(found)? && !is_of_type(found, PROC_SUPER_MAGIC)? && !is_of_type(found, SYSFS_MAGIC)?
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bundle::Process;
    use nix::{
        mount::{MsFlags, mount},
        sched::{CloneFlags, unshare},
    };
    use oci_spec::runtime::Linux;
    use std::os::fd::AsRawFd;

    /// Verifies the paths of this process, which has those of the machine.
    fn check(masked: &[&str], readonly: &[&str]) -> Result<(), String> {
        let owned = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect());
        let mut linux = Linux::default();
        linux.set_masked_paths(owned(masked)).set_readonly_paths(owned(readonly));
        let mut spec = Spec::default();
        spec.set_linux(Some(linux));
        verify_paths(i32::try_from(std::process::id()).unwrap(), &spec).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_that_are_not_hidden_are_errors() {
        assert_eq!(check(&["/dev/null", "/proc/no-such-file"], &["/proc/no-such-file"]), Ok(()));
        for path in ["/proc/version", "/proc/tty", "/sys/kernel", "/dev/zero", "/tmp"] {
            assert_eq!(check(&[path], &[]), Err(format!("{path} of the container is not masked")));
        }
        assert_eq!(check(&[], &["/tmp"]), Err("/tmp of the container is not read-only".to_owned()));
        assert_eq!(check(&[], &[]), Ok(()));
        // A magic link could lead to a file of another mount namespace.
        assert!(check(&["/proc/self/exe"], &[]).is_err());
    }

    #[test]
    fn mounts_that_reach_the_kernels_file_systems_are_verified() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("run/secrets")).unwrap();
        std::os::unix::fs::symlink("/dev", dir.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../../../run", dir.path().join("run/up")).unwrap();
        // A volume at /a can have another link b.
        std::fs::create_dir_all(dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("/c", dir.path().join("a/b")).unwrap();
        std::fs::create_dir_all(dir.path().join("var")).unwrap();
        std::os::unix::fs::symlink("/run", dir.path().join("var/run")).unwrap();
        let misled = |targets: &[&str]| {
            let bind = |target: &&str| {
                let mut mount = SpecMount::default();
                mount.set_destination(target.into()).set_options(Some(vec!["rbind".to_owned()]));
                mount
            };
            let mut spec = Spec::default();
            // The default mounts of a specification are no binds.
            spec.set_mounts(Some(spec.mounts().iter().flatten().cloned().chain(targets.iter().map(bind)).collect()));
            may_be_misled(dir.path(), &spec)
        };
        for harmless in [
            &[][..],
            &["/etc/hosts", "/dev/shm", "/dev/termination-log", "/run/secrets/kubernetes.io/serviceaccount"],
            &["/data", "/data2", "/var/run/secrets/kubernetes.io/serviceaccount"],
        ] {
            assert!(!misled(harmless), "{harmless:?}");
        }
        for harmful in [
            &["/dev"][..],
            &["/dev/null"],
            &["/"],
            &["/proc/x"],
            &["/sys/fs"],
            &["/link"],
            &["/link/null"],
            &["/a", "/a/b"],
            &["/run", "/run/up/secrets"],
            &["/x/../dev"],
            &["/a", "/a/b"],
            &["/a/b"],
            &["/dev/shm", "/dev/shm/x"],
            &["/run", "/var/run/secrets"],
            &["/var", "/var/run/secrets"],
        ] {
            assert!(misled(harmful), "{harmful:?}");
        }
    }

    #[test]
    fn volume_in_proc_is_found() {
        let found = |paths: &[&str]| {
            let mounts: Vec<Mount> =
                paths.iter().map(|path| Mount { path: path.into(), optional_fields: Vec::new() }).collect();
            let of_node = [Mount { path: "/proc/sys/fs/binfmt_misc".into(), optional_fields: Vec::new() }];
            volume_in_proc(&mounts, &[Path::new("/proc/sys"), Path::new("/proc/keys")], &of_node).map(Path::to_owned)
        };
        assert_eq!(found(&["/proc", "/proc/sys/fs/binfmt_misc"]), None);
        assert_eq!(found(&["/", "/proc", "/proc/sys", "/proc/keys", "/proc/meminfo", "/process"]), None);
        for path in ["/proc/1/attr", "/proc/sys/kernel", "/proc/sysrq-trigger", "/proc/net"] {
            assert_eq!(found(&["/proc", path]), Some(path.into()));
        }
    }

    /// Runs `test` with the ID of a thread that has its own mounts, or prints why this is not possible.
    fn with_own_mounts(test: impl FnOnce(i32) + Send + 'static) {
        let thread = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
                println!("skipped: no mount namespace here ({error})");
                return;
            }
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
            test(nix::unistd::gettid().as_raw());
        });
        thread.join().unwrap();
    }

    #[test]
    fn replaced_console_is_an_error() {
        with_own_mounts(|thread| {
            let pty = nix::pty::openpty(None, None).unwrap();
            let mount_empty_dev =
                || mount(Some("tmpfs"), "/dev", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
            let mut linux = Linux::default();
            linux.set_masked_paths(Some(vec!["/dev/no-such-file".to_owned()])).set_readonly_paths(None);
            let mut process = Process::default();
            process.set_terminal(Some(true));
            let mut spec = Spec::default();
            spec.set_linux(Some(linux)).set_process(Some(process));
            let console = "/dev/console";
            let replaced = || Err("/dev/console of the container is not a terminal of the container".to_owned());
            let verify = || verify_paths(thread, &spec).map_err(|error| error.to_string());

            mount_empty_dev();
            fs::write(console, "").unwrap();
            assert_eq!(verify(), replaced(), "a file");
            mount(Some("/proc/version"), console, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            assert_eq!(verify(), replaced(), "a file of the kernel");
            let path = format!("/proc/self/fd/{}", pty.slave.as_raw_fd());
            mount(Some(path.as_str()), console, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
            assert_eq!(verify(), Ok(()), "a terminal");
            mount_empty_dev();
            std::os::unix::fs::symlink("/proc/version", console).unwrap();
            assert_eq!(verify(), replaced(), "a link");
        });
    }

    #[test]
    fn ended_process_is_an_error() {
        let mut linux = Linux::default();
        linux.set_masked_paths(Some(vec!["/dev/null".to_owned()]));
        let mut spec = Spec::default();
        spec.set_linux(Some(linux));
        assert!(verify_paths(i32::MAX, &spec).is_err());
    }

    #[tokio::test]
    async fn oci_configuration_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config.json");
        std::fs::write(&config, serde_json::to_vec(&Spec::default()).unwrap()).unwrap();
        let verification = PathVerification { dir: dir.path().to_owned(), spec: OnceCell::new() };
        assert!(!verification.is_needed().await.unwrap());
        std::fs::remove_file(&config).unwrap();
        assert_eq!(*verification.spec().await.unwrap(), Spec::default());
        let unread = PathVerification { spec: OnceCell::new(), ..verification };
        assert!(unread.is_needed().await.is_err());
    }
}
