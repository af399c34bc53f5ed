//! The end of a run: every Pod ends gracefully, and nobody makes it again.

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

/// A Pod that says nothing of it has so long, in seconds.
const GRACE: i64 = 30;
/// What a Pod may take beyond its grace.
const MARGIN: Duration = Duration::from_secs(10);

/// Ends everything and waits for that.
pub(super) async fn end_all(client: &Client) -> Result<()> {
    // Those who make others first.
    end::<CronJob>(client).await?;
    end::<Deployment>(client).await?;
    end::<DaemonSet>(client).await?;
    end::<StatefulSet>(client).await?;
    end::<ReplicaSet>(client).await?;
    end::<ReplicationController>(client).await?;
    end::<Job>(client).await?;
    let pods = list::<Pod>(client).await?;
    let longest =
        pods.iter().filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds).fold(GRACE, i64::max);
    let limit = Duration::from_secs(u64::try_from(longest).unwrap_or_default()) + MARGIN;
    tokio::time::timeout(limit, end_pods(client)).await.context("Pods did not end in time")?
}

/// A controller may have been about to make one more: until none is left, whoever is there is ended.
async fn end_pods(client: &Client) -> Result<()> {
    while !end::<Pod>(client).await? {
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

/// Deletes all of a kind that are not being deleted. Gives whether there are none at all.
async fn end<K>(client: &Client) -> Result<bool>
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
