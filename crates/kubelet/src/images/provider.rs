//! Credentials from programs of the administrator (upstream's `pkg/credentialprovider/plugin`; seed 004, "Kubelet
//! credential provider for authenticated image pulls").

mod cache;
mod config;
mod exec;

use super::keyring::{Credential, DockerConfig, Keyring, matches};
use cache::Cache;
pub use config::CredentialProviderError;
use config::ProviderConfig;
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

/// The programs that know credentials, as `--image-credential-provider-config` lists them.
#[derive(Debug, Default)]
pub struct CredentialProviders {
    providers: Vec<Provider>,
}

/// An answer that several may wait for.
type Flight = Shared<BoxFuture<'static, Result<Arc<Answer>, String>>>;

struct Provider {
    config: Arc<ProviderConfig>,
    program: PathBuf,
    cache: Mutex<Cache>,
    /// Programs that run, by image: nobody asks for what somebody else is asking for.
    flights: Mutex<HashMap<String, Flight>>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("program", &self.program).finish_non_exhaustive()
    }
}

/// What a program has answered.
#[derive(Debug)]
struct Answer {
    auth: DockerConfig,
    kind: CacheKeyType,
    /// How long it holds; `None` leaves it to the configuration.
    duration: Option<Duration>,
}

/// For which other images an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum CacheKeyType {
    /// None.
    Image,
    /// Those of the same registry.
    Registry,
    /// All.
    Global,
}

impl CredentialProviders {
    /// Reads the configuration, a file or a directory of files, and looks for the programs.
    ///
    /// # Errors
    /// When a file makes no sense, or a program is not there.
    pub fn load(config: &Path, bin_dir: &Path) -> Result<Self, CredentialProviderError> {
        let mut providers = Vec::new();
        for config in config::read(config, bin_dir)? {
            let program = config::find(bin_dir, &config.name)?;
            let (cache, flights) = (Mutex::default(), Mutex::default());
            providers.push(Provider { config: Arc::new(config), program, cache, flights });
        }
        Ok(Self { providers })
    }

    /// The node's credentials for a repository, those it `has` among them, in the order in which they are tried. What a
    /// program says wrong is logged.
    pub(crate) async fn lookup(
        &self,
        repository: &str,
        has: DockerConfig,
        now: impl Fn() -> Timestamp,
    ) -> Vec<Credential> {
        let mut keyring = Keyring::default();
        keyring.add(None, has);
        for provider in &self.providers {
            if provider.config.match_images.iter().any(|pattern| matches(pattern, repository)) {
                match provider.ask(repository, &now).await {
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

impl Provider {
    async fn ask(&self, image: &str, now: impl Fn() -> Timestamp) -> Result<DockerConfig, String> {
        if let Some(known) = self.cache.lock().get(image, now()) {
            return Ok(known);
        }
        let flight = {
            let mut flights = self.flights.lock();
            let start = || {
                let (config, program, image) = (Arc::clone(&self.config), self.program.clone(), image.to_owned());
                async move { exec::run(&config, &program, &image).await.map(Arc::new) }.boxed().shared()
            };
            flights.entry(image.to_owned()).or_insert_with(start).clone()
        };
        let answer = flight.await;
        self.flights.lock().remove(image);
        let answer = answer?;
        let duration = answer.duration.or(self.config.default_cache_duration).unwrap_or_default();
        if !duration.is_zero() {
            let now = now();
            self.cache.lock().put(answer.kind, image, answer.auth.clone(), now, now + duration);
        }
        Ok(answer.auth.clone())
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
