//! Network namespaces of Pods: mounted on files, as containerd does. Plugins of a provider may run in its own Pod, which
//! mounts the directory; and DEL must never meet another process that has the ID of an ended keeper.

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, setns},
    sys::statfs::{NSFS_MAGIC, statfs},
};
use rtnetlink::LinkUnspec;
use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

/// Interface index of `lo`: the first one of each namespace.
const LOOPBACK: u32 = 1;

/// Returns the file of a sandbox's namespace.
pub(crate) fn path(dir: &Path, sandbox: &str) -> PathBuf {
    dir.join(format!("podium-{sandbox}"))
}

/// Mounts a namespace on a file. Replaces an earlier mount.
pub(crate) fn pin(path: &Path, netns: &Path) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    if !dir.exists() {
        files::create_dir_all_with_mode(dir, 0o755)?;
    }
    share(dir)?;
    unpin(path)?;
    drop(files::create_private(path)?);
    mount(Some(netns), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    if is_namespace(path) {
        return Ok(());
    }
    unpin(path)?;
    Err(io::Error::other(format!("{} is not a namespace", netns.display())))
}

/// Makes a directory a shared mount, as `ip netns` does: containers with `HostToContainer` propagation see what is mounted.
fn share(dir: &Path) -> io::Result<()> {
    // `ip netns` takes the same lock: two processes must not mount the directory at the same time.
    let _lock = Flock::lock(File::open(dir)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    let make_shared = || mount(None::<&str>, dir, None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>);
    match make_shared() {
        Err(Errno::EINVAL) => {
            mount(Some(dir), dir, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
            Ok(make_shared()?)
        }
        other => Ok(other?),
    }
}

/// Unmounts a namespace and removes its file. Does nothing if it does not exist.
pub(crate) fn unpin(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        // It does not exist, or nothing is mounted on it.
        Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a namespace is mounted on the file; after a reboot, it is not.
pub(crate) fn is_namespace(path: &Path) -> bool {
    statfs(path).is_ok_and(|statfs| statfs.filesystem_type() == NSFS_MAGIC)
}

/// Sets `lo` of a namespace up.
pub(crate) async fn set_loopback_up(path: &Path) -> io::Result<()> {
    let netns = File::open(path)?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A thread of its own: it stays in the namespace until it ends.
    std::thread::Builder::new().name("cni-loopback".into()).spawn(move || {
        // The receiver may have been dropped.
        let _ = sender.send(set_up_in(&netns));
    })?;
    receiver.await.map_err(io::Error::other)?
}

fn set_up_in(netns: &File) -> io::Result<()> {
    setns(netns, CloneFlags::CLONE_NEWNET)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let message = LinkUnspec::new_with_index(LOOPBACK).up().build();
        let changed = handle.link().change(message).execute().await;
        connection.abort();
        changed.map_err(io::Error::other)
    })
}
