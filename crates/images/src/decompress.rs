//! Decompression of layers and archives. The format is detected from the content: media types are often wrong.

use crate::error::invalid;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Buffer for compressed bytes.
const INPUT_BUFFER: usize = 128 << 10;

/// Number of bytes that a call of the zstd decoder produces at least.
const ZSTD_STEP: usize = 128 << 10;

/// Maximum window of a zstd frame in bytes: it is memory. The default of the `zstd` program.
const MAX_ZSTD_WINDOW: u64 = 128 << 20;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Skippable frames have 16 magic numbers, which differ in the first byte.
const ZSTD_SKIPPABLE: &[u8] = &[0x2a, 0x4d, 0x18];
const BZIP2: &[u8] = b"BZh";
const XZ: &[u8] = &[0xfd, 0x37, 0x7a, 0x58];

/// Compression of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Detects the compression from the first 4 bytes.
    pub(crate) fn detect(begin: &[u8]) -> io::Result<Self> {
        let is_skippable = begin.first().is_some_and(|b| b & 0xf0 == 0x50) && begin.get(1..4) == Some(ZSTD_SKIPPABLE);
        if begin.starts_with(GZIP) {
            Ok(Self::Gzip)
        } else if begin.starts_with(ZSTD) || is_skippable {
            Ok(Self::Zstd)
        } else if begin.starts_with(BZIP2) || begin.starts_with(XZ) {
            Err(invalid("the compression is neither gzip nor zstd"))
        } else {
            Ok(Self::None)
        }
    }
}

/// Decompresses a stream, if it is compressed.
pub(crate) fn decompress<'a>(mut source: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
    let mut begin = Vec::with_capacity(4);
    source.by_ref().take(4).read_to_end(&mut begin)?;
    let compression = Compression::detect(&begin)?;
    let source = BufReader::with_capacity(INPUT_BUFFER, Cursor::new(begin).chain(source));
    Ok(match compression {
        Compression::None => Box::new(source),
        Compression::Gzip => Box::new(MultiGzDecoder::new(source)),
        Compression::Zstd => Box::new(ZstdReader::new(source)),
    })
}

/// Decoder of a sequence of zstd frames, as `pzstd` and `zstd:chunked` write them.
struct ZstdReader<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdReader<R> {
    fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_ZSTD_WINDOW);
        Self { source, decoder, is_in_frame: false }
    }

    /// Begins the next frame. Returns whether there is one.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(format!("zstd: {error}"))),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame {
                self.is_in_frame = self.next_frame()?;
                if !self.is_in_frame {
                    return Ok(0);
                }
            }
            let n = self.decoder.read(buffer)?;
            if n > 0 {
                return Ok(n);
            }
            if self.decoder.is_finished() {
                self.is_in_frame = false;
                continue;
            }
            let step = BlockDecodingStrategy::UptoBytes(ZSTD_STEP);
            self.decoder.decode_blocks(&mut self.source, step).map_err(|error| invalid(format!("zstd: {error}")))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression as Level, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    fn all(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut result = Vec::new();
        decompress(data)?.read_to_end(&mut result).map(|_| result)
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        compress_to_vec(data, CompressionLevel::Fastest)
    }

    #[test]
    fn formats_are_detected_and_members_concatenated() {
        let data: Vec<u8> = (0..1_000_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let (a, b) = data.split_at(1234);
        assert_eq!(all(&data).unwrap(), data);
        assert_eq!(all(&[gzip(a), gzip(b)].concat()).unwrap(), data);
        let skippable = [&[0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(all(&[skippable.clone(), zstd(a), skippable.clone(), zstd(b), skippable].concat()).unwrap(), data);
        assert_eq!(all(b"").unwrap(), b"");
        assert_eq!(all(b"ab").unwrap(), b"ab");
    }

    #[test]
    fn truncated_and_foreign_formats_are_errors() {
        let data = [7; 100_000];
        for packed in [gzip(&data), zstd(&data)] {
            for cut in [5, packed.len() / 2, packed.len() - 1] {
                all(&packed[..cut]).unwrap_err();
            }
            all(&[packed, b"garbage".to_vec()].concat()).unwrap_err();
        }
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 255, 255, 255, 255, 1];
        assert_eq!(all(&skippable).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        for other in [&b"BZh91AY"[..], b"\xfd7zXZ\0"] {
            let error = all(other).unwrap_err().to_string();
            assert_eq!(error, "the compression is neither gzip nor zstd");
        }
        // A window of 3.75 TB.
        let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0, 0, 0, 0, 0];
        let error = all(&window).unwrap_err().to_string();
        assert!(error.to_lowercase().contains("window"), "{error}");
    }
}
