//! Credential provider plugins (upstream's `pkg/credentialprovider/plugin`; documentation page "Configure a kubelet image
//! credential provider").

mod cache;
mod config;
mod exec;

use super::keyring::{Credential, DockerConfig, Keyring, urls_match};
use cache::ResponseCache;
pub use config::CredentialProviderError;
use config::ProviderConfig;
use exec::PluginError;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use jiff::Timestamp;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Credential provider plugins of `--image-credential-provider-config`.
#[derive(Debug, Default)]
pub struct CredentialProviders {
    providers: Vec<PluginProvider>,
}

/// Plugin response that concurrent requests share.
type SharedResponse = Shared<BoxFuture<'static, Result<Arc<ProviderResponse>, PluginError>>>;

struct PluginProvider {
    config: Arc<ProviderConfig>,
    plugin: PathBuf,
    cache: Mutex<ResponseCache>,
    /// Running plugins by image, so that concurrent requests for an image share one.
    in_flight: Mutex<HashMap<String, SharedResponse>>,
}

impl std::fmt::Debug for PluginProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("program", &self.plugin).finish_non_exhaustive()
    }
}

/// Response of a plugin.
#[derive(Debug)]
struct ProviderResponse {
    auth: DockerConfig,
    kind: CacheKeyType,
    /// Cache duration; `None` for the configured default.
    duration: Option<Duration>,
}

/// Images that a cached response applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CacheKeyType {
    /// The same image.
    Image,
    /// Images of the same registry.
    Registry,
    /// All images.
    Global,
}

impl CredentialProviders {
    /// Reads the configuration, a file or a directory of files, and finds the plugins.
    ///
    /// # Errors
    /// Fails if a file is invalid, or a plugin is missing.
    pub fn load(config: &Path, bin_dir: &Path) -> Result<Self, CredentialProviderError> {
        let mut providers = Vec::new();
        for config in config::read(config, bin_dir)? {
            let plugin = config::find_plugin(bin_dir, &config.name)?;
            let (cache, in_flight) = (Mutex::default(), Mutex::default());
            providers.push(PluginProvider { config: Arc::new(config), plugin, cache, in_flight });
        }
        Ok(Self { providers })
    }

    /// Returns the node's credentials for a repository, including `node_config`, in the order in which they are tried. Failures of
    /// plugins are logged.
    pub(crate) async fn lookup(
        &self,
        repository: &str,
        node_config: DockerConfig,
        now: impl Fn() -> Timestamp,
    ) -> Vec<Credential> {
        let mut keyring = Keyring::default();
        keyring.add(None, node_config);
        for provider in &self.providers {
            if provider.config.match_images.iter().any(|pattern| urls_match(pattern, repository)) {
                match provider.credentials(repository, &now).await {
                    Ok(auth) => keyring.add(None, auth),
                    Err(error) => {
                        tracing::error!(%error, "failed getting credential from external registry credential provider");
                    }
                }
            }
        }
        keyring.lookup(repository)
    }
}

impl PluginProvider {
    async fn credentials(&self, image: &str, now: impl Fn() -> Timestamp) -> Result<DockerConfig, PluginError> {
        if let Some(known) = self.cache.lock().get(image, now()) {
            return Ok(known);
        }
        let shared_response = {
            let mut in_flight = self.in_flight.lock();
            let start = || {
                let (config, plugin, image) = (Arc::clone(&self.config), self.plugin.clone(), image.to_owned());
                async move { exec::run(&config, &plugin, &image).await.map(Arc::new) }.boxed().shared()
            };
            in_flight.entry(image.to_owned()).or_insert_with(start).clone()
        };
        let response = shared_response.await;
        self.in_flight.lock().remove(image);
        let response = response?;
        let duration = response.duration.or(self.config.default_cache_duration).unwrap_or_default();
        if !duration.is_zero() {
            let now = now();
            self.cache.lock().put(response.kind, image, response.auth.clone(), now, now + duration);
        }
        Ok(response.auth.clone())
    }
}

#[cfg(test)]
mod tests;
