//! A namespace that is deleted takes its content along: Pods first, then everything else, then its finalizer
//! (`pkg/controller/namespace/deletion`, with the order of KEP-5080).

use crate::watch::{Change, key, watch};
use crate::worker::{self, Controller, is_code};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The finalizer of ours.
const FINALIZER: &str = "kubernetes";

/// No single event says that content of any kind is gone. While a namespace goes, and only then, it is looked at.
const FIRST_LOOK: Duration = Duration::from_millis(50);
const LAST_LOOK: Duration = Duration::from_secs(2);

struct Namespaces {
    client: Client,
    terminating: HashMap<String, Terminating>,
}

struct Terminating {
    namespace: Namespace,
    looks: u32,
}

impl Controller for Namespaces {
    type Event = Change<Namespace>;

    const NAME: &'static str = "namespace";

    fn observe(&mut self, event: Self::Event, _: Instant) -> Vec<String> {
        match event {
            Change::Set(namespace) => {
                let name = key(&namespace.metadata);
                if namespace.metadata.deletion_timestamp.is_none() || !has_finalizer(&namespace) {
                    self.terminating.remove(&name);
                    return vec![];
                }
                let looks = self.terminating.get(&name).map_or(0, |t| t.looks);
                self.terminating.insert(name.clone(), Terminating { namespace: *namespace, looks });
                vec![name]
            }
            Change::Gone(namespace) => {
                self.terminating.remove(&key(&namespace.metadata));
                vec![]
            }
            Change::Listed(names) => {
                self.terminating.retain(|name, _| names.contains(name));
                vec![]
            }
        }
    }

    async fn reconcile(&mut self, name: &str, _: Instant) -> Result<Option<Duration>, kube::Error> {
        let Some(terminating) = self.terminating.get_mut(name) else {
            return Ok(None);
        };
        if !content_is_gone(&self.client, name).await? {
            let pause = (FIRST_LOOK * 2_u32.pow(terminating.looks.min(6))).min(LAST_LOOK);
            terminating.looks += 1;
            return Ok(Some(pause));
        }
        let mut namespace = terminating.namespace.clone();
        if let Some(finalizers) = namespace.spec.as_mut().and_then(|s| s.finalizers.as_mut()) {
            finalizers.retain(|f| f != FINALIZER);
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        match api.replace_subresource("finalize", name, &PostParams::default(), &namespace).await {
            Ok(_) => Ok(None),
            // It is gone, or newer than what is known: the watch tells.
            Err(e) if is_code(&e, 404) || is_code(&e, 409) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn has_finalizer(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|s| s.finalizers.as_ref());
    finalizers.is_some_and(|f| f.iter().any(|f| f == FINALIZER))
}

/// Deletes what is there; says whether nothing was. Nothing else is touched before the last Pod is gone: a Pod that
/// shuts down may need its configuration.
async fn content_is_gone(client: &Client, namespace: &str) -> Result<bool, kube::Error> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let resources = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let deletable = resources.filter(|(_, capabilities)| {
        capabilities.scope == Scope::Namespaced
            && ["list", "deletecollection"].iter().all(|verb| capabilities.supports_operation(verb))
    });
    let is_pod = |r: &ApiResource| r.group.is_empty() && r.plural == "pods";
    let (pods, others): (Vec<_>, Vec<_>) = deletable.map(|(resource, _)| resource).partition(is_pod);
    for step in [pods, others] {
        let mut gone = true;
        for resource in step {
            gone &= delete_all(client, namespace, &resource).await?;
        }
        if !gone {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes all objects of a kind; says whether none is left.
async fn delete_all(client: &Client, namespace: &str, resource: &ApiResource) -> Result<bool, kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let some = ListParams::default().limit(500);
    let left = match api.list(&some).await {
        Ok(list) => list,
        // Discovery still shows what is not served any more.
        Err(e) if is_code(&e, 404) || is_code(&e, 405) => return Ok(true),
        Err(e) => return Err(e),
    };
    if left.items.is_empty() {
        return Ok(true);
    }
    let all_marked = left.metadata.continue_.as_deref().unwrap_or("").is_empty()
        && left.items.iter().all(|o| o.metadata.deletion_timestamp.is_some());
    if all_marked {
        return Ok(false);
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(api.list(&some).await?.items.is_empty())
}

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let events = watch(Api::all(client.clone()), Config::default());
    worker::run(Namespaces { client, terminating: HashMap::new() }, events, stop).await;
}
