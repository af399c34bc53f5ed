//! `projected` volumes: several sources in one directory (upstream's `pkg/volume/projected/projected.go`).

use super::{config_map::add_config_map, downward_api::add_downward_api, secret::add_secret};
use crate::{
    Shared,
    pods::spec,
    volumes::{
        files_plugin::{FilesPlugin, ObjectReference},
        fs_group,
        payload::{Payload, PayloadError, SelectedKeys, file_mode},
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
        let objects = |source: &'a VolumeProjection| {
            let config_map = source.config_map.as_ref().map(|s| ObjectReference::ConfigMap(&s.name));
            config_map.into_iter().chain(source.secret.as_ref().map(|s| ObjectReference::Secret(&s.name)))
        };
        sources(volume).flat_map(objects).collect()
    }

    fn has_tokens(&self, volume: &Volume) -> bool {
        sources(volume).any(|source| source.service_account_token.is_some())
    }
}

fn sources(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

async fn add_projection(
    payload: &mut Payload,
    projection: &VolumeProjection,
    default_mode: u32,
    context: &mut MountContext<'_>,
) -> Result<(), PayloadError> {
    if let Some(source) = &projection.config_map {
        let (items, optional) = (source.items.as_deref(), source.optional == Some(true));
        let keys = SelectedKeys { items, default_mode, optional };
        return add_config_map(payload, &source.name, &keys, &mut context.objects).await;
    }
    if let Some(source) = &projection.secret {
        let (items, optional) = (source.items.as_deref(), source.optional == Some(true));
        let keys = SelectedKeys { items, default_mode, optional };
        return add_secret(payload, &source.name, &keys, &mut context.objects).await;
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
