//! `configMap` and `secret` volumes: the keys of an object (upstream's `pkg/volume/configmap/configmap.go` and
//! `pkg/volume/secret/secret.go`).

use crate::{
    object_cache::ObjectCache,
    volumes::{
        files_plugin::{FilesPlugin, ObjectReference},
        payload::{Data, Payload, PayloadError, SelectedKeys, file_mode},
        plugin::MountContext,
    },
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret, Volume};

/// A type of volume whose files are keys of one object.
pub(super) struct ObjectKeysPlugin {
    source: fn(&Volume) -> Option<ObjectKeys<'_>>,
    is_in_memory: bool,
}

pub(super) static CONFIG_MAP: ObjectKeysPlugin = ObjectKeysPlugin {
    source: |volume| {
        let source = volume.config_map.as_ref()?;
        let (object, mode) = (ObjectReference::ConfigMap(&source.name), file_mode(source.default_mode));
        Some(ObjectKeys::new(object, source.items.as_deref(), mode, source.optional))
    },
    is_in_memory: false,
};

pub(super) static SECRET: ObjectKeysPlugin = ObjectKeysPlugin {
    source: |volume| {
        let source = volume.secret.as_ref()?;
        let object = ObjectReference::Secret(source.secret_name.as_deref().unwrap_or_default());
        Some(ObjectKeys::new(object, source.items.as_deref(), file_mode(source.default_mode), source.optional))
    },
    is_in_memory: true,
};

impl FilesPlugin for ObjectKeysPlugin {
    fn can_support(&self, volume: &Volume) -> bool {
        (self.source)(volume).is_some()
    }

    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>> {
        async move {
            let mut payload = Payload::default();
            if let Some(source) = (self.source)(volume) {
                source.add_to(&mut payload, &mut context.objects).await?;
            }
            Ok(payload)
        }
        .boxed()
    }

    fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    fn referenced_objects<'a>(&self, volume: &'a Volume) -> Vec<ObjectReference<'a>> {
        (self.source)(volume).iter().filter_map(ObjectKeys::reference).collect()
    }
}

/// A ConfigMap or Secret, and its keys that become files.
pub(super) struct ObjectKeys<'a> {
    object: ObjectReference<'a>,
    keys: SelectedKeys<'a>,
}

impl<'a> ObjectKeys<'a> {
    pub(super) fn new(
        object: ObjectReference<'a>,
        items: Option<&'a [KeyToPath]>,
        default_mode: u32,
        optional: Option<bool>,
    ) -> Self {
        Self { object, keys: SelectedKeys { items, default_mode, optional: optional == Some(true) } }
    }

    /// Returns the object; `None` if it has no name.
    pub(super) fn reference(&self) -> Option<ObjectReference<'a>> {
        let (ObjectReference::ConfigMap(name) | ObjectReference::Secret(name)) = self.object;
        (!name.is_empty()).then_some(self.object)
    }

    /// Adds the selected keys to the files of a volume.
    pub(super) async fn add_to(
        &self,
        payload: &mut Payload,
        objects: &mut ObjectCache<'_>,
    ) -> Result<(), PayloadError> {
        let optional = self.keys.optional;
        match self.object {
            ObjectReference::ConfigMap(name) => {
                let data = config_map_data(objects.config_map(name, optional).await?.as_deref());
                payload.add_keys(PayloadError::NoConfigMapKey, data, &self.keys)
            }
            ObjectReference::Secret(name) => {
                let data = secret_data(objects.secret(name, optional).await?.as_deref());
                payload.add_keys(PayloadError::NoSecretKey, data, &self.keys)
            }
        }
    }
}

fn config_map_data(object: Option<&ConfigMap>) -> Data {
    let text = object.and_then(|o| o.data.clone()).unwrap_or_default();
    let binary = object.and_then(|o| o.binary_data.clone()).unwrap_or_default();
    text.into_iter().map(|(k, v)| (k, v.into_bytes())).chain(binary.into_iter().map(|(k, v)| (k, v.0))).collect()
}

fn secret_data(object: Option<&Secret>) -> Data {
    object.and_then(|o| o.data.clone()).unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()
}
