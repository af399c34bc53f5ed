//! Deletion of an object without owners, unless its owner references have changed (`deleteObject`).

use super::{GarbageCollector, Metadata, graph::Node};
use crate::worker::is_code;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};

impl GarbageCollector {
    /// Returns the live object if it has the UID and the owner references of the node. Otherwise the watch is behind,
    /// and enqueues the object when it shows the change.
    pub(super) async fn live_with_known_owners(&self, uid: &str, node: &Node) -> Result<Option<Metadata>, kube::Error> {
        let live = self.api(node).get_opt(&node.name).await?;
        Ok(live.filter(|live| {
            let owners = live.metadata.owner_references.as_deref().unwrap_or_default();
            live.metadata.uid.as_deref() == Some(uid) && owners == node.owners()
        }))
    }

    /// Deletes the object at a `resourceVersion` at which its owner references were the node's. If it has changed since
    /// and its owner references have not, deletes it at any version. Otherwise returns the conflict, which is retried.
    pub(super) async fn delete_object(
        &self,
        uid: &str,
        node: &Node,
        resource_version: Option<String>,
        policy: &PropagationPolicy,
    ) -> Result<(), kube::Error> {
        tracing::debug!(kind = node.resource().kind, name = node.name, "deleting object without owners");
        let params = |resource_version| DeleteParams {
            propagation_policy: Some(policy.clone()),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version }),
            ..DeleteParams::default()
        };
        let api = self.api(node);
        match api.delete(&node.name, &params(resource_version)).await {
            Err(conflict) if is_code(&conflict, 409) => match self.live_with_known_owners(uid, node).await? {
                Some(_) => api.delete(&node.name, &params(None)).await.map(drop),
                None => Err(conflict),
            },
            deleted => deleted.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event_recorder::EventRecorder,
        garbage_collector::{Graph, State},
    };
    use fake_api::FakeApi;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::discovery::ApiResource;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use std::sync::Arc;

    const PATH: &str = "api/v1/namespaces/x/configmaps/b";

    fn config_map(uid: &str, owners: &Value) -> Value {
        json!({"metadata": {"name": "b", "namespace": "x", "uid": uid, "ownerReferences": owners}})
    }

    fn owners() -> Value {
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "uid-of-a"}])
    }

    /// Deletes an object at its first version after `later` was stored. Returns the status code of an error.
    async fn delete_after(later: &Value) -> (FakeApi, Option<u16>) {
        let api = FakeApi::new();
        let known = config_map("1", &owners());
        api.put(PATH, known.clone());
        let version = api.get(PATH).unwrap()["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        api.put(PATH, later.clone());
        let mut graph = Graph::default();
        let resource = Arc::new(ApiResource::erase::<ConfigMap>(&()));
        graph.set("1", &resource, &serde_json::from_value(known["metadata"].clone()).unwrap());
        let node = graph.get("1").unwrap().clone();
        let state = State { kinds: [].into(), graph: Graph::default(), unsynced: [].into(), timed_out: [].into() };
        let collector = GarbageCollector {
            client: api.client(),
            recorder: EventRecorder::new(api.client(), "test"),
            state: Mutex::new(state),
        };
        let code = match collector.delete_object("1", &node, version, &PropagationPolicy::Background).await {
            Err(kube::Error::Api(status)) => Some(status.code),
            result => result.map(|()| None).unwrap(),
        };
        (api, code)
    }

    #[tokio::test]
    async fn changed_object_is_deleted_only_with_known_owners() {
        let mut labelled = config_map("1", &owners());
        labelled["metadata"]["labels"] = json!({"a": "b"});
        let (api, code) = delete_after(&labelled).await;
        assert_eq!((api.get(PATH), code), (None, None));
        for later in [config_map("1", &json!([])), config_map("2", &owners())] {
            let (api, code) = delete_after(&later).await;
            assert!(api.get(PATH).is_some(), "{later}");
            assert_eq!(code, Some(409), "{later}");
        }
    }
}
