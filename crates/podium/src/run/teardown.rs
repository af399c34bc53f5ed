//! Teardown of a run: deletes the workloads and terminates all Pods gracefully.

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::{CronJob, Job},
    core::v1::{Pod, ReplicationController},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use std::{fmt::Debug, time::Duration};

/// Default termination grace period of a Pod, in seconds.
const DEFAULT_GRACE_PERIOD: i64 = 30;
/// Time for the deletion of a Pod beyond its grace period.
const DELETION_MARGIN: Duration = Duration::from_secs(10);

/// Deletes all workloads and waits until all Pods are deleted.
pub(super) async fn delete_workloads(client: &Client) -> Result<()> {
    // Owners are deleted before their dependents, so that nothing is recreated.
    delete_all::<CronJob>(client).await?;
    delete_all::<Deployment>(client).await?;
    delete_all::<DaemonSet>(client).await?;
    delete_all::<StatefulSet>(client).await?;
    delete_all::<ReplicaSet>(client).await?;
    delete_all::<ReplicationController>(client).await?;
    delete_all::<Job>(client).await?;
    let pods = list::<Pod>(client).await?;
    let longest = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds)
        .fold(DEFAULT_GRACE_PERIOD, i64::max);
    let limit = Duration::from_secs(u64::try_from(longest).unwrap_or_default()) + DELETION_MARGIN;
    tokio::time::timeout(limit, delete_pods(client)).await.context("timed out waiting for the Pods to terminate")?
}

/// Deletes Pods until none is left: a controller may still create Pods after its object is deleted.
async fn delete_pods(client: &Client) -> Result<()> {
    while !delete_all::<Pod>(client).await? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn list<K>(client: &Client) -> Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(Api::<K>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// Deletes all objects of a kind that are not being deleted yet. Returns whether there are no objects of the kind.
async fn delete_all<K>(client: &Client) -> Result<bool>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let all = list::<K>(client).await?;
    for object in all.iter().filter(|object| object.meta().deletion_timestamp.is_none()) {
        let api: Api<K> = Api::namespaced(client.clone(), object.meta().namespace.as_deref().unwrap_or_default());
        match api.delete(&object.name_any(), &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => drop(other?),
        }
    }
    Ok(all.is_empty())
}
