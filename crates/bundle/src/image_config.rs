//! Configuration of an image (OCI image specification, `config.md`; Docker's is the same).

use crate::Error;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of an image's configuration in bytes, as of a manifest.
const MAX_BYTES: usize = 4 << 20;
/// Maximum number of volumes: each is a directory and a mount of every container.
const MAX_VOLUMES: usize = 256;

/// Part of an image's configuration that a container inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ImageConfig {
    /// User: `user`, `uid`, and either with `:group` or `:gid`. Empty: root.
    #[serde(deserialize_with = "null_is_default")]
    pub user: String,
    /// Environment, as `NAME=VALUE`.
    #[serde(deserialize_with = "null_is_default")]
    pub env: Vec<String>,
    /// Entry point.
    #[serde(deserialize_with = "null_is_default")]
    pub entrypoint: Vec<String>,
    /// Arguments of the entry point, or the command.
    #[serde(deserialize_with = "null_is_default")]
    pub cmd: Vec<String>,
    /// Working directory.
    #[serde(deserialize_with = "null_is_default")]
    pub working_dir: String,
    /// Paths of volumes.
    #[serde(deserialize_with = "keys")]
    pub volumes: BTreeSet<String>,
    /// Stop signal.
    #[serde(deserialize_with = "null_is_default")]
    pub stop_signal: String,
    /// Labels.
    #[serde(deserialize_with = "null_is_default")]
    pub labels: BTreeMap<String, String>,
}

impl ImageConfig {
    /// Parses an image's configuration: the blob that the manifest names.
    ///
    /// # Errors
    /// When it is larger than 4 MiB, or not valid.
    pub fn parse(blob: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Image {
            #[serde(default)]
            config: Option<ImageConfig>,
        }
        if blob.len() > MAX_BYTES {
            return Err(Error::ImageConfig(format!("{} bytes exceed {MAX_BYTES}", blob.len())));
        }
        let image: Image = serde_json::from_slice(blob).map_err(|e| Error::ImageConfig(e.to_string()))?;
        let config = image.config.unwrap_or_default();
        match config.volumes.len() {
            0..=MAX_VOLUMES => Ok(config),
            volumes => Err(Error::ImageConfig(format!("{volumes} volumes exceed {MAX_VOLUMES}"))),
        }
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let map: Option<BTreeMap<String, IgnoredAny>> = Option::deserialize(deserializer)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_read_with_nulls_and_unknown_fields() {
        let blob = br#"{"architecture": "amd64", "config": {"User": "app:1", "Env": ["A=1"], "Entrypoint": null,
            "Cmd": ["sh", "-c"], "WorkingDir": "/w", "Volumes": {"/data": {}, "cache": null}, "Labels": null,
            "StopSignal": "SIGINT", "Healthcheck": {"Test": []}}, "rootfs": {"type": "layers", "diff_ids": []}}"#;
        let config = ImageConfig::parse(blob).unwrap();
        let expected = ImageConfig {
            user: "app:1".to_owned(),
            env: vec!["A=1".to_owned()],
            cmd: vec!["sh".to_owned(), "-c".to_owned()],
            working_dir: "/w".to_owned(),
            volumes: ["/data", "cache"].map(str::to_owned).into(),
            stop_signal: "SIGINT".to_owned(),
            ..ImageConfig::default()
        };
        assert_eq!(config, expected);
        for empty in ["{}", r#"{"config": null}"#, r#"{"config": {}}"#] {
            assert_eq!(ImageConfig::parse(empty.as_bytes()), Ok(ImageConfig::default()));
        }
    }

    #[test]
    fn invalid_configs_are_errors() {
        for text in ["", "1", r#"{"config": {"Env": "A=1"}}"#, r#"{"config": {"Volumes": ["/a"]}}"#] {
            let error = ImageConfig::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("failed to parse the configuration of the image: "), "{error}");
        }
        let volumes = |count: u32| {
            let volumes: Vec<String> = (0..count).map(|number| format!(r#""/{number}": {{}}"#)).collect();
            ImageConfig::parse(format!(r#"{{"config": {{"Volumes": {{{}}}}}}}"#, volumes.join(",")).as_bytes())
        };
        assert_eq!(volumes(256).unwrap().volumes.len(), 256);
        assert!(volumes(257).unwrap_err().to_string().ends_with("257 volumes exceed 256"));
        let large = ImageConfig::parse(&vec![b' '; MAX_BYTES + 1]).unwrap_err().to_string();
        assert!(large.ends_with("4194305 bytes exceed 4194304"), "{large}");
    }
}
