//! Converts ReplicationControllers to ReplicaSets and back, so that both share one controller
//! (`pkg/controller/replication/conversion.go`).

use crate::{names, pod_control::ControllerObject};
use informer::Cached;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus},
        core::v1::{
            ReplicationController, ReplicationControllerCondition, ReplicationControllerSpec,
            ReplicationControllerStatus,
        },
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use std::{borrow::Cow, fmt::Debug};

/// A kind that can be converted to a ReplicaSet.
pub(crate) trait ReplicaSetLike:
    ControllerObject + Cached + Resource<Scope = NamespaceResourceScope> + Clone + Serialize + DeserializeOwned + Debug
{
    /// Name in logs.
    const NAME: &'static str;
    /// Component of Events.
    const COMPONENT: &'static str;

    fn as_replica_set(&self) -> Cow<'_, ReplicaSet>;

    /// Returns the object with the status replaced.
    fn with_status(self, status: ReplicaSetStatus) -> Self;
}

impl ReplicaSetLike for ReplicaSet {
    const NAME: &'static str = names::REPLICA_SET;
    const COMPONENT: &'static str = "replicaset-controller";

    fn as_replica_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Borrowed(self)
    }

    fn with_status(self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(status), ..self }
    }
}

impl ReplicaSetLike for ReplicationController {
    const NAME: &'static str = names::REPLICATION_CONTROLLER;
    const COMPONENT: &'static str = "replication-controller";

    fn as_replica_set(&self) -> Cow<'_, ReplicaSet> {
        Cow::Owned(ReplicaSet {
            metadata: self.metadata.clone(),
            spec: self.spec.clone().map(to_replica_set_spec),
            status: self.status.clone().map(to_replica_set_status),
        })
    }

    fn with_status(self, status: ReplicaSetStatus) -> Self {
        Self { status: Some(to_replication_controller_status(status)), ..self }
    }
}

fn to_replica_set_spec(spec: ReplicationControllerSpec) -> ReplicaSetSpec {
    ReplicaSetSpec {
        min_ready_seconds: spec.min_ready_seconds,
        replicas: spec.replicas,
        selector: LabelSelector { match_labels: spec.selector, match_expressions: None },
        template: spec.template,
    }
}

fn to_replica_set_status(status: ReplicationControllerStatus) -> ReplicaSetStatus {
    let condition = |c: ReplicationControllerCondition| ReplicaSetCondition {
        last_transition_time: c.last_transition_time,
        message: c.message,
        reason: c.reason,
        status: c.status,
        type_: c.type_,
    };
    ReplicaSetStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
        terminating_replicas: None,
    }
}

/// A ReplicationController's status has no `terminatingReplicas`.
fn to_replication_controller_status(status: ReplicaSetStatus) -> ReplicationControllerStatus {
    let condition = |c: ReplicaSetCondition| ReplicationControllerCondition {
        last_transition_time: c.last_transition_time,
        message: c.message,
        reason: c.reason,
        status: c.status,
        type_: c.type_,
    };
    ReplicationControllerStatus {
        available_replicas: status.available_replicas,
        conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        fully_labeled_replicas: status.fully_labeled_replicas,
        observed_generation: status.observed_generation,
        ready_replicas: status.ready_replicas,
        replicas: status.replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replication_controller_converts_to_replica_set_and_back() {
        let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let rc = json!({
            "metadata": {"name": "rc", "uid": "u"},
            "spec": {"replicas": 3, "minReadySeconds": 2, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}}},
            "status": {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "fullyLabeledReplicas": 2,
                "observedGeneration": 7, "conditions": [condition]},
        });
        let rc: ReplicationController = serde_json::from_value(rc).unwrap();
        let set = rc.as_replica_set().into_owned();
        let shown = serde_json::to_value(&set).unwrap();
        assert_eq!(shown["spec"]["selector"], json!({"matchLabels": {"a": "b"}}));
        assert_eq!((&shown["spec"]["replicas"], &shown["spec"]["minReadySeconds"]), (&json!(3), &json!(2)));
        assert_eq!(shown["status"]["conditions"], json!([condition]));
        assert_eq!(rc.clone().with_status(set.status.unwrap()), rc);
    }
}
