//! Checkpoints: one file per Pod with its durable state, written atomically before the state is acted on.

use lifecycle::Pod;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    format: u32,
    pod: Pod,
}

fn path(dir: &Path, uid: &str) -> PathBuf {
    dir.join(format!("{uid}.json"))
}

pub(crate) fn save(dir: &Path, pod: &Pod) -> io::Result<()> {
    let text = serde_json::to_vec(&Checkpoint { format: FORMAT, pod: pod.clone() })?;
    files::replace_private(&path(dir, pod.uid()), &text)
}

pub(crate) fn remove(dir: &Path, uid: &str) -> io::Result<()> {
    match fs::remove_file(path(dir, uid)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Loads all checkpointed Pods. An unreadable file is renamed and logged: its Pod is restored from the API and the
/// runtime.
pub(crate) fn load(dir: &Path) -> io::Result<Vec<Pod>> {
    files::create_private_dir_all(dir)?;
    let mut pods = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let read = crate::host_file::read(&path)
            .and_then(|text| serde_json::from_slice::<Checkpoint>(&text).map_err(io::Error::from));
        match read {
            Ok(checkpoint) if checkpoint.format == FORMAT => pods.push(checkpoint.pod),
            Ok(checkpoint) => {
                let text = format!(
                    "{}: unsupported checkpoint format {}, expected {FORMAT}",
                    path.display(),
                    checkpoint.format
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "renaming damaged checkpoint");
                fs::rename(&path, path.with_extension("damaged"))?;
            }
        }
    }
    Ok(pods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::MetadataExt, sync::Arc};

    #[test]
    fn checkpoint_round_trips_and_a_damaged_one_is_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let mut object = api::k8s_openapi::api::core::v1::Pod::default();
        object.metadata.uid = Some("u".to_owned());
        let pod = Pod::new(Arc::new(object), jiff::Timestamp::UNIX_EPOCH);
        save(dir.path(), &pod).unwrap();
        fs::write(dir.path().join("broken.json"), "{").unwrap();
        let loaded = load(dir.path()).unwrap();
        assert_eq!(serde_json::to_value(&loaded).unwrap(), serde_json::to_value([pod]).unwrap());
        assert!(dir.path().join("broken.damaged").exists());
        assert_eq!(fs::metadata(path(dir.path(), "u")).unwrap().mode() & 0o777, 0o600);
        remove(dir.path(), "u").unwrap();
        assert_eq!(load(dir.path()).unwrap(), []);
    }
}
