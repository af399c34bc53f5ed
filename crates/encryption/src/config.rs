//! Decoded `EncryptionConfiguration`. Keys are zeroized on drop, and do not implement `Debug`.

use thiserror::Error;
use zeroize::Zeroizing;

/// Error of a rejected configuration. The text never contains keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// The configuration is empty.
    #[error("the configuration is empty")]
    Empty,
    /// It is not YAML, has another kind, or has unknown fields or wrong types.
    #[error("{0}")]
    Decode(String),
    /// It has invalid values.
    #[error("{0}")]
    Invalid(String),
}

/// `EncryptionConfiguration`.
pub(crate) struct Configuration {
    pub(crate) resources: Vec<ResourceConfiguration>,
}

/// `ResourceConfiguration`: resources and their providers.
pub(crate) struct ResourceConfiguration {
    pub(crate) resources: Vec<String>,
    pub(crate) providers: Vec<ProviderConfiguration>,
}

/// `ProviderConfiguration`: exactly one field should be set.
#[derive(Default)]
pub(crate) struct ProviderConfiguration {
    pub(crate) kms: bool,
    pub(crate) aesgcm: Option<Vec<KeyConfiguration>>,
    pub(crate) aescbc: Option<Vec<KeyConfiguration>>,
    pub(crate) secretbox: Option<Vec<KeyConfiguration>>,
    pub(crate) identity: bool,
}

impl ProviderConfiguration {
    /// Returns the names of the fields that are set.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let fields = [
            ("kms", self.kms),
            ("aesgcm", self.aesgcm.is_some()),
            ("aescbc", self.aescbc.is_some()),
            ("secretbox", self.secretbox.is_some()),
            ("identity", self.identity),
        ];
        fields.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
    }
}

/// `Key`: name and secret.
pub(crate) struct KeyConfiguration {
    pub(crate) name: String,
    /// Secret, encoded in base64.
    pub(crate) secret: Zeroizing<String>,
}
