//! Files of ConfigMap, Secret, downward API and projected volumes.

use super::{
    downward_api::{self, DownwardApiError},
    fs_group,
    tokens::{self, TokenError},
};
use crate::{
    Shared,
    object_cache::{ObjectCache, ObjectError},
    pods::spec,
};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, Secret,
    SecretVolumeSource, VolumeProjection,
};
use lifecycle::Pod;
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// Files of a volume by their path within it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Payload {
    pub(super) files: BTreeMap<PathBuf, FileProjection>,
}

/// File of a volume.
#[derive(Debug, PartialEq)]
pub(super) struct FileProjection {
    pub(super) mode: u32,
    /// Owner, if it is not root.
    pub(super) owner: Option<u32>,
    pub(super) content: Vec<u8>,
}

type Data = BTreeMap<String, Vec<u8>>;

/// Failure to collect the files of a volume.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadError {
    #[error("invalid path: {}", .0.display())]
    InvalidPath(PathBuf),
    /// Upstream's message for a missing key (`MakePayload` of `pkg/volume/configmap`).
    #[error("configmap references non-existent config key: {0}")]
    NoConfigMapKey(String),
    /// Upstream's message for a missing key (`MakePayload` of `pkg/volume/secret`).
    #[error("references non-existent secret key: {0}")]
    NoSecretKey(String),
    #[error("{path}: must have fieldRef or resourceFieldRef")]
    NoField { path: String },
    #[error("projected volumes with {0} are not supported yet")]
    UnsupportedProjection(&'static str),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error(transparent)]
    DownwardApi(#[from] DownwardApiError),
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl Payload {
    /// Adds a file. A path outside the volume, or one that the atomic writer reserves, is rejected.
    pub(super) fn add(&mut self, path: &Path, mode: u32, content: Vec<u8>) -> Result<(), PayloadError> {
        let normal = path.components().all(|c| matches!(c, Component::Normal(_)));
        if !normal || path.as_os_str().is_empty() || path.to_string_lossy().starts_with("..") {
            return Err(PayloadError::InvalidPath(path.to_owned()));
        }
        self.files.insert(path.to_owned(), FileProjection { mode, owner: None, content });
        Ok(())
    }

    /// Adds all keys, or the selected ones. `missing` is the error for a missing key.
    fn add_keys(
        &mut self,
        missing: fn(String) -> PayloadError,
        data: Data,
        items: Option<&[KeyToPath]>,
        default_mode: u32,
        optional: bool,
    ) -> Result<(), PayloadError> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return data.into_iter().try_for_each(|(key, content)| self.add(Path::new(&key), default_mode, content));
        };
        for item in items {
            match data.get(&item.key) {
                Some(content) => self.add(Path::new(&item.path), mode(item.mode, default_mode), content.clone())?,
                None if optional => {}
                None => return Err(missing(item.key.clone())),
            }
        }
        Ok(())
    }
}

fn mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(default)
}

fn config_map_data(object: Option<&ConfigMap>) -> Data {
    let text = object.and_then(|o| o.data.clone()).unwrap_or_default();
    let binary = object.and_then(|o| o.binary_data.clone()).unwrap_or_default();
    text.into_iter().map(|(k, v)| (k, v.into_bytes())).chain(binary.into_iter().map(|(k, v)| (k, v.0))).collect()
}

fn secret_data(object: Option<&Secret>) -> Data {
    object.and_then(|o| o.data.clone()).unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()
}

pub(super) async fn config_map(
    source: &ConfigMapVolumeSource,
    objects: &mut ObjectCache<'_>,
) -> Result<Payload, PayloadError> {
    let optional = source.optional == Some(true);
    let object = objects.config_map(&source.name, optional).await?;
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    payload.add_keys(
        PayloadError::NoConfigMapKey,
        config_map_data(object.as_deref()),
        source.items.as_deref(),
        default_mode,
        optional,
    )?;
    Ok(payload)
}

pub(super) async fn secret(
    source: &SecretVolumeSource,
    objects: &mut ObjectCache<'_>,
) -> Result<Payload, PayloadError> {
    let optional = source.optional == Some(true);
    let name = source.secret_name.as_deref().unwrap_or_default();
    let object = objects.secret(name, optional).await?;
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    payload.add_keys(
        PayloadError::NoSecretKey,
        secret_data(object.as_deref()),
        source.items.as_deref(),
        default_mode,
        optional,
    )?;
    Ok(payload)
}

pub(super) fn downward_api(
    shared: &Shared,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, PayloadError> {
    let mut payload = Payload::default();
    add_downward_api(&mut payload, shared, pod, items, mode(default_mode, 0o644))?;
    Ok(payload)
}

fn add_downward_api(
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
        payload.add(Path::new(&item.path), mode(item.mode, default_mode), content.into_bytes())?;
    }
    Ok(())
}

pub(super) async fn projected(
    shared: &Shared,
    pod: &Pod,
    source: &ProjectedVolumeSource,
    objects: &mut ObjectCache<'_>,
) -> Result<Payload, PayloadError> {
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    for projection in source.sources.iter().flatten() {
        add_projection(shared, pod, projection, default_mode, objects, &mut payload).await?;
    }
    Ok(payload)
}

async fn add_projection(
    shared: &Shared,
    pod: &Pod,
    projection: &VolumeProjection,
    default_mode: u32,
    objects: &mut ObjectCache<'_>,
    payload: &mut Payload,
) -> Result<(), PayloadError> {
    if let Some(source) = &projection.config_map {
        let optional = source.optional == Some(true);
        let object = objects.config_map(&source.name, optional).await?;
        return payload.add_keys(
            PayloadError::NoConfigMapKey,
            config_map_data(object.as_deref()),
            source.items.as_deref(),
            default_mode,
            optional,
        );
    }
    if let Some(source) = &projection.secret {
        let optional = source.optional == Some(true);
        let object = objects.secret(&source.name, optional).await?;
        return payload.add_keys(
            PayloadError::NoSecretKey,
            secret_data(object.as_deref()),
            source.items.as_deref(),
            default_mode,
            optional,
        );
    }
    if let Some(source) = &projection.downward_api {
        return add_downward_api(payload, shared, pod, source.items.as_deref().unwrap_or_default(), default_mode);
    }
    if let Some(source) = &projection.service_account_token {
        let content = tokens::get_token(shared, pod, source).await?;
        let (path, owner) = (Path::new(&source.path), tokens::fs_user(spec(pod)));
        // A file with an owner or group must not be readable by others.
        let is_owned = owner.is_some() || fs_group(pod).is_some();
        payload.add(path, if is_owned { 0o600 } else { default_mode }, content.into_bytes())?;
        if let Some(file) = payload.files.get_mut(path) {
            file.owner = owner;
        }
        return Ok(());
    }
    let source = match projection {
        p if p.cluster_trust_bundle.is_some() => "clusterTrustBundle",
        p if p.pod_certificate.is_some() => "podCertificate",
        _ => "a source of an unknown type",
    };
    Err(PayloadError::UnsupportedProjection(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(items: &[(&str, &str)], optional: bool, expected: Result<&[&str], &str>) {
        let data = Data::from([("k".to_owned(), b"v".to_vec()), ("l".to_owned(), b"w".to_vec())]);
        let items: Vec<KeyToPath> = items
            .iter()
            .map(|(key, path)| KeyToPath { key: (*key).into(), path: (*path).into(), mode: None })
            .collect();
        let mut payload = Payload::default();
        let added = payload.add_keys(PayloadError::NoConfigMapKey, data, Some(&items), 0o644, optional);
        let paths: Vec<&str> = payload.files.keys().filter_map(|p| p.to_str()).collect();
        let result = added.map_err(|e| e.to_string());
        match expected {
            Ok(expected) => assert_eq!((result, paths.as_slice()), (Ok(()), expected)),
            Err(words) => assert_eq!(result, Err(words.to_owned())),
        }
    }

    #[test]
    fn items_select_keys_with_paths_within_the_volume() {
        check(&[], false, Ok(&["k", "l"]));
        check(&[("k", "x/y")], false, Ok(&["x/y"]));
        check(&[("n", "y")], true, Ok(&[]));
        check(&[("n", "y")], false, Err("configmap references non-existent config key: n"));
        check(&[("k", "../y")], false, Err("invalid path: ../y"));
        check(&[("k", "/y")], false, Err("invalid path: /y"));
        check(&[("k", "..data")], false, Err("invalid path: ..data"));
    }
}
