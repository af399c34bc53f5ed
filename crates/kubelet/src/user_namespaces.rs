//! Users and groups of a Pod's own (`hostUsers: false`, KEP-127; upstream's `pkg/kubelet/userns`).
//!
//! Each such Pod has a range of the node's ids that no other has. Which one is written down beside the Pod's volumes, and
//! is free again when they are gone: nothing else has to be remembered, or given back.

use crate::{Shared, paths::Paths, pods};
use api::feature_gates::Gate;
use lifecycle::Pod;
use parking_lot::Mutex;
use runtime::IdMapping;
use std::{collections::BTreeSet, fs, io, path::PathBuf};

/// How many ids a Pod has (`userNamespaces.idsPerPod`). The first range is the node's own.
const LENGTH: u32 = 1 << 16;

/// Who may choose a range. There is one such for each node.
#[derive(Debug, Default)]
pub(crate) struct UserNamespaces {
    turn: Mutex<()>,
}

impl UserNamespaces {
    /// The range of this Pod; it gets one if it has none.
    fn take(&self, paths: &Paths, uid: &str, max_pods: u32) -> Result<IdMapping, String> {
        let _turn = self.turn.lock();
        if let Some(own) = read(paths, uid).map_err(|e| format!("user namespace: {e}"))? {
            return Ok(own);
        }
        let taken = taken(paths).map_err(|e| format!("read pods from disk: {e}"))?;
        let mut ranges = (1..=max_pods).map_while(|n| n.checked_mul(LENGTH));
        let host_id = ranges
            .find(|first| !taken.contains(first))
            .ok_or("create user namespace: could not find an empty slot to allocate a user namespace")?;
        let own = IdMapping { host_id, length: LENGTH };
        let text = serde_json::to_vec(&own).map_err(|e| e.to_string())?;
        files::replace_private(&file(paths, uid), &text).map_err(|e| format!("create user namespace: {e}"))?;
        Ok(own)
    }
}

fn file(paths: &Paths, uid: &str) -> PathBuf {
    paths.pod(uid).join("userns")
}

fn read(paths: &Paths, uid: &str) -> io::Result<Option<IdMapping>> {
    match crate::node_file::read(file(paths, uid)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where the ranges of all Pods begin.
fn taken(paths: &Paths) -> io::Result<BTreeSet<u32>> {
    let mut taken = BTreeSet::new();
    for entry in fs::read_dir(paths.pods())? {
        if let Some(uid) = entry?.file_name().to_str() {
            taken.extend(read(paths, uid)?.map(|range| range.host_id));
        }
    }
    Ok(taken)
}

/// Gives the Pod users of its own, if it asks for them and this handler of the runtime can.
///
/// # Errors
/// In upstream's words (`GetOrCreateUserNamespaceMappings`).
pub(crate) async fn prepare(shared: &Shared, pod: &Pod, handler: &str) -> Result<(), String> {
    let Some(host_users) = pods::spec(pod).host_users else {
        return Ok(());
    };
    if !shared.options.policy.gates.enabled(Gate::UserNamespacesSupport) {
        return Err("the feature gate \"UserNamespacesSupport\" is disabled: can't set spec.HostUsers".to_owned());
    }
    if host_users {
        return Ok(());
    }
    let refused = match handler {
        "" => "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned(),
        _ => format!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
        ),
    };
    let handlers = shared.runtime.status().await.map_err(|error| format!("{refused}: {error}"))?.handlers;
    match handlers.iter().find(|known| known.name == handler) {
        None => Err(format!("{refused}: the handler {handler:?} is not known")),
        Some(known) if !known.user_namespaces => Err(refused),
        Some(_) => {
            shared.user_namespaces.take(&shared.paths, pod.uid(), shared.options.config.max_pods)?;
            Ok(())
        }
    }
}

/// The users that were prepared for the Pod; `None` for those of the node.
pub(crate) fn of(shared: &Shared, pod: &Pod) -> Result<Option<IdMapping>, String> {
    if pods::spec(pod).host_users != Some(false) {
        return Ok(None);
    }
    let own = read(&shared.paths, pod.uid()).map_err(|e| format!("user namespace: {e}"))?;
    own.map(Some).ok_or_else(|| "user namespace: the Pod has none yet".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(all: &UserNamespaces, paths: &Paths, uid: &str) -> Result<u32, String> {
        fs::create_dir_all(paths.pod(uid)).unwrap();
        all.take(paths, uid, 3).map(|range| range.host_id)
    }

    #[test]
    fn each_pod_has_a_range_until_its_directory_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (all, paths) = (UserNamespaces::default(), Paths::new(dir.path().to_owned()));
        let given = ["a", "b", "a", "c"].map(|uid| first(&all, &paths, uid));
        assert_eq!(given, [65_536, 131_072, 65_536, 196_608].map(Ok));
        let full = "create user namespace: could not find an empty slot to allocate a user namespace";
        assert_eq!(first(&all, &paths, "d"), Err(full.to_owned()));
        fs::remove_dir_all(paths.pod("b")).unwrap();
        // Another kubelet knows as much as the one before.
        assert_eq!(first(&UserNamespaces::default(), &paths, "d"), Ok(131_072));
    }
}
