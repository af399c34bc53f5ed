//! Tests of whole specifications.

mod properties;
mod whole;

use crate::{
    CapabilitySet, ContainerContext, DeviceSource, Error, HostInfo, ImageConfig, MountSource, PodFiles, PodNamespaces,
    Spec, UserDatabase, container_spec, encode,
};
use runtime::{ContainerConfig, SandboxConfig};
use serde_json::Value;
use std::{collections::BTreeMap, path::PathBuf};

/// All inputs of a translation, with an owner.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) config: ContainerConfig,
    pub(crate) sandbox: SandboxConfig,
    pub(crate) image: ImageConfig,
    pub(crate) passwd: Vec<u8>,
    pub(crate) group: Vec<u8>,
    pub(crate) namespaces: PodNamespaces,
    pub(crate) files: PodFiles,
    pub(crate) mounts: Vec<MountSource>,
    pub(crate) volumes: BTreeMap<String, PathBuf>,
    pub(crate) devices: Vec<DeviceSource>,
    pub(crate) recursive_read_only: bool,
    pub(crate) seccomp_profile: Result<Vec<u8>, String>,
    pub(crate) host: HostInfo,
}

impl Default for Input {
    /// Returns a Pod that may have privileged containers, and an image with the command `sh`.
    fn default() -> Self {
        let host = HostInfo {
            hostname: "node".to_owned(),
            architecture: crate::Architecture::X86_64,
            kernel: (6, 1),
            capabilities: CapabilitySet::from_bits(u64::MAX),
            seccomp: true,
            ..HostInfo::default()
        };
        Self {
            config: ContainerConfig::default(),
            sandbox: SandboxConfig { privileged: true, ..SandboxConfig::default() },
            image: ImageConfig { cmd: vec!["sh".to_owned()], ..ImageConfig::default() },
            passwd: b"root:x:0:0:root:/root:/bin/sh\n".to_vec(),
            group: b"root:x:0:\n".to_vec(),
            namespaces: PodNamespaces::default(),
            files: PodFiles::default(),
            mounts: Vec::new(),
            volumes: BTreeMap::new(),
            devices: Vec::new(),
            recursive_read_only: true,
            seccomp_profile: Err("No such file or directory".to_owned()),
            host,
        }
    }
}

impl Input {
    pub(crate) fn context(&self) -> ContainerContext<'_> {
        ContainerContext {
            id: "c1",
            sandbox_id: "s1",
            config: &self.config,
            sandbox: &self.sandbox,
            image: &self.image,
            users: UserDatabase { passwd: Some(&self.passwd), group: Some(&self.group) },
            namespaces: &self.namespaces,
            files: &self.files,
            mounts: &self.mounts,
            volumes: &self.volumes,
            devices: &self.devices,
            recursive_read_only: self.recursive_read_only,
            seccomp_profile: self.seccomp_profile.as_deref().map_err(String::as_str),
            apparmor: None,
        }
    }

    pub(crate) fn spec(&self) -> Result<Spec, Error> {
        container_spec(&self.context(), &self.host)
    }

    /// Returns the JSON of the specification.
    pub(crate) fn tree(&self) -> Value {
        serde_json::from_slice(&encode(&self.spec().unwrap()).unwrap()).unwrap()
    }
}
