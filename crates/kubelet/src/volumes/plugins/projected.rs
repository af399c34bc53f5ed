//! `projected` volumes: several sources in one directory (upstream's `pkg/volume/projected/projected.go`).

use super::{downward_api::add_downward_api, object_keys::ObjectKeys};
use crate::{
    Shared,
    pods::spec,
    volumes::{
        files_plugin::{FilesPlugin, ObjectReference},
        fs_group,
        payload::{Payload, PayloadError, file_mode},
        plugin::MountContext,
        tokens,
    },
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::{ServiceAccountTokenProjection, Volume, VolumeProjection};
use lifecycle::Pod;
use std::path::Path;

pub(super) struct ProjectedPlugin;

impl FilesPlugin for ProjectedPlugin {
    fn can_support(&self, volume: &Volume) -> bool {
        volume.projected.is_some()
    }

    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>> {
        async move {
            let mut payload = Payload::default();
            let default_mode = file_mode(volume.projected.as_ref().and_then(|source| source.default_mode));
            for source in sources(volume) {
                add_projection(&mut payload, source, default_mode, context).await?;
            }
            Ok(payload)
        }
        .boxed()
    }

    fn referenced_objects<'a>(&self, volume: &'a Volume) -> Vec<ObjectReference<'a>> {
        let objects = sources(volume).filter_map(|source| object_keys(source, 0));
        objects.filter_map(|object| object.reference()).collect()
    }

    fn has_tokens(&self, volume: &Volume) -> bool {
        sources(volume).any(|source| source.service_account_token.is_some())
    }
}

fn sources(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

/// Returns the ConfigMap or Secret of a source, and its keys.
fn object_keys(projection: &VolumeProjection, default_mode: u32) -> Option<ObjectKeys<'_>> {
    let config_map = projection.config_map.as_ref().map(|source| {
        let object = ObjectReference::ConfigMap(&source.name);
        ObjectKeys::new(object, source.items.as_deref(), default_mode, source.optional)
    });
    config_map.or_else(|| {
        let source = projection.secret.as_ref()?;
        let object = ObjectReference::Secret(&source.name);
        Some(ObjectKeys::new(object, source.items.as_deref(), default_mode, source.optional))
    })
}

async fn add_projection(
    payload: &mut Payload,
    projection: &VolumeProjection,
    default_mode: u32,
    context: &mut MountContext<'_>,
) -> Result<(), PayloadError> {
    if let Some(object) = object_keys(projection, default_mode) {
        return object.add_to(payload, &mut context.objects).await;
    }
    if let Some(source) = &projection.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return add_downward_api(payload, context.shared, context.pod, items, default_mode);
    }
    if let Some(source) = &projection.service_account_token {
        return add_token(payload, context.shared, context.pod, source, default_mode).await;
    }
    let source = match projection {
        p if p.cluster_trust_bundle.is_some() => "clusterTrustBundle",
        p if p.pod_certificate.is_some() => "podCertificate",
        _ => "a source of an unknown type",
    };
    Err(PayloadError::UnsupportedProjection(source))
}

async fn add_token(
    payload: &mut Payload,
    shared: &Shared,
    pod: &Pod,
    source: &ServiceAccountTokenProjection,
    default_mode: u32,
) -> Result<(), PayloadError> {
    let content = tokens::get_token(shared, pod, source).await?;
    let (path, owner) = (Path::new(&source.path), tokens::fs_user(spec(pod)));
    // A file with an owner or group must not be readable by others.
    let is_owned = owner.is_some() || fs_group(pod).is_some();
    payload.add(path, if is_owned { 0o600 } else { default_mode }, content.into_bytes())?;
    if let Some(file) = payload.files.get_mut(path) {
        file.owner = owner;
    }
    Ok(())
}
