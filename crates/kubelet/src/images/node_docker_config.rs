//! Docker credentials of the node: `config.json` or the older `.dockercfg` (upstream's `pkg/credentialprovider/config.go`;
//! documentation page "Images", "Configuring nodes to authenticate to a private registry").

use super::{keyring::DockerConfig, pull_secrets::ConfigJson};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Candidate files.
#[derive(Debug, Default)]
pub(crate) struct NodeDockerConfig {
    files: Vec<DockerConfigFile>,
}

#[derive(Debug)]
enum DockerConfigFile {
    ConfigJson(PathBuf),
    DockerCfg(PathBuf),
}

impl NodeDockerConfig {
    /// Returns the candidates: the root directory before the home directory, `config.json` before `.dockercfg`.
    pub(crate) fn new(root_dir: &Path, home: Option<&Path>) -> Self {
        let new = [root_dir.join("config.json")].into_iter().chain(home.map(|h| h.join(".docker/config.json")));
        let old = [Some(root_dir), home].into_iter().flatten().map(|dir| dir.join(".dockercfg"));
        Self { files: new.map(DockerConfigFile::ConfigJson).chain(old.map(DockerConfigFile::DockerCfg)).collect() }
    }

    /// Reads the first valid file. It is read for every pull, so that changes are effective at once.
    pub(crate) fn read(&self) -> DockerConfig {
        self.files.iter().find_map(DockerConfigFile::read).unwrap_or_default()
    }
}

impl DockerConfigFile {
    fn read(&self) -> Option<DockerConfig> {
        let (Self::ConfigJson(path) | Self::DockerCfg(path)) = self;
        let bytes = match crate::host_file::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "failed to read docker config of the node");
                }
                return None;
            }
        };
        let parsed = match self {
            Self::ConfigJson(_) => serde_json::from_slice::<ConfigJson>(&bytes).map(|c| c.auths.unwrap_or_default()),
            Self::DockerCfg(_) => serde_json::from_slice(&bytes),
        };
        parsed.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "failed to parse docker config")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    /// Checks which of these files is used.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let config = NodeDockerConfig::new(&dir.path().join("kubelet"), Some(&dir.path().join("home")));
        let user = config.read().remove("r.io").map(|login| login.username);
        assert_eq!(user.as_deref(), expected, "{files:?}");
    }

    #[test]
    fn first_valid_docker_config_is_used() {
        let auths = |user: &str| json!({"r.io": {"username": user, "password": "p"}});
        let new = |user: &str| json!({"auths": auths(user), "credHelpers": {}}).to_string();
        let old = |user: &str| auths(user).to_string();
        check(&[], None);
        check(&[("home/.docker/config.json", &new("home"))], Some("home"));
        check(&[("home/.docker/config.json", &new("home")), ("kubelet/config.json", &new("root"))], Some("root"));
        check(&[("home/.docker/config.json", &new("home")), ("kubelet/config.json", "nonsense")], Some("home"));
        check(&[("kubelet/.dockercfg", &old("old")), ("home/.dockercfg", &old("older"))], Some("old"));
        check(&[("kubelet/.dockercfg", &old("old")), ("home/.docker/config.json", &new("new"))], Some("new"));
        check(&[("kubelet/config.json", "{}")], None);
    }
}
