//! User namespaces of Pods (`hostUsers: false`, KEP-127; upstream's `pkg/kubelet/userns`).
//!
//! Each such Pod has a unique range of host ids. The range is stored in the Pod's directory and is free again when
//! that is
//! removed.

use crate::{Shared, paths::Paths, pods};
use api::feature_gates::Gate;
use lifecycle::Pod;
use parking_lot::Mutex;
use runtime::{IdMapping, RuntimeError};
use std::{collections::BTreeSet, fs, io, path::PathBuf};

/// Ids per Pod (`userNamespaces.idsPerPod`). The first range belongs to the node.
const IDS_PER_POD: u32 = 1 << 16;

/// A Pod gets no user namespace, with upstream's message (`GetOrCreateUserNamespaceMappings`).
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserNamespaceError {
    #[error("the feature gate \"UserNamespacesSupport\" is disabled: can't set spec.HostUsers")]
    GateDisabled,
    #[error("{}", unsupported(.handler))]
    Unsupported { handler: String },
    #[error("{}: the handler {handler:?} is not known", unsupported(.handler))]
    UnknownHandler { handler: String },
    #[error("{}: {source}", unsupported(.handler))]
    RuntimeStatus { handler: String, source: RuntimeError },
    #[error("user namespace: {0}")]
    Read(#[source] io::Error),
    #[error("user namespace: not allocated")]
    NotAllocated,
    #[error("read pods from disk: {0}")]
    List(#[source] io::Error),
    #[error("create user namespace: could not find an empty slot to allocate a user namespace")]
    NoFreeRange,
    #[error(transparent)]
    Encode(#[from] serde_json::Error),
    #[error("create user namespace: {0}")]
    Write(#[source] io::Error),
}

fn unsupported(handler: &str) -> String {
    match handler {
        "" => "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned(),
        _ => format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        ),
    }
}

/// Allocator of id ranges; one per node.
#[derive(Debug, Default)]
pub(crate) struct UserNamespaces {
    lock: Mutex<()>,
}

impl UserNamespaces {
    /// Returns the Pod's range, and allocates one if it has none.
    fn get_or_create(&self, paths: &Paths, uid: &str, max_pods: u32) -> Result<IdMapping, UserNamespaceError> {
        let _guard = self.lock.lock();
        if let Some(mapping) = read(paths, uid).map_err(UserNamespaceError::Read)? {
            return Ok(mapping);
        }
        let allocated = allocated(paths).map_err(UserNamespaceError::List)?;
        let mut ranges = (1..=max_pods).map_while(|n| n.checked_mul(IDS_PER_POD));
        let host_id = ranges.find(|first| !allocated.contains(first)).ok_or(UserNamespaceError::NoFreeRange)?;
        let mapping = IdMapping { host_id, length: IDS_PER_POD };
        let text = serde_json::to_vec(&mapping)?;
        files::replace_private(&file(paths, uid), &text).map_err(UserNamespaceError::Write)?;
        Ok(mapping)
    }
}

fn file(paths: &Paths, uid: &str) -> PathBuf {
    paths.pod(uid).join("userns")
}

fn read(paths: &Paths, uid: &str) -> io::Result<Option<IdMapping>> {
    match crate::host_file::read(file(paths, uid)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the first ids of all allocated ranges.
fn allocated(paths: &Paths) -> io::Result<BTreeSet<u32>> {
    let mut allocated = BTreeSet::new();
    for entry in fs::read_dir(paths.pods())? {
        if let Some(uid) = entry?.file_name().to_str() {
            allocated.extend(read(paths, uid)?.map(|range| range.host_id));
        }
    }
    Ok(allocated)
}

/// Allocates a user namespace for the Pod, if it requests one and the runtime handler supports it.
pub(crate) async fn prepare(shared: &Shared, pod: &Pod, handler: &str) -> Result<(), UserNamespaceError> {
    let Some(host_users) = pods::spec(pod).host_users else {
        return Ok(());
    };
    if !shared.options.policy.gates.enabled(Gate::UserNamespacesSupport) {
        return Err(UserNamespaceError::GateDisabled);
    }
    if host_users {
        return Ok(());
    }
    let name = || handler.to_owned();
    let status = shared.runtime.status().await;
    let status = status.map_err(|source| UserNamespaceError::RuntimeStatus { handler: name(), source })?;
    match status.handlers.iter().find(|known| known.name == handler) {
        None => Err(UserNamespaceError::UnknownHandler { handler: name() }),
        Some(known) if !known.user_namespaces => Err(UserNamespaceError::Unsupported { handler: name() }),
        Some(_) => {
            shared.user_namespaces.get_or_create(&shared.paths, pod.uid(), shared.options.config.max_pods)?;
            Ok(())
        }
    }
}

/// Returns the Pod's allocated id mapping; `None` for the host's user namespace.
pub(crate) fn id_mapping(shared: &Shared, pod: &Pod) -> Result<Option<IdMapping>, UserNamespaceError> {
    if pods::spec(pod).host_users != Some(false) {
        return Ok(None);
    }
    let mapping = read(&shared.paths, pod.uid()).map_err(UserNamespaceError::Read)?;
    mapping.map(Some).ok_or(UserNamespaceError::NotAllocated)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(all: &UserNamespaces, paths: &Paths, uid: &str) -> Result<u32, String> {
        fs::create_dir_all(paths.pod(uid)).unwrap();
        all.get_or_create(paths, uid, 3).map(|range| range.host_id).map_err(|e| e.to_string())
    }

    #[test]
    fn id_range_is_unique_and_freed_with_the_pod_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (all, paths) = (UserNamespaces::default(), Paths::new(dir.path().to_owned()));
        let allocated = ["a", "b", "a", "c"].map(|uid| first(&all, &paths, uid));
        assert_eq!(allocated, [65_536, 131_072, 65_536, 196_608].map(Ok));
        let full = "create user namespace: could not find an empty slot to allocate a user namespace";
        assert_eq!(first(&all, &paths, "d"), Err(full.to_owned()));
        fs::remove_dir_all(paths.pod("b")).unwrap();
        // A restarted kubelet reads the ranges from disk.
        assert_eq!(first(&UserNamespaces::default(), &paths, "d"), Ok(131_072));
    }
}
