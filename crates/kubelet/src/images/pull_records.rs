//! Image pull records: which images this kubelet pulled with which credentials (KEP-2535; upstream's
//! `pkg/kubelet/images/pullmanager`).
//!
//! There is a file for each pulled image and for each running pull, written before the pull. An image with an unreadable
//! record must be pulled again.

use super::{
    keyring::{Credential, SecretCoordinates},
    verification::VerificationPolicy,
};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// Maximum number of Secrets in a record that a check without a pull may add to (upstream's limit).
const MAX_SECRETS: usize = 100;

/// Credentials that have pulled an image (`ImagePullCredentials`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ImagePullCredentials {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<ImagePullSecret>,
    /// Pulled anonymously or with credentials of the node: usable by all its Pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

/// Secret and hash of its credentials (`ImagePullSecret`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImagePullSecret {
    #[serde(flatten)]
    id: SecretCoordinates,
    credential_hash: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImagePulledRecord {
    kind: String,
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    /// Credentials by repository.
    #[serde(default)]
    credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImagePullIntent {
    kind: String,
    api_version: String,
    image: String,
    /// The image of that name that was present when the pull started. It stays usable if the pull is interrupted; upstream has
    /// no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    present: Option<String>,
}

/// Image pull records on disk.
#[derive(Debug)]
pub(crate) struct PullRecords {
    pulling: PathBuf,
    pulled: PathBuf,
    /// Number of running pulls by image; locked while files change.
    running_pulls: Mutex<BTreeMap<String, u32>>,
}

/// Name of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageName<'a> {
    /// Full name with registry and tag or digest.
    pub(crate) image: &'a str,
    /// Name without tag and digest.
    pub(crate) repository: &'a str,
}

impl PullRecords {
    pub(crate) fn new(root: &Path) -> Self {
        let (pulling, pulled) = (root.join("pulling"), root.join("pulled"));
        Self { pulling, pulled, running_pulls: Mutex::default() }
    }

    /// Records the intent to pull an image (`RecordPullIntent`); `present` is the present image of that name.
    pub(crate) fn record_pull_intent(&self, image: &str, present: Option<String>) -> io::Result<()> {
        let mut running_pulls = self.running_pulls.lock();
        // An image that is present during another pull may have been pulled by it.
        if !running_pulls.contains_key(image) {
            let (kind, api_version) = ("ImagePullIntent".to_owned(), API_VERSION.to_owned());
            let intent = ImagePullIntent { kind, api_version, image: image.to_owned(), present };
            write(&self.pulling, image, &intent)?;
        }
        *running_pulls.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Records a failed pull (`RecordImagePullFailed`).
    pub(crate) fn record_pull_failed(&self, image: &str) -> io::Result<()> {
        self.remove_intent(&mut self.running_pulls.lock(), image)
    }

    /// Records a pulled image and its credentials (`RecordImagePulled`). If the record cannot be written, the intent remains,
    /// so that the image still counts as pulled by this kubelet.
    pub(crate) fn record_pulled(
        &self,
        name: ImageName<'_>,
        image_ref: &str,
        credential: Option<&Credential>,
        now: Timestamp,
    ) -> io::Result<()> {
        let mut running_pulls = self.running_pulls.lock();
        self.update_record(name.repository, image_ref, Some(pull_credentials(credential)), now)?;
        self.remove_intent(&mut running_pulls, name.image)
    }

    /// Returns whether a Pod may use a present image without a pull; `credentials` are those of its pull Secrets.
    pub(crate) fn may_use(
        &self,
        name: ImageName<'_>,
        image_ref: &str,
        verification: &VerificationPolicy,
        credentials: &[Credential],
        now: Timestamp,
    ) -> io::Result<bool> {
        let _guard = self.running_pulls.lock();
        let record: Option<ImagePulledRecord> = read(&self.pulled, image_ref)?;
        let intent: Option<ImagePullIntent> = read(&self.pulling, name.image)?;
        let was_pulled_here =
            record.is_some() || intent.is_some_and(|intent| intent.present.as_deref() != Some(image_ref));
        if !verification.is_required(name.repository, was_pulled_here) {
            return Ok(true);
        }
        let Some(known) = record.and_then(|mut r| r.credential_mapping.remove(name.repository)) else {
            return Ok(false);
        };
        if known.node_pods_accessible {
            return Ok(true);
        }
        let Some((secret, added)) = credentials.iter().find_map(|c| known.find(c)) else { return Ok(false) };
        if added && known.kubernetes_secrets.len() < MAX_SECRETS {
            let added = ImagePullCredentials { kubernetes_secrets: vec![secret], node_pods_accessible: false };
            self.update_record(name.repository, image_ref, Some(added), now)?;
        }
        Ok(true)
    }

    /// Returns whether there are pull intents, including those of an earlier kubelet.
    pub(crate) fn has_pull_intents(&self) -> bool {
        fs::read_dir(&self.pulling).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Resolves pull intents of an earlier kubelet into records without credentials: `images` are the present images by
    /// reference, with all their names.
    pub(crate) fn resolve_pull_intents(&self, images: &[(String, Vec<String>)], now: Timestamp) -> io::Result<()> {
        let mut running_pulls = self.running_pulls.lock();
        for (_, intent) in read_all::<ImagePullIntent>(&self.pulling)? {
            let repository = super::reference::Reference::parse(&intent.image).map(|r| r.repository);
            let found = images.iter().find(|(_, names)| names.contains(&intent.image));
            if let (Some((image_ref, _)), Ok(repository)) = (found, repository) {
                if intent.present.as_ref() != Some(image_ref) {
                    self.update_record(&repository, image_ref, None, now)?;
                }
                self.remove_intent(&mut running_pulls, &intent.image)?;
            }
        }
        Ok(())
    }

    /// Removes records of missing images that are older than `until` (`PruneUnknownRecords`).
    pub(crate) fn prune_unknown_records(&self, present: &HashSet<String>, until: Timestamp) -> io::Result<()> {
        let _guard = self.running_pulls.lock();
        for (path, record) in read_all::<ImagePulledRecord>(&self.pulled)? {
            if record.last_updated_time < until && !present.contains(&record.image_ref) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Updates the record of an image if it changed; an unreadable record is replaced (`writePulledRecordIfChanged`).
    fn update_record(
        &self,
        repository: &str,
        image_ref: &str,
        added: Option<ImagePullCredentials>,
        now: Timestamp,
    ) -> io::Result<()> {
        let known = read::<ImagePulledRecord>(&self.pulled, image_ref).unwrap_or_else(|error| {
            tracing::error!(%error, image_ref, "failed to read image pull record, replacing it");
            None
        });
        let new = known.is_none();
        let mut record = known.unwrap_or_else(|| ImagePulledRecord {
            kind: "ImagePulledRecord".to_owned(),
            api_version: API_VERSION.to_owned(),
            last_updated_time: now,
            image_ref: image_ref.to_owned(),
            credential_mapping: BTreeMap::new(),
        });
        let changed = added.is_some_and(|added| match record.credential_mapping.get_mut(repository) {
            Some(pullers) => pullers.merge(added),
            None => record.credential_mapping.insert(repository.to_owned(), added).is_none(),
        });
        if !new && !changed {
            return Ok(());
        }
        record.last_updated_time = now;
        write(&self.pulled, image_ref, &record)
    }

    fn remove_intent(&self, running_pulls: &mut BTreeMap<String, u32>, image: &str) -> io::Result<()> {
        match running_pulls.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                remove(&self.pulling, image)?;
                running_pulls.remove(image);
            }
        }
        Ok(())
    }
}

fn pull_credentials(credential: Option<&Credential>) -> ImagePullCredentials {
    match credential.and_then(|c| Some((c, c.source.clone()?))) {
        Some((credential, id)) => {
            let secret = ImagePullSecret { id, credential_hash: credential.hash() };
            ImagePullCredentials { kubernetes_secrets: vec![secret], node_pods_accessible: false }
        }
        None => ImagePullCredentials { kubernetes_secrets: Vec::new(), node_pods_accessible: true },
    }
}

impl ImagePullCredentials {
    /// Finds the credentials of a Secret: the same credentials in any Secret, or the same Secret with new credentials. Returns
    /// the Secret, and whether it must be added.
    fn find(&self, credential: &Credential) -> Option<(ImagePullSecret, bool)> {
        let secret = ImagePullSecret { id: credential.source.clone()?, credential_hash: credential.hash() };
        let same = |known: &&ImagePullSecret| known.credential_hash == secret.credential_hash || known.id == secret.id;
        self.kubernetes_secrets.iter().any(|known| same(&known)).then(|| {
            let added = !self.kubernetes_secrets.contains(&secret);
            (secret, added)
        })
    }

    /// Adds credentials; returns whether something changed.
    fn merge(&mut self, added: Self) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        let old_records = self.clone();
        if added.node_pods_accessible {
            *self = added;
        } else {
            for secret in added.kubernetes_secrets {
                self.kubernetes_secrets.retain(|known| known.id != secret.id);
                self.kubernetes_secrets.push(secret);
            }
            self.kubernetes_secrets.sort_by(|a, b| a.id.cmp(&b.id));
        }
        *self != old_records
    }
}

fn path(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("sha256-{}", HEXLOWER.encode(&Sha256::digest(key))))
}

fn write(dir: &Path, key: &str, record: &impl Serialize) -> io::Result<()> {
    files::create_private_dir_all(dir)?;
    files::replace_private(&path(dir, key), &serde_json::to_vec(record)?)
}

fn remove(dir: &Path, key: &str) -> io::Result<()> {
    match fs::remove_file(path(dir, key)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(dir: &Path, key: &str) -> io::Result<Option<T>> {
    match crate::host_file::read(path(dir, key)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns all records of a directory; unreadable ones are logged and skipped.
fn read_all<T: DeserializeOwned>(dir: &Path) -> io::Result<Vec<(PathBuf, T)>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // Unfinished files have an extension.
        if path.extension().is_some() {
            continue;
        }
        let text = crate::host_file::read(&path)?;
        match serde_json::from_slice(&text) {
            Ok(record) => found.push((path, record)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "failed to read image pull record"),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
