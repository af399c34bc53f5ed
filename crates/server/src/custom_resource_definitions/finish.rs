//! A definition that goes takes its objects along, and goes with the last of them (`pkg/controller/finalizer`).

use super::{Definition, FINALIZER, change, conditions, settle};
use crate::{
    delete::{self, Options},
    kinds::{Custom, KindRef, custom::Family},
    request::Resource,
    service::ApiServer,
};
use futures::{StreamExt, stream};
use serde_json::Value;
use std::sync::Arc;
use store::{Key, Scope};

/// How many objects are deleted at once: their writes share commits.
const AT_ONCE: usize = 64;

/// Goes on in the background with what keeps a definition.
pub(super) fn spawn(server: &ApiServer, definition: &Definition) {
    let holds = |f: &Value| f == FINALIZER;
    let held = definition.value["metadata"]["finalizers"].as_array().is_some_and(|f| f.iter().any(holds));
    if !held {
        return;
    }
    let (server, name) = (server.clone(), definition.name().to_owned());
    let kind = stored_kind(definition);
    tokio::spawn(async move {
        let done = match &kind {
            Some(kind) => delete_objects(&server, kind, &name).await,
            // Nothing can have been stored of what was never served.
            None => true,
        };
        if done {
            let told = if kind.is_some() {
                ("InstanceDeletionCompleted", "removed all instances")
            } else {
                ("NeverEstablished", "resource was never established")
            };
            let freed = change(&server, &name, None, |value| {
                conditions::set(&mut value["status"], "Terminating", "False", told.0, told.1);
                if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
                    finalizers.retain(|f| f != FINALIZER);
                }
            });
            match freed.await {
                // Its names are free.
                Ok(()) => Box::pin(settle(&server)).await,
                Err(error) if error.code == 404 => {}
                Err(error) => tracing::warn!(name, %error, "a definition cannot go"),
            }
        }
    });
}

/// The kind as its objects are stored, whether or not that version is served; `None` when there can be none.
fn stored_kind(definition: &Definition) -> Option<KindRef> {
    let versions = definition.value["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|v| v["storage"] == true);
    let version = stored.next().filter(|_| conditions::is(&definition.value, "Established"))?;
    let family = Family::new(&definition.value, definition.since);
    Custom::read(&family, version).map(|kind| KindRef::Custom(Arc::new(kind)))
}

/// Deletes what is there; says whether nothing is left.
async fn delete_objects(server: &ApiServer, kind: &KindRef, name: &str) -> bool {
    let storage = kind.info().storage;
    let keys = |server: &ApiServer| -> Vec<Key> {
        server.store.list(&Scope::resource(storage), None, None).objects.iter().map(|o| o.key.clone()).collect()
    };
    stream::iter(keys(server))
        .for_each_concurrent(AT_ONCE, |key| async move {
            let resource = Resource::at(kind, &key.namespace, &key.name);
            match delete::delete(server, &resource, &key, &Options::plain()).await {
                Err(error) if error.code != 404 => tracing::warn!(%key, %error, "an object cannot be deleted"),
                _ => {}
            }
        })
        .await;
    if keys(server).is_empty() {
        return true;
    }
    let told = change(server, name, Some("status"), |value| {
        let message = "CustomResource deletion is in progress";
        conditions::set(&mut value["status"], "Terminating", "True", "InstanceDeletionInProgress", message);
    });
    if let Err(error) = told.await {
        tracing::debug!(name, %error, "what a definition waits for is not told");
    }
    // The last of its objects that goes lets it go, too; one may have gone meanwhile.
    keys(server).is_empty()
}
