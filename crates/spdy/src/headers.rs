//! Header blocks: name and value pairs, compressed with one zlib stream per connection and direction.

use crate::dictionary::DICTIONARY;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Maximum size of a decompressed header block. Those of Kubernetes are below 200 bytes.
const MAX_BLOCK: usize = 64 << 10;

/// Names (lower case) and values, in order.
pub type Headers = Vec<(String, String)>;

/// Error of decoding a header block.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// The compressed data is invalid.
    #[error("failed to decompress the header block: {0}")]
    Decompress(#[from] flate2::DecompressError),
    /// The block is truncated, or larger than 64 KiB.
    #[error("header block is malformed")]
    Malformed,
}

/// Compresses outgoing header blocks.
pub(crate) struct Encoder(Compress);

impl Encoder {
    pub(crate) fn new() -> Self {
        let mut compress = Compress::new(Compression::default(), true);
        // The dictionary is optional: without it, blocks are only longer.
        let _ = compress.set_dictionary(&DICTIONARY);
        Self(compress)
    }

    pub(crate) fn encode(&mut self, headers: &[(String, String)]) -> Vec<u8> {
        let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
        let mut plain = length(headers.len()).to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend_from_slice(&length(text.len()));
            plain.extend_from_slice(text.as_bytes());
        }
        let mut out = Vec::with_capacity(plain.len() + 64);
        let start = self.0.total_in();
        loop {
            let done = usize::try_from(self.0.total_in() - start).unwrap_or(plain.len());
            let before = out.len();
            out.reserve(256);
            let result = self.0.compress_vec(&plain[done..], &mut out, FlushCompress::Sync);
            let all_in = self.0.total_in() - start == plain.len() as u64;
            if result.is_err() || (all_in && out.len() < out.capacity()) || out.len() == before {
                return out;
            }
        }
    }
}

/// Decompresses incoming header blocks.
pub(crate) struct Decoder(Decompress);

impl Decoder {
    pub(crate) fn new() -> Self {
        Self(Decompress::new(true))
    }

    pub(crate) fn decode(&mut self, block: &[u8]) -> Result<Headers, HeaderError> {
        parse(&self.inflate(block)?).ok_or(HeaderError::Malformed)
    }

    fn inflate(&mut self, block: &[u8]) -> Result<Vec<u8>, HeaderError> {
        let mut out = Vec::with_capacity(1024);
        let start = self.0.total_in();
        loop {
            let done = usize::try_from(self.0.total_in() - start).unwrap_or(block.len());
            let before = out.len();
            out.reserve(1024);
            let status = match self.0.decompress_vec(&block[done..], &mut out, FlushDecompress::Sync) {
                Err(e) if e.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&DICTIONARY)?;
                    continue;
                }
                other => other?,
            };
            if out.len() > MAX_BLOCK {
                return Err(HeaderError::Malformed);
            }
            let read = self.0.total_in() - start;
            if status == Status::StreamEnd || (read == block.len() as u64 && out.len() < out.capacity()) {
                return Ok(out);
            }
            if out.len() == before && read == done as u64 {
                return if done == block.len() { Ok(out) } else { Err(HeaderError::Malformed) };
            }
        }
    }
}

fn parse(mut block: &[u8]) -> Option<Headers> {
    let count = number(&mut block)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = text(&mut block)?;
        headers.push((name, text(&mut block)?));
    }
    Some(headers)
}

fn number(block: &mut &[u8]) -> Option<u32> {
    let (head, rest) = block.split_first_chunk::<4>()?;
    *block = rest;
    Some(u32::from_be_bytes(*head))
}

fn text(block: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(number(block)?).ok()?;
    let (head, rest) = block.split_at_checked(length)?;
    *block = rest;
    String::from_utf8(head.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn encoded_header_blocks_decode_to_the_same_headers(
            blocks in prop::collection::vec(prop::collection::vec(("[a-z-]{1,20}", ".{0,300}"), 0..20), 1..8)
        ) {
            let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
            for block in blocks {
                prop_assert_eq!(decoder.decode(&encoder.encode(&block)).unwrap(), block);
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_decoder(block in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = Decoder::new().decode(&block);
            let _ = parse(&block);
        }
    }

    #[test]
    fn oversized_header_block_is_rejected() {
        let huge = vec![("a".to_owned(), "x".repeat(MAX_BLOCK + 1))];
        assert!(Decoder::new().decode(&Encoder::new().encode(&huge)).is_err());
    }
}
