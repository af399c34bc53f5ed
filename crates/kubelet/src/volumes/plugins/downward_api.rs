//! `downwardAPI` volumes: fields of the Pod (upstream's `pkg/volume/downwardapi/downwardapi.go`).

use crate::{
    Shared,
    volumes::{
        downward_api,
        files_plugin::FilesPlugin,
        payload::{Payload, PayloadError, file_mode, item_mode},
        plugin::MountContext,
    },
};
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Volume};
use lifecycle::Pod;
use std::path::Path;

pub(super) struct DownwardApiPlugin;

impl FilesPlugin for DownwardApiPlugin {
    fn can_support(&self, volume: &Volume) -> bool {
        volume.downward_api.is_some()
    }

    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>> {
        let mut payload = Payload::default();
        let added = volume.downward_api.as_ref().map_or(Ok(()), |source| {
            let items = source.items.as_deref().unwrap_or_default();
            add_downward_api(&mut payload, context.shared, context.pod, items, file_mode(source.default_mode))
        });
        ready(added.map(|()| payload)).boxed()
    }
}

/// Adds a file for each item.
pub(super) fn add_downward_api(
    payload: &mut Payload,
    shared: &Shared,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
) -> Result<(), PayloadError> {
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => downward_api::field_ref_value(shared, pod, &field.field_path)?,
            (_, Some(resource)) => downward_api::resource_field_ref_value(shared, pod, None, resource)?,
            _ => return Err(PayloadError::NoField { path: item.path.clone() }),
        };
        payload.add(Path::new(&item.path), item_mode(item.mode, default_mode), content.into_bytes())?;
    }
    Ok(())
}
