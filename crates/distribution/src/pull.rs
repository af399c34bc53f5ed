//! Pulls of images.

use crate::{
    BlobStore, Digest, Platform, PullError, PullErrorKind, Reference, Timeouts,
    authorizer::Authorizer,
    connector::Network,
    endpoint::{Content, Endpoint, Fetched, digest_mismatch},
    host_client::HostClient,
    hosts::registry_hosts,
    manifest::{Blob, Document, ImageManifest, MAX_INDEX_DEPTH, MAX_MANIFEST_SIZE, check_platform, parse, select},
    partial_blob::PartialBlob,
    reference::Version,
    transfer::{Outcome, Transfer, reference_of},
};
use futures::{TryStreamExt, stream};
use runtime::RegistryAuth;
use std::{io, path::PathBuf, sync::Arc};

/// Layers that are downloaded at the same time, as Docker and containerd.
const PARALLEL_LAYERS: usize = 3;
/// Default limit for the compressed size of an image.
const DEFAULT_MAX_SIZE: u64 = 64 << 30;
/// Message of a registry without hosts that may map tags to digests, as containerd's.
const NO_HOSTS: &str = "no resolve hosts: not found";

/// Options of a pull.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Platform whose variant of an image is pulled.
    pub platform: Platform,
    /// Credentials, which are tried in this order; none for an anonymous pull.
    pub credentials: Vec<RegistryAuth>,
    /// Directories with `HOST/hosts.toml`, for example `/etc/containerd/certs.d`.
    pub certs_dirs: Vec<PathBuf>,
    /// Maximum size of config and layers in bytes, as they are transferred: not more than the disk has space for.
    pub max_size: u64,
    /// Deadlines and delays.
    pub timeouts: Timeouts,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            platform: Platform::default(),
            credentials: Vec::new(),
            certs_dirs: Vec::new(),
            max_size: DEFAULT_MAX_SIZE,
            timeouts: Timeouts::default(),
        }
    }
}

/// Progress of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerProgress {
    /// Digest of the layer.
    pub digest: Digest,
    /// Bytes that are stored. It decreases if the registry cannot resume an interrupted download.
    pub received: u64,
    /// Size of the layer in bytes.
    pub size: u64,
}

/// Callback for the progress of layers. It must not block.
pub type Progress<'a> = &'a (dyn Fn(LayerProgress) + Send + Sync);

/// Pulled image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Normalized reference.
    pub name: Reference,
    /// Digest of the index or manifest that the reference names: the one of `repoDigests`.
    pub manifest_digest: Digest,
    /// Digest of the manifest for the platform.
    pub image_manifest_digest: Digest,
    /// Digest of the config.
    pub image_id: Digest,
}

/// Pulls an image into a blob store: its manifests, config and layers. Content that is there is not fetched again,
/// except for manifests. A dropped or failed pull keeps partial layers, and the next one resumes them. While another
/// process downloads a blob of the image, the pull waits for it, without a limit.
///
/// # Errors
/// If the image cannot be pulled with any of the credentials. The error has the kind of the last attempt, and all
/// messages.
pub async fn pull(
    reference: &str,
    options: &PullOptions,
    store: &Arc<dyn BlobStore>,
    progress: Progress<'_>,
) -> Result<Pulled, PullError> {
    pull_over(&Network::system(), reference, options, store, progress).await
}

/// Pulls an image over a network.
pub(crate) async fn pull_over(
    network: &Network,
    reference: &str,
    options: &PullOptions,
    store: &Arc<dyn BlobStore>,
    progress: Progress<'_>,
) -> Result<Pulled, PullError> {
    let name = Reference::parse(reference).map_err(|error| PullError::invalid_reference(reference, &error))?;
    let attempts = options.credentials.iter().map(Some).chain(options.credentials.is_empty().then_some(None));
    let mut errors = Vec::new();
    for auth in attempts {
        let attempt = async {
            let endpoints = endpoints(network, &name, options, auth).await?;
            let pull = Pull { name: &name, options, store, progress, endpoints };
            Box::pin(pull.run()).await
        };
        match attempt.await {
            Ok(pulled) => return Ok(pulled),
            Err(error) => {
                let error = error.context(&format!("failed to pull and unpack image \"{name}\""));
                // Registries hide repositories from users who may not read them.
                let is_denied = matches!(error.kind(), PullErrorKind::Unauthorized | PullErrorKind::NotFound);
                errors.push(error);
                if !is_denied {
                    break;
                }
            }
        }
    }
    let missing = || PullError::new(PullErrorKind::Unauthorized, "no credentials");
    Err(PullError::aggregate(errors).unwrap_or_else(missing))
}

/// Returns the repository at the registry and its mirrors, in the order of use.
async fn endpoints(
    network: &Network,
    name: &Reference,
    options: &PullOptions,
    auth: Option<&RegistryAuth>,
) -> Result<Vec<Endpoint>, PullError> {
    let (network, dirs, timeouts) = (network.clone(), options.certs_dirs.clone(), options.timeouts);
    let (name, auth) = (name.clone(), auth.cloned());
    let create = move || -> Result<Vec<Endpoint>, PullError> {
        let (domain, path) = (name.domain(), name.path());
        let hosts = registry_hosts(&dirs, domain)?;
        hosts
            .into_iter()
            .map(|host| {
                let namespace = form_urlencoded::byte_serialize(domain.as_bytes()).collect::<String>();
                let query = if host.is_proxy(domain) { format!("?ns={namespace}") } else { String::new() };
                let authorizer = Authorizer::new(&host, domain, path, auth.as_ref());
                let http = HostClient::new(&network, host, timeouts)?;
                Ok(Endpoint { http, authorizer, path: format!("/{path}"), query })
            })
            .collect()
    };
    tokio::task::spawn_blocking(create).await.map_err(|error| PullError::from(io::Error::other(error)))?
}

/// Pull with one set of credentials.
struct Pull<'a> {
    name: &'a Reference,
    options: &'a PullOptions,
    store: &'a Arc<dyn BlobStore>,
    progress: Progress<'a>,
    endpoints: Vec<Endpoint>,
}

impl Pull<'_> {
    async fn run(&self) -> Result<Pulled, PullError> {
        let resolved = self.resolve().await;
        let top = resolved.map_err(|e| e.context(&format!("failed to resolve reference \"{}\"", self.name)))?;
        let copy = |error: PullError| error.context("failed to copy");
        let manifest_digest = top.digest;
        let (image_manifest_digest, image) = self.image_manifest(top).await.map_err(copy)?;
        self.pull_config(&image, &image_manifest_digest).await.map_err(copy)?;
        // A stream that maps the layers would borrow them for every lifetime, which makes futures that are not `Send`.
        let layers: Vec<_> = image.layers.iter().map(|layer| Ok(self.pull_layer(layer))).collect();
        stream::iter(layers).try_buffer_unordered(PARALLEL_LAYERS).try_collect::<()>().await.map_err(copy)?;
        Ok(Pulled { name: self.name.clone(), manifest_digest, image_manifest_digest, image_id: image.config.digest })
    }

    /// Fetches the index or manifest that the reference names.
    async fn resolve(&self) -> Result<Fetched, PullError> {
        let version = self.name.version();
        let is_tag = matches!(version, Version::Tag(_));
        let content = Content::Manifest(version);
        let fetched = self.fetch(&content, "manifest", MAX_MANIFEST_SIZE, is_tag).await;
        fetched.map_err(|error| match error.kind() {
            PullErrorKind::NotFound => PullError::new(PullErrorKind::NotFound, format!("{}: not found", self.name)),
            _ => error,
        })
    }

    /// Stores the manifests, and returns that of the image for the platform.
    async fn image_manifest(&self, top: Fetched) -> Result<(Digest, ImageManifest), PullError> {
        let mut fetched = top;
        for _ in 0..MAX_INDEX_DEPTH {
            let Fetched { content, content_type, digest } = fetched;
            let document = parse(&content_type, &content, self.options.max_size)?;
            let child = match document {
                Document::Image(image) => {
                    self.store(digest, content).await?;
                    return Ok((digest, image));
                }
                Document::Index(entries) => select(&entries, &digest, &self.options.platform)?,
            };
            self.store(digest, content).await?;
            let version = Version::Digest(child.digest);
            fetched = self.fetch(&Content::Manifest(&version), "manifest", child.size, false).await?;
            check_size(&fetched, &child)?;
        }
        Err(PullError::new(PullErrorKind::InvalidManifest, "invalid manifest: too many nested indexes"))
    }

    /// Fetches the config, unless it is there, and checks its platform before it is stored.
    async fn pull_config(&self, image: &ImageManifest, manifest: &Digest) -> Result<(), PullError> {
        let config = &image.config;
        let (store, digest) = (Arc::clone(self.store), config.digest);
        let is_stored =
            tokio::task::spawn_blocking(move || store.contains(&digest)).await.map_err(io::Error::other)??;
        if !is_stored {
            let fetched = self.fetch(&Content::Blob(&config.digest), "config", config.size, false).await?;
            check_size(&fetched, config)?;
            check_platform(&fetched.content, manifest, &self.options.platform)?;
            self.store(config.digest, fetched.content).await?;
        }
        Ok(())
    }

    /// Fetches a manifest or a config from the first host that serves it. Only hosts that may map tags to digests are
    /// used if `is_tag`.
    async fn fetch(&self, content: &Content<'_>, name: &str, limit: u64, is_tag: bool) -> Result<Fetched, PullError> {
        let hosts = || self.endpoints.iter().filter(|e| e.http.host.can_pull && (e.http.host.can_resolve || !is_tag));
        let count = hosts().count();
        let mut first = None;
        for (index, endpoint) in hosts().enumerate() {
            match endpoint.fetch(content, name, limit, index + 1 == count).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => keep_first(&mut first, error),
            }
        }
        Err(first.unwrap_or_else(|| PullError::new(PullErrorKind::NotFound, NO_HOSTS)))
    }

    /// Stores a manifest or a config, whose digest is verified already.
    async fn store(&self, digest: Digest, content: Vec<u8>) -> Result<(), PullError> {
        let Some(mut blob) = PartialBlob::open(self.store, digest).await? else { return Ok(()) };
        if blob.offset() > 0 {
            blob = blob.truncate().await?;
        }
        let (blob, _) = blob.append(&content).await?;
        Ok(blob.commit().await?)
    }

    /// Downloads a layer, unless it is there.
    async fn pull_layer(&self, layer: &Blob) -> Result<(), PullError> {
        let hosts = || self.endpoints.iter().filter(|endpoint| endpoint.http.host.can_pull);
        let count = hosts().count();
        let (mut first, mut must_truncate) = (None, false);
        for (index, endpoint) in hosts().enumerate() {
            let is_last_host = index + 1 == count;
            let transfer = Transfer { endpoint, blob: layer, progress: self.progress, is_last_host };
            // Bytes of an earlier download, or of another host, may be wrong: then this host gets a chance from the
            // start.
            for _ in 0..2 {
                let Some(mut partial) = PartialBlob::open(self.store, layer.digest).await? else {
                    (self.progress)(LayerProgress { digest: layer.digest, received: layer.size, size: layer.size });
                    return Ok(());
                };
                if must_truncate && partial.offset() > 0 {
                    partial = partial.truncate().await?;
                }
                must_truncate = false;
                let (partial, is_whole) = match Box::pin(transfer.run(partial)).await? {
                    Outcome::Complete(partial, is_whole) => (partial, is_whole),
                    Outcome::Failed(error) => {
                        keep_first(&mut first, error);
                        break;
                    }
                };
                match partial.commit().await {
                    Ok(()) => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        must_truncate = true;
                        keep_first(&mut first, commit_error(&layer.digest, &error));
                        if is_whole {
                            break;
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Err(first.unwrap_or_else(|| PullError::new(PullErrorKind::NotFound, "no pull hosts: not found")))
    }
}

fn commit_error(digest: &Digest, error: &io::Error) -> PullError {
    let message = format!("failed commit on ref {:?}: {error}: failed precondition", reference_of(digest));
    PullError::new(PullErrorKind::DigestMismatch, message)
}

/// Checks the size of content with the right digest: the descriptor may be wrong.
fn check_size(fetched: &Fetched, expected: &Blob) -> Result<(), PullError> {
    if fetched.digest != expected.digest {
        return Err(digest_mismatch(&fetched.digest, &expected.digest));
    }
    let size = fetched.content.len() as u64;
    if size == expected.size {
        return Ok(());
    }
    let message =
        format!("{} failed size validation: {size} != {}: failed precondition", expected.digest, expected.size);
    Err(PullError::new(PullErrorKind::DigestMismatch, message))
}

/// Keeps the error of the host that came furthest, as containerd: of equal ones the first.
fn keep_first(first: &mut Option<PullError>, error: PullError) {
    let priority = |error: &PullError| match error.kind() {
        PullErrorKind::NameResolution
        | PullErrorKind::ConnectionRefused
        | PullErrorKind::Connection
        | PullErrorKind::Tls
        | PullErrorKind::Timeout => 1,
        PullErrorKind::NotFound => 2,
        _ => 3,
    };
    if first.as_ref().is_none_or(|first| priority(first) < priority(&error)) {
        *first = Some(error);
    }
}
