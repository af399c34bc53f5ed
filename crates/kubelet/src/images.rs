//! Image manager: pulls, credentials, verification of access, and garbage collection.

pub(crate) mod gc;
mod gc_plan;
pub(crate) mod keyring;
mod node_docker_config;
pub(crate) mod provider;
mod pull_records;
pub(crate) mod pull_secrets;
pub(crate) mod puller;
pub(crate) mod reference;
pub(crate) mod verification;

use crate::{Options, blocking, clock::Clock};
use api::feature_gates::Gate;
use gc::DeleteUnusedRequests;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use keyring::Keyring;
use node_docker_config::NodeDockerConfig;
use provider::CredentialProviders;
use pull_records::{ImageName, PullRecords};
use pull_secrets::PullSecretError;
use puller::{PullError, PullResult, Puller};
use reference::Reference;
use runtime::{ImageSpec, Runtime};
use std::{collections::HashSet, io, path::Path, sync::Arc};
use tokio::sync::Notify;
use verification::VerificationPolicy;

/// Failure to pull an image, with the text of the container's status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImagePullError {
    /// A pull Secret is invalid.
    #[error(transparent)]
    Secret(#[from] PullSecretError),
    /// The pull could not be recorded, and was not started.
    #[error("Failed to record image pull intent for container image {image:?}: {source}")]
    RecordIntent { image: String, source: io::Error },
    /// All attempts failed.
    #[error(transparent)]
    Pull(#[from] PullError),
}

/// Image manager.
pub(crate) struct ImageManager {
    puller: Puller,
    providers: Arc<CredentialProviders>,
    node_docker_config: Arc<NodeDockerConfig>,
    records: Arc<PullRecords>,
    /// Image pull credentials verification; `None` if disabled.
    verification: Option<Arc<VerificationPolicy>>,
    clock: Clock,
    /// Notified when an image may have become unused.
    pub(crate) image_released: Notify,
    /// Requests to delete all unused images.
    pub(crate) delete_unused_requests: DeleteUnusedRequests,
}

impl ImageManager {
    pub(crate) fn new(options: &Options, records: &Path) -> Self {
        let config = &options.config.images;
        let verified = options.policy.gates.enabled(Gate::KubeletEnsureSecretPulledImages);
        // The configuration was validated when it was read; the default is the strictest policy.
        let verification = config.verification().unwrap_or(VerificationPolicy::Always);
        Self {
            puller: Puller::new(config, options.clock.clone()),
            providers: Arc::clone(&options.credential_providers),
            node_docker_config: Arc::new(NodeDockerConfig::new(&options.root_dir, options.home.as_deref())),
            records: Arc::new(PullRecords::new(records)),
            verification: verified.then(|| Arc::new(verification)),
            clock: options.clock.clone(),
            image_released: Notify::new(),
            delete_unused_requests: DeleteUnusedRequests::default(),
        }
    }

    /// Returns whether a Pod with these pull Secrets may use a present image. False if that cannot be determined.
    pub(crate) async fn may_use(&self, reference: &Reference, image_ref: &str, secrets: &[Arc<Secret>]) -> bool {
        let Some(verification) = self.verification.clone() else { return true };
        let mut keyring = Keyring::default();
        if let Err(error) = pull_secrets::add(&mut keyring, secrets) {
            tracing::warn!(%error, "failed to read image pull secrets");
        }
        let credentials = keyring.lookup(&reference.repository);
        let (records, now) = (Arc::clone(&self.records), self.clock.now());
        let (reference, image_ref) = (reference.clone(), image_ref.to_owned());
        let usable = blocking::run(move || {
            records.may_use(image_name(&reference), &image_ref, &verification, &credentials, now)
        });
        usable.await.unwrap_or_else(|error| {
            tracing::error!(%error, "unable to access cache records about image pulls");
            false
        })
    }

    /// Pulls an image with the credentials of these Secrets, then with those of the node.
    ///
    /// # Errors
    /// Fails with the error of the last attempt.
    pub(crate) async fn pull(
        &self,
        runtime: &dyn Runtime,
        image: &str,
        reference: &Reference,
        handler: &str,
        secrets: &[Arc<Secret>],
    ) -> Result<PullResult, ImagePullError> {
        let mut keyring = Keyring::default();
        pull_secrets::add(&mut keyring, secrets)?;
        let mut credentials = keyring.lookup(&reference.repository);
        let config = Arc::clone(&self.node_docker_config);
        let node_config = blocking::run_infallible(move || config.read()).await.unwrap_or_default();
        credentials.extend(self.providers.lookup(&reference.repository, node_config, || self.clock.now()).await);
        let spec = ImageSpec { image: &reference.image, runtime_handler: handler };
        if self.verification.is_none() {
            return Ok(self.puller.pull(runtime, spec, &credentials).await?);
        }
        let present = runtime.image(spec).await.ok().flatten().map(|image| image.id);
        let canonical = reference.canonical.clone();
        let started = self.record(move |records| records.record_pull_intent(&canonical, present)).await;
        started.map_err(|source| ImagePullError::RecordIntent { image: image.to_owned(), source })?;
        let result = self.puller.pull(runtime, spec, &credentials).await;
        let (reference, now) = (reference.clone(), self.clock.now());
        let recorded = match &result {
            Ok(pulled) => {
                let (image_ref, credential) = (pulled.image_ref.clone(), pulled.credential.clone());
                self.record(move |records| {
                    records.record_pulled(image_name(&reference), &image_ref, credential.as_ref(), now)
                })
                .await
            }
            Err(_) => self.record(move |records| records.record_pull_failed(&reference.canonical)).await,
        };
        if let Err(error) = recorded {
            tracing::error!(%error, image, "failed to record the result of an image pull");
        }
        Ok(result?)
    }

    /// Resolves pull intents of an earlier kubelet.
    pub(crate) async fn resolve_pull_intents(&self, runtime: &dyn Runtime) {
        // Without intents the runtime is not queried.
        if self.verification.is_none() || !self.records.has_pull_intents() {
            return;
        }
        let images = match runtime.images().await {
            Ok(images) => images,
            Err(error) => return tracing::error!(%error, "failed to list images"),
        };
        let names = |i: runtime::Image| (i.id, i.tags.into_iter().chain(i.digests).collect());
        let (images, now): (Vec<_>, _) = (images.into_iter().map(names).collect(), self.clock.now());
        if let Err(error) = self.record(move |records| records.resolve_pull_intents(&images, now)).await {
            tracing::error!(%error, "failed to read image pull records");
        }
    }

    /// Removes pull records of missing images, unless they were pulled after `until`.
    async fn prune_records(&self, present: HashSet<String>, until: Timestamp) {
        if let Err(error) = self.record(move |records| records.prune_unknown_records(&present, until)).await {
            tracing::warn!(%error, "failed to remove pull records of missing images");
        }
    }

    async fn record(&self, work: impl FnOnce(&PullRecords) -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let records = Arc::clone(&self.records);
        blocking::run(move || work(&records)).await
    }
}

fn image_name(reference: &Reference) -> ImageName<'_> {
    ImageName { image: &reference.canonical, repository: &reference.repository }
}
