//! The files that the API's objects become in a volume.

use super::{downward, fs_group, tokens};
use crate::{Shared, objects::Objects, pods::spec};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, Secret,
    SecretVolumeSource, VolumeProjection,
};
use lifecycle::Pod;
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// The files of a volume, by their path in it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Payload {
    pub(super) files: BTreeMap<PathBuf, File>,
}

/// One file.
#[derive(Debug, PartialEq)]
pub(super) struct File {
    pub(super) mode: u32,
    /// Whose it is, unless it is root's.
    pub(super) owner: Option<u32>,
    pub(super) content: Vec<u8>,
}

type Data = BTreeMap<String, Vec<u8>>;

/// Upstream's words about a key that is missing (`MakePayload` of `pkg/volume/configmap` and `pkg/volume/secret`).
const NO_CONFIG_MAP: &str = "configmap references non-existent config";
const NO_SECRET: &str = "references non-existent secret";

impl Payload {
    /// Adds a file; a path that leads out of the volume, or that the writer needs itself, is refused.
    pub(super) fn add(&mut self, path: &Path, mode: u32, content: Vec<u8>) -> Result<(), String> {
        let normal = path.components().all(|c| matches!(c, Component::Normal(_)));
        if !normal || path.as_os_str().is_empty() || path.to_string_lossy().starts_with("..") {
            return Err(format!("invalid path: {}", path.display()));
        }
        self.files.insert(path.to_owned(), File { mode, owner: None, content });
        Ok(())
    }

    /// Adds all keys, or the selected ones. `missing` begins what is said of a key that is not there.
    fn add_keys(
        &mut self,
        missing: &str,
        data: Data,
        items: Option<&[KeyToPath]>,
        default_mode: u32,
        optional: bool,
    ) -> Result<(), String> {
        let Some(items) = items.filter(|items| !items.is_empty()) else {
            return data.into_iter().try_for_each(|(key, content)| self.add(Path::new(&key), default_mode, content));
        };
        for item in items {
            match data.get(&item.key) {
                Some(content) => self.add(Path::new(&item.path), mode(item.mode, default_mode), content.clone())?,
                None if optional => {}
                None => return Err(format!("{missing} key: {}", item.key)),
            }
        }
        Ok(())
    }
}

fn mode(own: Option<i32>, default: u32) -> u32 {
    own.and_then(|m| u32::try_from(m).ok()).unwrap_or(default)
}

fn of_config_map(object: Option<&ConfigMap>) -> Data {
    let text = object.and_then(|o| o.data.clone()).unwrap_or_default();
    let binary = object.and_then(|o| o.binary_data.clone()).unwrap_or_default();
    text.into_iter().map(|(k, v)| (k, v.into_bytes())).chain(binary.into_iter().map(|(k, v)| (k, v.0))).collect()
}

fn of_secret(object: Option<&Secret>) -> Data {
    object.and_then(|o| o.data.clone()).unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()
}

pub(super) async fn config_map(source: &ConfigMapVolumeSource, objects: &mut Objects<'_>) -> Result<Payload, String> {
    let optional = source.optional == Some(true);
    let object = objects.config_map(&source.name, optional).await?;
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    payload.add_keys(
        NO_CONFIG_MAP,
        of_config_map(object.as_deref()),
        source.items.as_deref(),
        default_mode,
        optional,
    )?;
    Ok(payload)
}

pub(super) async fn secret(source: &SecretVolumeSource, objects: &mut Objects<'_>) -> Result<Payload, String> {
    let optional = source.optional == Some(true);
    let name = source.secret_name.as_deref().unwrap_or_default();
    let object = objects.secret(name, optional).await?;
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    payload.add_keys(NO_SECRET, of_secret(object.as_deref()), source.items.as_deref(), default_mode, optional)?;
    Ok(payload)
}

pub(super) fn downward(
    shared: &Shared,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: Option<i32>,
) -> Result<Payload, String> {
    let mut payload = Payload::default();
    add_downward(&mut payload, shared, pod, items, mode(default_mode, 0o644))?;
    Ok(payload)
}

fn add_downward(
    payload: &mut Payload,
    shared: &Shared,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
) -> Result<(), String> {
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => downward::field(shared, pod, &field.field_path)?,
            (_, Some(resource)) => downward::resource_field(shared, pod, None, resource)?,
            _ => return Err(format!("the file {:?} of the downward API refers to nothing", item.path)),
        };
        payload.add(Path::new(&item.path), mode(item.mode, default_mode), content.into_bytes())?;
    }
    Ok(())
}

pub(super) async fn projected(
    shared: &Shared,
    pod: &Pod,
    source: &ProjectedVolumeSource,
    objects: &mut Objects<'_>,
) -> Result<Payload, String> {
    let mut payload = Payload::default();
    let default_mode = mode(source.default_mode, 0o644);
    for projection in source.sources.iter().flatten() {
        project(shared, pod, projection, default_mode, objects, &mut payload).await?;
    }
    Ok(payload)
}

async fn project(
    shared: &Shared,
    pod: &Pod,
    projection: &VolumeProjection,
    default_mode: u32,
    objects: &mut Objects<'_>,
    payload: &mut Payload,
) -> Result<(), String> {
    if let Some(source) = &projection.config_map {
        let optional = source.optional == Some(true);
        let object = objects.config_map(&source.name, optional).await?;
        return payload.add_keys(
            NO_CONFIG_MAP,
            of_config_map(object.as_deref()),
            source.items.as_deref(),
            default_mode,
            optional,
        );
    }
    if let Some(source) = &projection.secret {
        let optional = source.optional == Some(true);
        let object = objects.secret(&source.name, optional).await?;
        return payload.add_keys(
            NO_SECRET,
            of_secret(object.as_deref()),
            source.items.as_deref(),
            default_mode,
            optional,
        );
    }
    if let Some(source) = &projection.downward_api {
        return add_downward(payload, shared, pod, source.items.as_deref().unwrap_or_default(), default_mode);
    }
    if let Some(source) = &projection.service_account_token {
        let content = tokens::get(shared, pod, source).await?;
        let (path, owner) = (Path::new(&source.path), tokens::user(spec(pod)));
        // What has an owner or a group of its own is for nobody else.
        let own = owner.is_some() || fs_group(pod).is_some();
        payload.add(path, if own { 0o600 } else { default_mode }, content.into_bytes())?;
        if let Some(file) = payload.files.get_mut(path) {
            file.owner = owner;
        }
        return Ok(());
    }
    let what = match projection {
        p if p.cluster_trust_bundle.is_some() => "clusterTrustBundle",
        p if p.pod_certificate.is_some() => "podCertificate",
        _ => "a source of an unknown type",
    };
    Err(format!("projected volumes with {what} are not supported yet"))
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
        let result = payload.add_keys(NO_CONFIG_MAP, data, Some(&items), 0o644, optional);
        let paths: Vec<&str> = payload.files.keys().filter_map(|p| p.to_str()).collect();
        match expected {
            Ok(expected) => assert_eq!((result, paths.as_slice()), (Ok(()), expected)),
            Err(words) => assert_eq!(result, Err(words.to_owned())),
        }
    }

    #[test]
    fn items_select_and_rename_keys_and_never_lead_out_of_the_volume() {
        check(&[], false, Ok(&["k", "l"]));
        check(&[("k", "x/y")], false, Ok(&["x/y"]));
        check(&[("n", "y")], true, Ok(&[]));
        check(&[("n", "y")], false, Err("configmap references non-existent config key: n"));
        check(&[("k", "../y")], false, Err("invalid path: ../y"));
        check(&[("k", "/y")], false, Err("invalid path: /y"));
        check(&[("k", "..data")], false, Err("invalid path: ..data"));
    }
}
