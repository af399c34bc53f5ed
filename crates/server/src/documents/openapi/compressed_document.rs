//! A compressed document with its hash.

use super::{matches_etag, with_etag};
use crate::http::compress;
use bytes::Bytes;
use data_encoding::HEXUPPER;
use errors::ApiError;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use response::Body;
use serde_json::Value;
use sha2::{Digest, Sha512};
use std::{
    io::{self, Read, Write},
    sync::OnceLock,
};

/// Compressed document.
pub(super) struct CompressedDocument {
    /// For example `apis/policy/v1`.
    pub(super) path: String,
    gzip: Bytes,
    pub(super) hash: String,
    /// The document in protobuf, encoded on the first request.
    protobuf: OnceLock<Bytes>,
}

impl CompressedDocument {
    /// Compresses the document that `write` writes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn new(path: String, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) -> io::Result<Self> {
        let (gzip, hash) = compress_on_thread(write)?;
        Ok(Self { path, gzip, hash, protobuf: OnceLock::new() })
    }

    pub(super) fn url(&self) -> String {
        format!("/openapi/v3/{}?hash={}", self.path, self.hash)
    }

    /// Returns the document.
    ///
    /// # Errors
    /// If it cannot be decompressed.
    pub(super) fn value(&self) -> io::Result<Value> {
        Ok(serde_json::from_reader(io::BufReader::new(GzDecoder::new(self.gzip.as_ref())))?)
    }

    /// Responds with the document, or 304 if the client has it.
    ///
    /// # Errors
    /// If it cannot be decompressed.
    pub(super) fn respond(&self, headers: &HeaderMap, media: &'static str) -> Result<Response<Body>, ApiError> {
        self.send(headers, media, || Ok(&self.gzip))
    }

    /// Responds in protobuf. As upstream, the hash is that of the JSON: `Vary` distinguishes them.
    ///
    /// # Errors
    /// If it cannot be decompressed or encoded.
    pub(super) fn respond_protobuf(
        &self,
        headers: &HeaderMap,
        media: &'static str,
        encode: fn(&Value) -> Vec<u8>,
    ) -> Result<Response<Body>, ApiError> {
        self.send(headers, media, || match self.protobuf.get() {
            Some(encoded) => Ok(encoded),
            None => {
                let (encoded, _) = compress_on_thread(|out| out.write_all(&encode(&self.value()?)))?;
                Ok(self.protobuf.get_or_init(|| encoded))
            }
        })
    }

    fn send<'a>(
        &'a self,
        headers: &HeaderMap,
        media: &'static str,
        gzip: impl FnOnce() -> io::Result<&'a Bytes>,
    ) -> Result<Response<Body>, ApiError> {
        if matches_etag(headers, &self.hash) {
            return Ok(with_etag(response::full(304, media, ""), &self.hash));
        }
        let failed = |e: io::Error| ApiError::internal(e);
        let gzip = gzip().map_err(failed)?;
        let response = if compress::accepts_gzip(headers) {
            let mut response = response::full(200, media, gzip.clone());
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        } else {
            let mut text = Vec::new();
            GzDecoder::new(gzip.as_ref()).read_to_end(&mut text).map_err(failed)?;
            response::full(200, media, text)
        };
        Ok(with_etag(response, &self.hash))
    }
}

/// Compresses and hashes what `write` writes, on a temporary thread: its allocations, 50 times the result, are returned to the
/// system when it ends.
///
/// # Errors
/// If it cannot be written.
fn compress_on_thread(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) -> io::Result<(Bytes, String)> {
    let (mut gzip, mut digest) = (Vec::with_capacity(128 << 10), [0; 64]);
    let compress = || {
        let mut out = HashingEncoder { hash: Sha512::new(), gzip: GzEncoder::new(&mut gzip, Compression::default()) };
        write(&mut out)?;
        digest = out.hash.finalize().into();
        out.gzip.finish().map(drop)
    };
    let failed = |_| Err(io::Error::other("the document cannot be made"));
    std::thread::scope(|scope| scope.spawn(compress).join()).unwrap_or_else(failed)?;
    gzip.shrink_to_fit();
    Ok((gzip.into(), HEXUPPER.encode(&digest)))
}

/// Writer that hashes and compresses.
struct HashingEncoder<'a> {
    hash: Sha512,
    gzip: GzEncoder<&'a mut Vec<u8>>,
}

impl Write for HashingEncoder<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gzip.write_all(bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}
