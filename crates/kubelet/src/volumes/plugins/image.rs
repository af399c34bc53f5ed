//! `image` volumes: the runtime mounts the image itself (KEP-4639). Before its container starts, the image is pulled like the
//! container's own (`lifecycle`).

use crate::volumes::{
    mount_error::SetUpError,
    plugin::{MountContext, MountTarget, Mounter, NewMounter, VolumePlugin, VolumeSpec},
};
use futures::{FutureExt, future::ready};

pub(super) struct ImagePlugin;

impl VolumePlugin for ImagePlugin {
    fn can_support(&self, spec: VolumeSpec<'_>) -> bool {
        spec.volume().is_some_and(|volume| volume.image.is_some())
    }

    fn new_mounter<'a>(&'a self, _: VolumeSpec<'a>, _: &'a mut MountContext<'_>) -> NewMounter<'a> {
        ready(Ok(Box::new(ImageMounter) as Box<dyn Mounter>)).boxed()
    }
}

struct ImageMounter;

impl Mounter for ImageMounter {
    fn set_up(&self, _: &MountTarget<'_>) -> Result<(), SetUpError> {
        Ok(())
    }
}
