//! The node's CSINode. It has no drivers, because CSI is not supported (`pkg/volume/csi/nodeinfomanager`).

use crate::{Shared, deadline::within_deadline};
use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(5);
/// In-tree plugins that were migrated to CSI.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";
const MIGRATED_PLUGINS_ANNOTATION: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// Creates the CSINode when the Node exists.
pub(crate) async fn create(shared: &Shared) {
    while let Err(error) = try_create(shared).await {
        tracing::warn!(%error, "failed to create CSINode, retrying");
        if shared.stop.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

async fn try_create(shared: &Shared) -> Result<(), kube::Error> {
    let name = &shared.options.node_name;
    let api: Api<CSINode> = Api::all(shared.client.clone());
    let annotations = json!({ MIGRATED_PLUGINS_ANNOTATION: MIGRATED_PLUGINS });
    if let Some(existing) = within_deadline(api.get_opt(name)).await? {
        if existing.metadata.annotations.and_then(|mut all| all.remove(MIGRATED_PLUGINS_ANNOTATION)).as_deref()
            == Some(MIGRATED_PLUGINS)
        {
            return Ok(());
        }
        let patch = json!({"metadata": {"annotations": annotations}});
        let patched = within_deadline(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
        return patched.map(drop);
    }
    let nodes: Api<Node> = Api::all(shared.client.clone());
    let node = within_deadline(nodes.get(name)).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid});
    let metadata = json!({"name": name, "annotations": annotations, "ownerReferences": [owner]});
    let object =
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": []}});
    let object: CSINode = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match within_deadline(api.create(&PostParams::default(), &object)).await {
        Err(kube::Error::Api(e)) if e.code == 409 => Ok(()),
        other => other.map(drop),
    }
}
