//! Table of the types of volumes.

mod downward_api;
pub(super) mod empty_dir;
mod host_path;
mod image;
mod local;
mod object_keys;
mod projected;
#[cfg(test)]
mod tests;

use super::{
    files_plugin::FilesPlugin,
    mount_error::SetUpError,
    plugin::{VolumePlugin, VolumeSpec},
};
use k8s_openapi::api::core::v1::Volume;

/// The types of volumes, except claims: those have a PersistentVolume of one of these types.
static PLUGINS: &[&dyn VolumePlugin] = &[
    &object_keys::CONFIG_MAP,
    &downward_api::DownwardApiPlugin,
    &empty_dir::EmptyDirPlugin,
    &host_path::HostPathPlugin,
    &image::ImagePlugin,
    &local::LocalPlugin,
    &projected::ProjectedPlugin,
    &object_keys::SECRET,
];

/// Returns the plugin of a volume (`FindPluginBySpec`).
///
/// # Errors
/// Fails if no plugin supports the volume.
pub(super) fn find_by_spec(spec: VolumeSpec<'_>) -> Result<&'static dyn VolumePlugin, SetUpError> {
    let plugin = PLUGINS.iter().copied().find(|plugin| plugin.can_support(spec));
    plugin.ok_or_else(|| SetUpError::UnsupportedType(spec.source_name()))
}

/// Returns the plugin of a Pod's volume, if its files come from the API.
pub(super) fn find_files_plugin(volume: &Volume) -> Option<&'static dyn FilesPlugin> {
    find_by_spec(VolumeSpec::Volume(volume)).ok()?.files()
}
