//! Downloads.

use super::store;
use crate::{BlobStore, Digest, ImageStore, Lease};
use std::{fs, io::ErrorKind, thread};

fn digest_of(store: &ImageStore, data: &[u8]) -> (Lease, Digest) {
    (store.lease().unwrap(), Digest::of(data))
}

#[test]
fn interrupted_download_is_resumed() {
    let (_dir, store) = store();
    let (lease, digest) = digest_of(&store, b"hello world");
    let mut blob = lease.open(&digest).unwrap().unwrap();
    assert_eq!(blob.offset(), 0);
    blob.write(b"hello ").unwrap();
    drop(blob);
    assert!(!lease.contains(&digest).unwrap());
    let mut blob = lease.open(&digest).unwrap().unwrap();
    assert_eq!(blob.offset(), 6);
    blob.write(b"world").unwrap();
    blob.commit().unwrap();
    assert!(lease.contains(&digest).unwrap());
    assert_eq!(fs::read(store.blob_path(&digest)).unwrap(), b"hello world");
    assert!(fs::read_dir(store.root().join("ingest")).unwrap().next().is_none());
}

#[test]
fn download_with_another_digest_is_removed() {
    let (_dir, store) = store();
    let (lease, digest) = digest_of(&store, b"hello world");
    let mut blob = lease.open(&digest).unwrap().unwrap();
    blob.write(b"hello earth").unwrap();
    let error = blob.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(!lease.contains(&digest).unwrap());
    let mut blob = lease.open(&digest).unwrap().unwrap();
    assert_eq!(blob.offset(), 0, "garbage is not resumed");
    blob.write(b"garbage").unwrap();
    blob.truncate().unwrap();
    assert_eq!(blob.offset(), 0);
    blob.write(b"hello world").unwrap();
    blob.commit().unwrap();
}

#[test]
fn blob_has_one_writer_at_a_time() {
    let (_dir, store) = store();
    let (lease, digest) = digest_of(&store, b"x");
    let first = lease.open(&digest).unwrap().unwrap();
    assert!(lease.open(&digest).unwrap().is_none());
    drop(first);
    assert!(lease.open(&digest).unwrap().is_some());
}

#[test]
fn concurrent_writers_never_publish_a_partial_blob() {
    let (_dir, store) = store();
    let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let (lease, digest) = digest_of(&store, &data);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !lease.contains(&digest).unwrap() {
                    let Some(mut blob) = lease.open(&digest).unwrap() else {
                        thread::yield_now();
                        continue;
                    };
                    // Each writer continues where the last one stopped.
                    let begin = usize::try_from(blob.offset()).unwrap();
                    let end = data.len().min(begin + 100_000);
                    blob.write(&data[begin..end]).unwrap();
                    if end == data.len() {
                        blob.commit().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read(store.blob_path(&digest)).unwrap(), data);
}
