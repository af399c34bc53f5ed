//! A document as it is kept and sent: compressed, with its hash.

use super::{has_seen, hex, tagged};
use crate::{
    compress,
    response::{self, Body},
    status::ApiError,
};
use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::Value;
use sha2::{Digest, Sha512};
use std::{
    io::{self, Read, Write},
    sync::OnceLock,
};

/// One document.
pub(super) struct Document {
    /// For example `apis/policy/v1`.
    pub(super) path: String,
    gzip: Bytes,
    pub(super) hash: String,
    /// The same in protobuf, once somebody has asked for it.
    binary: OnceLock<Bytes>,
}

impl Document {
    /// # Errors
    /// When it cannot be written.
    pub(super) fn new(path: String, write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) -> io::Result<Self> {
        let (gzip, hash) = packed(write)?;
        Ok(Self { path, gzip, hash, binary: OnceLock::new() })
    }

    pub(super) fn url(&self) -> String {
        format!("/openapi/v3/{}?hash={}", self.path, self.hash)
    }

    /// What it says.
    ///
    /// # Errors
    /// When it cannot be unpacked.
    pub(super) fn value(&self) -> io::Result<Value> {
        Ok(serde_json::from_reader(io::BufReader::new(GzDecoder::new(self.gzip.as_ref())))?)
    }

    /// The answer with all of it, or with nothing for a client that has it.
    ///
    /// # Errors
    /// When it cannot be unpacked.
    pub(super) fn answer(&self, headers: &HeaderMap, media: &'static str) -> Result<Response<Body>, ApiError> {
        self.send(headers, media, || Ok(&self.gzip))
    }

    /// The same in protobuf. Its hash is that of the JSON, as upstream: `Vary` tells the two apart.
    ///
    /// # Errors
    /// When it cannot be unpacked or made.
    pub(super) fn answer_in_binary(
        &self,
        headers: &HeaderMap,
        media: &'static str,
        encode: fn(&Value) -> Vec<u8>,
    ) -> Result<Response<Body>, ApiError> {
        self.send(headers, media, || match self.binary.get() {
            Some(made) => Ok(made),
            None => {
                let (made, _) = packed(|out| out.write_all(&encode(&self.value()?)))?;
                Ok(self.binary.get_or_init(|| made))
            }
        })
    }

    fn send<'a>(
        &'a self,
        headers: &HeaderMap,
        media: &'static str,
        gzip: impl FnOnce() -> io::Result<&'a Bytes>,
    ) -> Result<Response<Body>, ApiError> {
        if has_seen(headers, &self.hash) {
            return Ok(tagged(response::full(304, media, ""), &self.hash));
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
        Ok(tagged(response, &self.hash))
    }
}

/// What is written, compressed, and its hash. It is written on a thread of its own, which allocates nothing that stays: so all
/// that it needs meanwhile, 50 times as much, goes back to the system.
///
/// # Errors
/// When it cannot be written.
fn packed(write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send) -> io::Result<(Bytes, String)> {
    let (mut gzip, mut digest) = (Vec::with_capacity(128 << 10), [0; 64]);
    let make = || {
        let mut out = Packer { hash: Sha512::new(), gzip: GzEncoder::new(&mut gzip, Compression::default()) };
        write(&mut out)?;
        digest = out.hash.finalize().into();
        out.gzip.finish().map(drop)
    };
    let failed = |_| Err(io::Error::other("the document cannot be made"));
    std::thread::scope(|scope| scope.spawn(make).join()).unwrap_or_else(failed)?;
    gzip.shrink_to_fit();
    Ok((gzip.into(), hex(&digest)))
}

/// Hashes and compresses what is written.
struct Packer<'a> {
    hash: Sha512,
    gzip: GzEncoder<&'a mut Vec<u8>>,
}

impl Write for Packer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gzip.write_all(bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.gzip.flush()
    }
}
