//! The configuration, as it was decoded. Keys are wiped from memory when they are dropped, and have no `Debug`.

use thiserror::Error;
use zeroize::Zeroizing;

/// Why a configuration is refused. The text never holds keys.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// There is nothing in it.
    #[error("the configuration is empty")]
    Empty,
    /// It is no YAML, or of another kind, or has fields or types that the kind has not.
    #[error("{0}")]
    Decode(String),
    /// Its values are refused.
    #[error("{0}")]
    Invalid(String),
}

/// `EncryptionConfiguration`.
pub(crate) struct Configuration {
    pub(crate) resources: Vec<ResourceConfiguration>,
}

/// Resources that are encrypted alike.
pub(crate) struct ResourceConfiguration {
    pub(crate) resources: Vec<String>,
    pub(crate) providers: Vec<ProviderConfiguration>,
}

/// One element of a list of providers: one of its fields should be set.
#[derive(Default)]
pub(crate) struct ProviderConfiguration {
    pub(crate) kms: bool,
    pub(crate) aesgcm: Option<Vec<KeyConfiguration>>,
    pub(crate) aescbc: Option<Vec<KeyConfiguration>>,
    pub(crate) secretbox: Option<Vec<KeyConfiguration>>,
    pub(crate) identity: bool,
}

impl ProviderConfiguration {
    /// The fields that are set.
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

/// A key.
pub(crate) struct KeyConfiguration {
    pub(crate) name: String,
    /// In base64.
    pub(crate) secret: Zeroizing<String>,
}
