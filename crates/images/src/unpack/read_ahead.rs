//! Decompresses and hashes on a second thread, while the first one writes files.

use super::limits::Measured;
use crate::Digest;
use std::{
    io::{self, BufRead, Read},
    panic,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
};

/// Size of a chunk of uncompressed bytes.
const CHUNK: usize = 256 << 10;

/// Number of chunks that wait for the writer: at most 1.5 MB of memory for each layer.
const CHUNKS: usize = 4;

/// Calls `consume` with the bytes of a stream, which it must read to the end. Returns the digest of the stream.
pub(super) fn read_ahead<R: Read + Send>(
    source: Measured<R>,
    consume: impl FnOnce(&mut Chunks) -> io::Result<()>,
) -> io::Result<Digest> {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(CHUNKS);
        let reader =
            thread::Builder::new().name("unpack".to_owned()).spawn_scoped(scope, move || send(source, &sender))?;
        let mut chunks = Chunks { receiver, current: Vec::new(), position: 0 };
        let result = consume(&mut chunks);
        // After an error, the reader must not wait for the writer.
        drop(chunks);
        let digest = reader.join().unwrap_or_else(|payload| panic::resume_unwind(payload));
        result?;
        digest.ok_or_else(|| io::Error::other("the layer was not read to its end"))
    })
}

/// Sends all chunks. Returns the digest, unless reading failed or the receiver has gone.
fn send<R: Read>(mut source: Measured<R>, sender: &SyncSender<io::Result<Vec<u8>>>) -> Option<Digest> {
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        match source.by_ref().take(CHUNK as u64).read_to_end(&mut chunk) {
            Ok(0) => return Some(source.finish()),
            Ok(_) => sender.send(Ok(chunk)).ok()?,
            Err(error) => {
                let _ = sender.send(Err(error));
                return None;
            }
        }
    }
}

/// Uncompressed bytes.
pub(super) struct Chunks {
    receiver: Receiver<io::Result<Vec<u8>>>,
    current: Vec<u8>,
    position: usize,
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.position >= self.current.len() {
            // The sender has gone at the end of the stream.
            self.current = self.receiver.recv().unwrap_or_else(|_| Ok(Vec::new()))?;
            self.position = 0;
        }
        Ok(self.current.get(self.position..).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        self.position += n;
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}
