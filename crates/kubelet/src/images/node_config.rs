//! The node's own credentials: the `config.json` of Docker, or the older `.dockercfg` (upstream's
//! `pkg/credentialprovider/config.go`; seed 004, "a per-node .docker/config.json").

use super::{keyring::DockerConfig, pull_secrets::ConfigJson};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// Where the files may be.
#[derive(Debug, Default)]
pub(crate) struct NodeConfig {
    files: Vec<File>,
}

#[derive(Debug)]
enum File {
    ConfigJson(PathBuf),
    DockerCfg(PathBuf),
}

impl NodeConfig {
    /// The kubelet's root directory comes before the home of who runs it, and `config.json` before `.dockercfg`.
    pub(crate) fn new(root_dir: &Path, home: Option<&Path>) -> Self {
        let new = [root_dir.join("config.json")].into_iter().chain(home.map(|h| h.join(".docker/config.json")));
        let old = [Some(root_dir), home].into_iter().flatten().map(|dir| dir.join(".dockercfg"));
        Self { files: new.map(File::ConfigJson).chain(old.map(File::DockerCfg)).collect() }
    }

    /// What the first file says that can be read. It is read for every pull: what an administrator changes counts.
    pub(crate) fn read(&self) -> DockerConfig {
        self.files.iter().find_map(File::read).unwrap_or_default()
    }
}

impl File {
    fn read(&self) -> Option<DockerConfig> {
        let (Self::ConfigJson(path) | Self::DockerCfg(path)) = self;
        let bytes = match crate::node_file::read(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "credentials of the node cannot be read");
                }
                return None;
            }
        };
        let parsed = match self {
            Self::ConfigJson(_) => serde_json::from_slice::<ConfigJson>(&bytes).map(|c| c.auths.unwrap_or_default()),
            Self::DockerCfg(_) => serde_json::from_slice(&bytes),
        };
        parsed.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "is no docker config")).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    /// Whose credentials are taken when these files are there.
    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<&str>) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let config = NodeConfig::new(&dir.path().join("kubelet"), Some(&dir.path().join("home")));
        let user = config.read().remove("r.io").map(|login| login.username);
        assert_eq!(user.as_deref(), expected, "{files:?}");
    }

    #[test]
    fn the_first_file_that_makes_sense_counts() {
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
