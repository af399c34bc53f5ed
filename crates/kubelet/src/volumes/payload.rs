//! Files of volumes from the API.

use super::{downward_api::DownwardApiError, tokens::TokenError};
use crate::object_cache::ObjectError;
use k8s_openapi::api::core::v1::KeyToPath;
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

/// Data of a ConfigMap or Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

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
    pub(super) fn add_keys(
        &mut self,
        missing: fn(String) -> PayloadError,
        data: Data,
        keys: &SelectedKeys<'_>,
    ) -> Result<(), PayloadError> {
        let default_mode = keys.default_mode;
        let Some(items) = keys.items.filter(|items| !items.is_empty()) else {
            return data.into_iter().try_for_each(|(key, content)| self.add(Path::new(&key), default_mode, content));
        };
        for item in items {
            match data.get(&item.key) {
                Some(content) => {
                    self.add(Path::new(&item.path), item_mode(item.mode, default_mode), content.clone())?;
                }
                None if keys.optional => {}
                None => return Err(missing(item.key.clone())),
            }
        }
        Ok(())
    }
}

/// Keys of a ConfigMap or Secret that become files.
pub(super) struct SelectedKeys<'a> {
    /// The selected keys; all without a selection.
    pub(super) items: Option<&'a [KeyToPath]>,
    pub(super) default_mode: u32,
    /// Whether keys, and the object, may be missing.
    pub(super) optional: bool,
}

/// Returns a volume's `defaultMode`.
pub(super) fn file_mode(default_mode: Option<i32>) -> u32 {
    item_mode(default_mode, 0o644)
}

/// Returns the `mode` of a file.
pub(super) fn item_mode(mode: Option<i32>, default: u32) -> u32 {
    mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(default)
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
        let keys = SelectedKeys { items: Some(&items), default_mode: 0o644, optional };
        let added = payload.add_keys(PayloadError::NoConfigMapKey, data, &keys);
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
