//! Types of volumes.

pub(super) mod empty_dir;
pub(super) mod host_path;
pub(super) mod local;
