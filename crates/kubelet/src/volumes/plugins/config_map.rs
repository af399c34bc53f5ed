//! `configMap` volumes: the data of a ConfigMap (upstream's `pkg/volume/configmap/configmap.go`).

use crate::{
    object_cache::ObjectCache,
    volumes::{
        files_plugin::{FilesPlugin, ObjectReference},
        payload::{Data, Payload, PayloadError, SelectedKeys, file_mode},
        plugin::MountContext,
    },
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{ConfigMap, Volume};

pub(super) struct ConfigMapPlugin;

impl FilesPlugin for ConfigMapPlugin {
    fn can_support(&self, volume: &Volume) -> bool {
        volume.config_map.is_some()
    }

    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>> {
        async move {
            let mut payload = Payload::default();
            if let Some(source) = &volume.config_map {
                let keys = SelectedKeys {
                    items: source.items.as_deref(),
                    default_mode: file_mode(source.default_mode),
                    optional: source.optional == Some(true),
                };
                add_config_map(&mut payload, &source.name, &keys, &mut context.objects).await?;
            }
            Ok(payload)
        }
        .boxed()
    }

    fn is_in_memory(&self) -> bool {
        false
    }

    fn referenced_objects<'a>(&self, volume: &'a Volume) -> Vec<ObjectReference<'a>> {
        volume.config_map.iter().map(|source| ObjectReference::ConfigMap(&source.name)).collect()
    }
}

/// Adds the selected keys of a ConfigMap.
pub(super) async fn add_config_map(
    payload: &mut Payload,
    name: &str,
    keys: &SelectedKeys<'_>,
    objects: &mut ObjectCache<'_>,
) -> Result<(), PayloadError> {
    let object = objects.config_map(name, keys.optional).await?;
    payload.add_keys(PayloadError::NoConfigMapKey, data(object.as_deref()), keys)
}

fn data(object: Option<&ConfigMap>) -> Data {
    let text = object.and_then(|o| o.data.clone()).unwrap_or_default();
    let binary = object.and_then(|o| o.binary_data.clone()).unwrap_or_default();
    text.into_iter().map(|(k, v)| (k, v.into_bytes())).chain(binary.into_iter().map(|(k, v)| (k, v.0))).collect()
}
