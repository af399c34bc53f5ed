//! Images: who may use them, whose credentials pull them, how many at a time, and when they go.

pub(crate) mod collect;
mod gc;
pub(crate) mod keyring;
mod node_config;
pub(crate) mod provider;
pub(crate) mod pull_secrets;
pub(crate) mod puller;
mod records;
pub(crate) mod reference;
pub(crate) mod verification;

use crate::{Options, blocking, clock::Clock};
use api::feature_gates::Gate;
use collect::Wishes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use keyring::Keyring;
use node_config::NodeConfig;
use provider::CredentialProviders;
use puller::{Pulled, Puller};
use records::{Name, Records};
use reference::Reference;
use runtime::{ImageSpec, Runtime};
use std::{collections::HashSet, path::Path, sync::Arc};
use tokio::sync::Notify;
use verification::Verification;

/// What all Pods' images share.
pub(crate) struct Images {
    puller: Puller,
    providers: Arc<CredentialProviders>,
    node_config: Arc<NodeConfig>,
    records: Arc<Records>,
    /// `None` when whatever is there is for every Pod.
    verification: Option<Arc<Verification>>,
    clock: Clock,
    /// Rung when an image may have become unused.
    pub(crate) unused: Notify,
    /// Who waits for all unused images to go.
    pub(crate) wishes: Wishes,
}

impl Images {
    pub(crate) fn new(options: &Options, records: &Path) -> Self {
        let config = &options.config.images;
        let verified = options.policy.gates.enabled(Gate::KubeletEnsureSecretPulledImages);
        // A configuration that was read has been checked; of any other the strictest is taken.
        let verification = config.verification().unwrap_or(Verification::Always);
        Self {
            puller: Puller::new(config, options.clock.clone()),
            providers: Arc::clone(&options.credential_providers),
            node_config: Arc::new(NodeConfig::new(&options.root_dir, options.home.as_deref())),
            records: Arc::new(Records::new(records)),
            verification: verified.then(|| Arc::new(verification)),
            clock: options.clock.clone(),
            unused: Notify::new(),
            wishes: Wishes::default(),
        }
    }

    /// Whether a Pod with these Secrets may use an image that is there. What cannot be found out means no.
    pub(crate) async fn may_use(&self, reference: &Reference, image_ref: &str, secrets: &[Arc<Secret>]) -> bool {
        let Some(verification) = self.verification.clone() else { return true };
        let mut keyring = Keyring::default();
        if let Err(error) = pull_secrets::add(&mut keyring, secrets) {
            tracing::warn!(%error, "credentials for an image cannot be checked");
        }
        let credentials = keyring.lookup(&reference.repository);
        let (records, now) = (Arc::clone(&self.records), self.clock.now());
        let (reference, image_ref) = (reference.clone(), image_ref.to_owned());
        let usable = blocking::run(move || {
            let usable = records.may_use(name(&reference), &image_ref, &verification, &credentials, now);
            usable.map_err(|e| e.to_string())
        });
        usable.await.unwrap_or_else(|error| {
            tracing::error!(%error, "unable to access cache records about image pulls");
            false
        })
    }

    /// Pulls an image with the credentials of these Secrets, and then with the node's.
    ///
    /// # Errors
    /// Why it did not come.
    pub(crate) async fn pull(
        &self,
        runtime: &dyn Runtime,
        image: &str,
        reference: &Reference,
        handler: &str,
        secrets: &[Arc<Secret>],
    ) -> Result<Pulled, String> {
        let mut keyring = Keyring::default();
        pull_secrets::add(&mut keyring, secrets)?;
        let mut credentials = keyring.lookup(&reference.repository);
        let config = Arc::clone(&self.node_config);
        let has = blocking::run(move || Ok(config.read())).await.unwrap_or_default();
        credentials.extend(self.providers.lookup(&reference.repository, has, || self.clock.now()).await);
        let spec = ImageSpec { image: &reference.image, runtime_handler: handler };
        if self.verification.is_none() {
            return self.puller.pull(runtime, spec, &credentials).await;
        }
        let present = runtime.image(spec).await.ok().flatten().map(|image| image.id);
        let canonical = reference.canonical.clone();
        let begun = self.record(move |records| records.begin(&canonical, present)).await;
        begun.map_err(|e| format!("Failed to record image pull intent for container image {image:?}: {e}"))?;
        let result = self.puller.pull(runtime, spec, &credentials).await;
        let (reference, now) = (reference.clone(), self.clock.now());
        let noted = match &result {
            Ok(pulled) => {
                let (image_ref, with) = (pulled.image_ref.clone(), pulled.with.clone());
                self.record(move |records| records.pulled(name(&reference), &image_ref, with.as_ref(), now)).await
            }
            Err(_) => self.record(move |records| records.failed(&reference.canonical)).await,
        };
        if let Err(error) = noted {
            tracing::error!(%error, image, "the end of a pull could not be recorded");
        }
        result
    }

    /// Takes over what an earlier kubelet was pulling.
    pub(crate) async fn take_over(&self, runtime: &dyn Runtime) {
        // Mostly there is nothing, and the runtime need not be asked.
        if self.verification.is_none() || !self.records.any_under_way() {
            return;
        }
        let images = match runtime.images().await {
            Ok(images) => images,
            Err(error) => return tracing::error!(%error, "images cannot be listed"),
        };
        let names = |i: runtime::Image| (i.id, i.tags.into_iter().chain(i.digests).collect());
        let (images, now): (Vec<_>, _) = (images.into_iter().map(names).collect(), self.clock.now());
        if let Err(error) = self.record(move |records| records.adopt(&images, now)).await {
            tracing::error!(%error, "records of pulls cannot be read");
        }
    }

    /// Forgets who pulled images that are gone, unless that was after `until`.
    async fn forget_all_but(&self, present: HashSet<String>, until: Timestamp) {
        if let Err(error) = self.record(move |records| records.prune(&present, until)).await {
            tracing::warn!(%error, "records of images that are gone could not be removed");
        }
    }

    async fn record(&self, work: impl FnOnce(&Records) -> std::io::Result<()> + Send + 'static) -> Result<(), String> {
        let records = Arc::clone(&self.records);
        blocking::run(move || work(&records).map_err(|e| e.to_string())).await
    }
}

fn name(reference: &Reference) -> Name<'_> {
    Name { image: &reference.canonical, repository: &reference.repository }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
