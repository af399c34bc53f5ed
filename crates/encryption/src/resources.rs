//! Lookup of the providers of a resource.

use crate::{
    config::{ConfigError, Configuration},
    decode::decode,
    provider::{Provider, decrypt, display_prefix, read_unencrypted},
    validate::validate,
};
use std::{collections::BTreeMap, fmt, sync::Arc};
use store::{Key, StoredForm, TransformError, Transformer};

/// Resource and API group, each of which may be the wildcard `*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupResource<'a> {
    pub(crate) resource: &'a str,
    /// API group; empty for the core group.
    pub(crate) group: &'a str,
}

impl<'a> GroupResource<'a> {
    /// Parses `secrets`, `deployments.apps`, `*.`, `*.apps` or `*.*` (`ParseGroupResource`).
    pub(crate) fn parse(text: &'a str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Self { resource, group }
    }

    pub(crate) fn is_everything(self) -> bool {
        (self.resource, self.group) == ("*", "*")
    }

    /// Returns the rules that match the resource, most specific first.
    fn rules(self) -> [String; 3] {
        let everything = Self { resource: "*", group: "*" };
        [self, Self { resource: "*", ..self }, everything].map(|rule| rule.to_string())
    }
}

/// Formats the name as in the configuration.
impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.resource, self.group) {
            ("*", "") => f.write_str("*."),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

/// Encrypts objects according to a configuration. Without one, objects are stored unencrypted, and encrypted objects cannot
/// be read.
#[derive(Default)]
pub struct Encryption {
    /// Providers of each rule. The first one encrypts.
    rules: BTreeMap<String, Vec<Arc<Provider>>>,
}

/// Omits the keys.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("rules", &self.rules.keys()).finish_non_exhaustive()
    }
}

impl Encryption {
    /// Parses and validates an `EncryptionConfiguration` in YAML or JSON.
    ///
    /// # Errors
    ///
    /// If it cannot be decoded or is invalid. The error contains no keys.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let configuration = decode(text)?;
        validate(&configuration)?;
        Self::new(&configuration)
    }

    fn new(configuration: &Configuration) -> Result<Self, ConfigError> {
        let mut rules: BTreeMap<String, Vec<Arc<Provider>>> = BTreeMap::new();
        for resource_configuration in &configuration.resources {
            let providers: Vec<_> =
                resource_configuration.providers.iter().map(|provider| Arc::new(Provider::new(provider))).collect();
            for name in &resource_configuration.resources {
                let [rule, wider @ ..] = GroupResource::parse(name).rules();
                if let Some(earlier) = wider.iter().find(|earlier| rules.contains_key(*earlier)) {
                    let text = format!("resource \"{rule}\" is masked by earlier rule \"{earlier}\"");
                    return Err(ConfigError::Invalid(text));
                }
                rules.entry(rule).or_default().extend(providers.iter().cloned());
            }
        }
        Ok(Self { rules })
    }

    fn providers(&self, key: &Key) -> Option<&[Arc<Provider>]> {
        if self.rules.is_empty() {
            return None;
        }
        let rules = GroupResource::parse(&key.resource).rules();
        rules.iter().find_map(|rule| self.rules.get(rule)).map(Vec::as_slice)
    }
}

impl Transformer for Encryption {
    fn is_active(&self) -> bool {
        self.rules.values().flatten().any(|provider| provider.encrypts())
    }

    fn transform_to_storage(&self, key: &Key, data: &[u8]) -> Result<Option<Vec<u8>>, TransformError> {
        match self.providers(key).and_then(<[_]>::first) {
            Some(provider) => provider.encrypt(data, &storage_key(key)),
            None => Ok(None),
        }
    }

    fn transform_from_storage(&self, key: &Key, stored: &[u8]) -> Result<StoredForm, TransformError> {
        let read = match self.providers(key) {
            Some(providers) => decrypt(providers, stored, &storage_key(key)),
            None => read_unencrypted(stored),
        };
        read.map_err(|TransformError(text)| match display_prefix(stored) {
            Some(prefix) => TransformError(format!("{text} (it is stored as {prefix})")),
            None => TransformError(text),
        })
    }
}

/// Returns the object's key in etcd, which is authenticated as additional data.
fn storage_key(key: &Key) -> String {
    format!("/registry/{key}")
}

#[cfg(test)]
mod tests;
