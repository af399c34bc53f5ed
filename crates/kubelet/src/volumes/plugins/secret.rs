//! `secret` volumes: the data of a Secret (upstream's `pkg/volume/secret/secret.go`).

use crate::{
    object_cache::ObjectCache,
    volumes::{
        files_plugin::{FilesPlugin, ObjectReference},
        payload::{Data, Payload, PayloadError, SelectedKeys, file_mode},
        plugin::MountContext,
    },
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{Secret, Volume};

pub(super) struct SecretPlugin;

impl FilesPlugin for SecretPlugin {
    fn can_support(&self, volume: &Volume) -> bool {
        volume.secret.is_some()
    }

    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>> {
        async move {
            let mut payload = Payload::default();
            if let Some(source) = &volume.secret {
                let keys = SelectedKeys {
                    items: source.items.as_deref(),
                    default_mode: file_mode(source.default_mode),
                    optional: source.optional == Some(true),
                };
                let name = source.secret_name.as_deref().unwrap_or_default();
                add_secret(&mut payload, name, &keys, &mut context.objects).await?;
            }
            Ok(payload)
        }
        .boxed()
    }

    fn referenced_objects<'a>(&self, volume: &'a Volume) -> Vec<ObjectReference<'a>> {
        let name = volume.secret.as_ref().and_then(|source| source.secret_name.as_deref());
        name.map(ObjectReference::Secret).into_iter().collect()
    }
}

/// Adds the selected keys of a Secret.
pub(super) async fn add_secret(
    payload: &mut Payload,
    name: &str,
    keys: &SelectedKeys<'_>,
    objects: &mut ObjectCache<'_>,
) -> Result<(), PayloadError> {
    let object = objects.secret(name, keys.optional).await?;
    payload.add_keys(PayloadError::NoSecretKey, data(object.as_deref()), keys)
}

fn data(object: Option<&Secret>) -> Data {
    object.and_then(|o| o.data.clone()).unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()
}
