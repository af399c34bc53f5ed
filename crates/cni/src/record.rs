//! Records of connections: one file for each sandbox in `cni/attachments` of the data directory, on the disk before the
//! first plugin runs. Plugins such as host-local have files that survive a power failure.

use crate::{Error, config::NetworkConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

/// Maximum size of a record, in bytes: a configuration and a result have at most 1 MiB each, and JSON may escape them.
const MAX_SIZE: u64 = 16 << 20;
const EXTENSION: &str = "json";
/// Version of the format.
const VERSION: u32 = 1;

/// Connection of a sandbox (libcni's `cachedInfo`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) version: u32,
    pub(crate) sandbox: String,
    /// File on which the network namespace is mounted.
    pub(crate) netns: PathBuf,
    /// Configuration of ADD, which DEL uses, too.
    pub(crate) network: NetworkConfig,
    /// `CNI_ARGS`.
    pub(crate) arguments: String,
    pub(crate) capabilities: Map<String, Value>,
    pub(crate) bin_dirs: Vec<PathBuf>,
    /// Result of ADD; `None` if it was not completed.
    pub(crate) result: Option<Value>,
}

impl Record {
    pub(crate) fn new(
        sandbox: &str,
        netns: PathBuf,
        network: NetworkConfig,
        arguments: String,
        capabilities: Map<String, Value>,
        bin_dirs: Vec<PathBuf>,
    ) -> Self {
        let sandbox = sandbox.to_owned();
        Self { version: VERSION, sandbox, netns, network, arguments, capabilities, bin_dirs, result: None }
    }

    /// Writes the record durably.
    pub(crate) fn save(&self, data_dir: &Path) -> Result<(), Error> {
        let path = path(data_dir, &self.sandbox);
        let write =
            serde_json::to_vec(self).map_err(io::Error::from).and_then(|text| files::replace_private(&path, &text));
        write.map_err(|source| Error::Record { doing: "write", path, source })
    }
}

/// Returns the directory of the records of a data directory.
pub(crate) fn dir(data_dir: &Path) -> PathBuf {
    data_dir.join("cni/attachments")
}

fn path(data_dir: &Path, sandbox: &str) -> PathBuf {
    dir(data_dir).join(format!("{sandbox}.{EXTENSION}"))
}

/// Loads the record of a sandbox, if there is one.
pub(crate) fn load(data_dir: &Path, sandbox: &str) -> Result<Option<Record>, Error> {
    let path = path(data_dir, sandbox);
    let read = || -> io::Result<Option<Record>> {
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(MAX_SIZE).read_to_end(&mut text)?;
        let record: Record = serde_json::from_slice(&text)?;
        if record.version != VERSION || record.sandbox != sandbox {
            return Err(io::Error::other(format!("unsupported version {} of the record", record.version)));
        }
        Ok(Some(record))
    };
    read().map_err(|source| Error::Record { doing: "read", path: path.clone(), source })
}

/// Removes the record of a sandbox.
pub(crate) fn remove(data_dir: &Path, sandbox: &str) -> Result<(), Error> {
    let path = path(data_dir, sandbox);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::Record { doing: "remove", path, source }),
        _ => Ok(()),
    }
}

/// Returns the sandboxes with records.
pub(crate) fn sandboxes(data_dir: &Path) -> Result<Vec<String>, Error> {
    let dir = dir(data_dir);
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| Error::Record { doing: "list", path: dir, source })?,
    };
    let names =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
    Ok(names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_back_listed_and_removed() {
        let data = tempfile::tempdir().unwrap();
        files::create_private_dir_all(&dir(data.path())).unwrap();
        assert_eq!(load(data.path(), "s.1").unwrap(), None);
        let network = crate::config::parse(br#"{"cniVersion": "1.0.0", "name": "n", "type": "t"}"#, false).unwrap();
        let mut record = Record::new("s.1", "/n".into(), network, "A=1".into(), Map::new(), vec!["/bin".into()]);
        record.save(data.path()).unwrap();
        record.result = Some(serde_json::json!({"ips": []}));
        record.save(data.path()).unwrap();
        fs::write(dir(data.path()).join("s.2.new"), "interrupted").unwrap();
        assert_eq!(load(data.path(), "s.1").unwrap(), Some(record));
        assert_eq!(sandboxes(data.path()).unwrap(), ["s.1"]);
        remove(data.path(), "s.1").unwrap();
        remove(data.path(), "s.1").unwrap();
        assert!(sandboxes(data.path()).unwrap().is_empty());
    }

    #[test]
    fn damaged_record_is_an_error() {
        let data = tempfile::tempdir().unwrap();
        files::create_private_dir_all(&dir(data.path())).unwrap();
        for text in ["", "{", "{\"version\": 2}"] {
            fs::write(path(data.path(), "s1"), text).unwrap();
            assert!(load(data.path(), "s1").is_err(), "{text}");
        }
    }
}
