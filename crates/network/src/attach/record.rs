//! Record of a sandbox's connection: a file that is also the lock of its changes.

use crate::{Error, host_ports::PortMapping};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read},
    net::Ipv4Addr,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Maximum size of a record: more is not read.
const MAX_SIZE: u64 = 1 << 20;

/// Connection of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Connection {
    pub(crate) sandbox: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) port_mappings: Vec<PortMapping>,
    /// Whether the connection was completed, and its removal has not begun.
    pub(crate) is_attached: bool,
}

/// Locked record. The lock is released when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    file: File,
    path: PathBuf,
    /// `None` if the record was created just now, or its creation was interrupted.
    pub(crate) connection: Option<Connection>,
}

impl Record {
    /// Waits for the lock of a sandbox's record, and creates it if it is missing.
    pub(crate) fn lock(dir: &Path, sandbox: &str) -> Result<Self, Error> {
        files::create_private_dir_all(dir).map_err(Error::file("create", dir))?;
        let path = dir.join(sandbox);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        loop {
            if let Some(record) = Self::open(&path, &options).map_err(Error::file("lock", &path))? {
                return Ok(record);
            }
        }
    }

    /// Waits for the lock of an existing record.
    pub(crate) fn lock_existing(path: &Path) -> Result<Option<Self>, Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        loop {
            match Self::open(path, &options) {
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(Error::file("lock", path)(e)),
                Ok(Some(record)) => return Ok(Some(record)),
                Ok(None) => {}
            }
        }
    }

    /// Returns `None` if the file was removed before it was locked.
    fn open(path: &Path, options: &OpenOptions) -> io::Result<Option<Self>> {
        let file = options.open(path)?;
        file.lock()?;
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(there) if there.ino() != file.metadata()?.ino() => return Ok(None),
            other => other?,
        };
        let connection = read(&file)?;
        Ok(Some(Self { file, path: path.to_path_buf(), connection }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of names of the file: the record itself, and its address.
    pub(crate) fn links(&self) -> Result<u64, Error> {
        self.file.metadata().map(|m| m.nlink()).map_err(Error::file("read", &self.path))
    }

    /// Returns whether a path is a name of the file: an address is its sandbox's.
    pub(crate) fn has_name(&self, path: &Path) -> Result<bool, Error> {
        let own = self.file.metadata().map_err(Error::file("read", &self.path))?;
        match fs::symlink_metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::file("read", path)(e)),
            Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        }
    }

    /// Writes the record, in place: other names of the file must show it, too. Not durable: after a reboot, no sandbox
    /// is connected.
    pub(crate) fn write(&mut self, connection: Connection) -> Result<(), Error> {
        let text = serde_json::to_vec(&connection).map_err(|e| Error::file("write", &self.path)(e.into()))?;
        // What is left of a longer record is ignored.
        self.file.write_all_at(&text, 0).map_err(Error::file("write", &self.path))?;
        self.connection = Some(connection);
        Ok(())
    }

    pub(crate) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::file("remove", &self.path))
    }
}

/// Reads a record; one that is damaged, or not one, is `None`.
fn read(file: &File) -> io::Result<Option<Connection>> {
    let mut text = Vec::new();
    file.take(MAX_SIZE).read_to_end(&mut text)?;
    Ok(serde_json::Deserializer::from_slice(&text).into_iter().next().and_then(Result::ok))
}

/// Returns the names of the records: IDs of sandboxes.
pub(crate) fn sandboxes(dir: &Path) -> Result<Vec<String>, Error> {
    let files = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(Error::file("read", dir))?,
    };
    let mut names: Vec<_> = files.flatten().filter_map(|file| file.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns all connections, without locks.
pub(crate) fn connections(dir: &Path) -> Result<Vec<Connection>, Error> {
    // Files that vanish are skipped.
    let files = sandboxes(dir)?.into_iter().filter_map(|name| File::open(dir.join(name)).ok());
    Ok(files.filter_map(|file| read(&file).ok().flatten()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(is_attached: bool) -> Connection {
        let ip = Ipv4Addr::new(10, 1, 1, 2);
        Connection { sandbox: "s1".into(), ip, port_mappings: Vec::new(), is_attached }
    }

    #[test]
    fn record_is_read_back_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Record::lock_existing(&dir.path().join("s1")).unwrap().is_none());
        let mut record = Record::lock(dir.path(), "s1").unwrap();
        assert_eq!(record.connection, None);
        record.write(connection(false)).unwrap();
        record.write(connection(true)).unwrap();
        drop(record);
        let record = Record::lock(dir.path(), "s1").unwrap();
        assert_eq!(record.connection, Some(connection(true)));
        assert_eq!(connections(dir.path()).unwrap(), [connection(true)]);
        record.remove().unwrap();
        assert_eq!(sandboxes(dir.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn interrupted_record_is_no_connection() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "{\"sandbox\":\"s1\"}"] {
            fs::write(dir.path().join("s1"), text).unwrap();
            assert_eq!(Record::lock(dir.path(), "s1").unwrap().connection, None, "{text}");
        }
    }

    #[test]
    fn waiting_for_a_removed_record_creates_another() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::lock(dir.path(), "s1").unwrap();
        let path = dir.path().to_path_buf();
        let waiting = std::thread::spawn(move || Record::lock(&path, "s1").unwrap().links().unwrap());
        record.remove().unwrap();
        assert_eq!(waiting.join().unwrap(), 1);
        assert!(dir.path().join("s1").exists());
    }
}
