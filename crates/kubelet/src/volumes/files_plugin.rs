//! Types of volumes whose files come from the API: a directory or tmpfs that the atomic writer fills.

use super::{
    atomic_writer, memory_limit,
    mount_error::SetUpError,
    nested,
    payload::{Payload, PayloadError},
    plugin::{MountContext, MountTarget, Mounter, NewMounter, VolumePlugin, VolumeSpec},
    plugins::empty_dir::EmptyDir,
};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Volume;
use std::{collections::BTreeSet, path::PathBuf};

/// Object that a volume refers to, in the namespace of its Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectReference<'a> {
    ConfigMap(&'a str),
    Secret(&'a str),
}

/// A type of volume whose files come from the API; also a [`VolumePlugin`].
pub(super) trait FilesPlugin: Sync {
    /// Returns whether the volume has this type.
    fn can_support(&self, volume: &Volume) -> bool;

    /// Returns the volume's current files.
    fn payload<'a>(
        &'a self,
        volume: &'a Volume,
        context: &'a mut MountContext<'_>,
    ) -> BoxFuture<'a, Result<Payload, PayloadError>>;

    /// Returns whether the files are in a tmpfs: those that may be secret.
    fn is_in_memory(&self) -> bool {
        true
    }

    /// Returns the objects that are watched while the volume is mounted.
    fn referenced_objects<'a>(&self, _volume: &'a Volume) -> Vec<ObjectReference<'a>> {
        Vec::new()
    }

    /// Returns whether the files contain service account tokens, which expire.
    fn has_tokens(&self, _volume: &Volume) -> bool {
        false
    }
}

impl<P: FilesPlugin> VolumePlugin for P {
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool {
        spec.volume().is_some_and(|volume| FilesPlugin::can_support(self, volume))
    }

    fn new_mounter<'a>(&'a self, spec: VolumeSpec<'a>, context: &'a mut MountContext<'_>) -> NewMounter<'a> {
        async move {
            let Some(volume) = spec.volume() else { return Err(SetUpError::UnsupportedType(spec.source_name())) };
            let payload = self.payload(volume, context).await?;
            let memory_limit = || memory_limit(context.shared, context.pod);
            let home = if self.is_in_memory() { EmptyDir::in_memory(memory_limit()) } else { EmptyDir::on_disk() };
            let nested = nested::nested_mount_points(context.pod, &volume.name);
            Ok(Box::new(FilesMounter { payload, home, nested }) as Box<dyn Mounter>)
        }
        .boxed()
    }

    fn files(&self) -> Option<&dyn FilesPlugin> {
        Some(self)
    }
}

struct FilesMounter {
    payload: Payload,
    home: EmptyDir,
    /// Mount points of volumes within this one.
    nested: BTreeSet<PathBuf>,
}

impl Mounter for FilesMounter {
    fn set_up(&self, target: &MountTarget<'_>) -> Result<(), SetUpError> {
        self.home.set_up(target)?;
        nested::create_mount_points(target.dir, &self.nested, target.group())?;
        Ok(atomic_writer::write(target.dir, &self.payload, target.group())?)
    }
}
