//! Which images this kubelet pulled, and with whose credentials (KEP-2535; upstream's `pkg/kubelet/images/pullmanager`).
//!
//! One file for each image, and one for each pull that is under way, on disk before anything follows from it. What
//! cannot be read speaks against the use of an image, never for it.

use super::{
    hex,
    keyring::{Credential, SecretId},
    verification::Verification,
};
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
/// More Secrets than these are not remembered for one image while it is only looked at (upstream's limit).
const REMEMBERED: usize = 100;

/// Whose credentials have pulled an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pullers {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<PullSecret>,
    /// Nobody's, or the node's: every Pod of the node may use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

/// A Secret, and what stood in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PullSecret {
    #[serde(flatten)]
    id: SecretId,
    credential_hash: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImagePulledRecord {
    kind: String,
    api_version: String,
    last_updated_time: Timestamp,
    image_ref: String,
    /// By repository.
    #[serde(default)]
    credential_mapping: BTreeMap<String, Pullers>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImagePullIntent {
    kind: String,
    api_version: String,
    image: String,
    /// The image of that name that was there when the pull began. Upstream's has no such field: there a pull that is cut
    /// off, or under way, keeps Pods from an image that was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    present: Option<String>,
}

/// The records on disk.
#[derive(Debug)]
pub(crate) struct Records {
    pulling: PathBuf,
    pulled: PathBuf,
    /// Pulls under way, by image; held while files change.
    under_way: Mutex<BTreeMap<String, u32>>,
}

/// What an image is called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    /// Whole, with registry and tag or digest.
    pub(crate) image: &'a str,
    /// Without tag and digest.
    pub(crate) repository: &'a str,
}

impl Records {
    pub(crate) fn new(root: &Path) -> Self {
        let (pulling, pulled) = (root.join("pulling"), root.join("pulled"));
        Self { pulling, pulled, under_way: Mutex::default() }
    }

    /// Takes note that a pull begins; `present` is the image of that name that is there.
    pub(crate) fn begin(&self, image: &str, present: Option<String>) -> io::Result<()> {
        let mut under_way = self.under_way.lock();
        // What is there while another pull is under way may have come by that one.
        if !under_way.contains_key(image) {
            let (kind, api_version) = ("ImagePullIntent".to_owned(), API_VERSION.to_owned());
            let intent = ImagePullIntent { kind, api_version, image: image.to_owned(), present };
            write(&self.pulling, image, &intent)?;
        }
        *under_way.entry(image.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Takes note that it came to nothing.
    pub(crate) fn failed(&self, image: &str) -> io::Result<()> {
        self.end(&mut self.under_way.lock(), image)
    }

    /// Takes note of an image that came, with these credentials. When that cannot be written, the pull counts as under
    /// way, so that the image still counts as one that was pulled here.
    pub(crate) fn pulled(
        &self,
        name: Name<'_>,
        image_ref: &str,
        with: Option<&Credential>,
        now: Timestamp,
    ) -> io::Result<()> {
        let mut under_way = self.under_way.lock();
        self.note(name.repository, image_ref, Some(pullers(with)), now)?;
        self.end(&mut under_way, name.image)
    }

    /// Whether a Pod may use an image that is there without a pull; `credentials` are those of its own Secrets.
    pub(crate) fn may_use(
        &self,
        name: Name<'_>,
        image_ref: &str,
        verification: &Verification,
        credentials: &[Credential],
        now: Timestamp,
    ) -> io::Result<bool> {
        let _held = self.under_way.lock();
        let record: Option<ImagePulledRecord> = read(&self.pulled, image_ref)?;
        let under_way: Option<ImagePullIntent> = read(&self.pulling, name.image)?;
        let ours = record.is_some() || under_way.is_some_and(|intent| intent.present.as_deref() != Some(image_ref));
        if !verification.is_required(name.repository, ours) {
            return Ok(true);
        }
        let Some(known) = record.and_then(|mut r| r.credential_mapping.remove(name.repository)) else {
            return Ok(false);
        };
        if known.node_pods_accessible {
            return Ok(true);
        }
        let Some((secret, news)) = credentials.iter().find_map(|c| known.knows(c)) else { return Ok(false) };
        if news && known.kubernetes_secrets.len() < REMEMBERED {
            let news = Pullers { kubernetes_secrets: vec![secret], node_pods_accessible: false };
            self.note(name.repository, image_ref, Some(news), now)?;
        }
        Ok(true)
    }

    /// Whether pulls are under way, or were when an earlier kubelet ended.
    pub(crate) fn any_under_way(&self) -> bool {
        fs::read_dir(&self.pulling).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Turns what an earlier kubelet began, and could not see the end of, into records without credentials: `images` are
    /// those that are there, by reference, with all their names.
    pub(crate) fn adopt(&self, images: &[(String, Vec<String>)], now: Timestamp) -> io::Result<()> {
        let mut under_way = self.under_way.lock();
        for (_, intent) in read_all::<ImagePullIntent>(&self.pulling)? {
            let repository = super::reference::Reference::parse(&intent.image).map(|r| r.repository);
            let found = images.iter().find(|(_, names)| names.contains(&intent.image));
            if let (Some((image_ref, _)), Ok(repository)) = (found, repository) {
                if intent.present.as_ref() != Some(image_ref) {
                    self.note(&repository, image_ref, None, now)?;
                }
                self.end(&mut under_way, &intent.image)?;
            }
        }
        Ok(())
    }

    /// Forgets images that are gone, unless their records are as new as `until`.
    pub(crate) fn prune(&self, present: &HashSet<String>, until: Timestamp) -> io::Result<()> {
        let _held = self.under_way.lock();
        for (path, record) in read_all::<ImagePulledRecord>(&self.pulled)? {
            if record.last_updated_time < until && !present.contains(&record.image_ref) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// Writes what is new; a record that cannot be read is made anew.
    fn note(&self, repository: &str, image_ref: &str, news: Option<Pullers>, now: Timestamp) -> io::Result<()> {
        let known = read::<ImagePulledRecord>(&self.pulled, image_ref).unwrap_or_else(|error| {
            tracing::error!(%error, image_ref, "the record of an image cannot be read and is written anew");
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
        let changed = news.is_some_and(|news| match record.credential_mapping.get_mut(repository) {
            Some(pullers) => pullers.merge(news),
            None => record.credential_mapping.insert(repository.to_owned(), news).is_none(),
        });
        if !new && !changed {
            return Ok(());
        }
        record.last_updated_time = now;
        write(&self.pulled, image_ref, &record)
    }

    fn end(&self, under_way: &mut BTreeMap<String, u32>, image: &str) -> io::Result<()> {
        match under_way.get_mut(image) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                remove(&self.pulling, image)?;
                under_way.remove(image);
            }
        }
        Ok(())
    }
}

fn pullers(with: Option<&Credential>) -> Pullers {
    match with.and_then(|c| Some((c, c.source.clone()?))) {
        Some((credential, id)) => {
            let secret = PullSecret { id, credential_hash: credential.hash() };
            Pullers { kubernetes_secrets: vec![secret], node_pods_accessible: false }
        }
        None => Pullers { kubernetes_secrets: Vec::new(), node_pods_accessible: true },
    }
}

impl Pullers {
    /// Whether credentials of a Secret are known: the same content under any name, or the same Secret with a new
    /// content, of which one takes note.
    fn knows(&self, credential: &Credential) -> Option<(PullSecret, bool)> {
        let secret = PullSecret { id: credential.source.clone()?, credential_hash: credential.hash() };
        let same = |known: &&PullSecret| known.credential_hash == secret.credential_hash || known.id == secret.id;
        self.kubernetes_secrets.iter().any(|known| same(&known)).then(|| {
            let news = !self.kubernetes_secrets.contains(&secret);
            (secret, news)
        })
    }

    /// Takes in what is new, and says whether anything was.
    fn merge(&mut self, news: Self) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        let before = self.clone();
        if news.node_pods_accessible {
            *self = news;
        } else {
            for secret in news.kubernetes_secrets {
                self.kubernetes_secrets.retain(|known| known.id != secret.id);
                self.kubernetes_secrets.push(secret);
            }
            self.kubernetes_secrets.sort_by(|a, b| a.id.cmp(&b.id));
        }
        *self != before
    }
}

fn path(dir: &Path, key: &str) -> PathBuf {
    dir.join(format!("sha256-{}", hex(&Sha256::digest(key))))
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
    match crate::node_file::read(path(dir, key)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// All records of a directory; those that cannot be read are left out, with a word in the log.
fn read_all<T: DeserializeOwned>(dir: &Path) -> io::Result<Vec<(PathBuf, T)>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // What a crash left half written has an extension.
        if path.extension().is_some() {
            continue;
        }
        let text = crate::node_file::read(&path)?;
        match serde_json::from_slice(&text) {
            Ok(record) => found.push((path, record)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "a record of an image cannot be read"),
        }
    }
    Ok(found)
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
