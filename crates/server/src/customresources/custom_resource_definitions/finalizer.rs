//! Finalizer of definitions: deletes the custom resources first (`pkg/controller/finalizer`).

use super::{Definition, conditions, reconcile, update_definition};
use crate::{
    customresources::custom_resource_definitions::CustomResources,
    objects::request_scope::RequestScope,
    rest::delete::{self, DeletionOptions},
};
use futures::{StreamExt, stream};
use kinds::{CUSTOM_RESOURCE_FINALIZER, Custom, KindRef, custom::DefinitionContext};
use serde_json::Value;
use std::sync::Arc;
use store::{Key, Scope};

/// Concurrent deletions, whose writes share commits.
const CONCURRENCY: usize = 64;

/// Finalizes a terminating definition in the background.
pub(super) fn spawn(crds: &CustomResources, definition: &Definition) {
    let is_finalizer = |f: &Value| f == CUSTOM_RESOURCE_FINALIZER;
    let has_finalizer =
        definition.value["metadata"]["finalizers"].as_array().is_some_and(|f| f.iter().any(is_finalizer));
    if !has_finalizer {
        return;
    }
    let (crds, name) = (crds.clone(), definition.name().to_owned());
    let kind = stored_kind(definition);
    tokio::spawn(async move {
        let done = match &kind {
            Some(kind) => delete_objects(&crds, kind, &name).await,
            // A version that was never served has no objects.
            None => true,
        };
        if done {
            let (reason, message) = if kind.is_some() {
                ("InstanceDeletionCompleted", "removed all instances")
            } else {
                ("NeverEstablished", "resource was never established")
            };
            let updated = update_definition(&crds, &name, None, |value| {
                conditions::set(&mut value["status"], "Terminating", "False", reason, message);
                if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
                    finalizers.retain(|f| f != CUSTOM_RESOURCE_FINALIZER);
                }
            });
            match updated.await {
                // Another definition may have its names now.
                Ok(()) => Box::pin(reconcile(&crds)).await,
                Err(error) if error.code == 404 => {}
                Err(error) => tracing::warn!(name, %error, "failed to finalize a definition"),
            }
        }
    });
}

/// Returns the kind of the storage version, served or not; `None` when the definition was never established.
fn stored_kind(definition: &Definition) -> Option<KindRef> {
    let versions = definition.value["spec"]["versions"].as_array().into_iter().flatten();
    let mut stored = versions.filter(|v| v["storage"] == true);
    let version = stored.next().filter(|_| conditions::is_true(&definition.value, "Established"))?;
    let family = DefinitionContext::new(&definition.value, definition.since);
    Custom::from_version(&family, version).map(|kind| KindRef::Custom(Arc::new(kind)))
}

/// Deletes all objects; returns whether none is left.
async fn delete_objects(crds: &CustomResources, kind: &KindRef, name: &str) -> bool {
    let storage = kind.info().storage;
    let keys = |crds: &CustomResources| -> Vec<Key> {
        crds.registry.store.list(&Scope::resource(storage), None, None).objects.iter().map(|o| o.key.clone()).collect()
    };
    stream::iter(keys(crds))
        .for_each_concurrent(CONCURRENCY, |key| async move {
            let resource = RequestScope::of_object(kind, &key.namespace, &key.name);
            match delete::delete_object(&crds.registry, &resource, &key, &DeletionOptions::empty()).await {
                Err(error) if error.code != 404 => tracing::warn!(%key, %error, "failed to delete a custom resource"),
                _ => {}
            }
        })
        .await;
    if keys(crds).is_empty() {
        return true;
    }
    let updated = update_definition(crds, name, Some("status"), |value| {
        let message = "CustomResource deletion is in progress";
        conditions::set(&mut value["status"], "Terminating", "True", "InstanceDeletionInProgress", message);
    });
    if let Err(error) = updated.await {
        tracing::debug!(name, %error, "failed to write the condition Terminating of a definition");
    }
    // Listed again, as the last object may be deleted by now; each later deletion reconciles the definition.
    keys(crds).is_empty()
}
