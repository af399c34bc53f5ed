//! Gzip compression of large responses.

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{TryStreamExt, stream};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use response::{Body, BoxError, JsonStream, ProxiedResponse};
use std::io::Write;

/// Minimal size of a compressed response, in bytes (upstream's `defaultGzipThresholdBytes`).
const THRESHOLD: u64 = 128 << 10;

/// Whether the client accepts gzip. A quality of zero rejects it.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).any(|choice| {
        let mut parts = choice.split(';').map(str::trim);
        let refused = |p: &str| p.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0);
        matches!(parts.next(), Some("gzip" | "*")) && !parts.any(refused)
    })
}

/// Compresses a large response while it is sent.
pub(crate) fn compress_response(response: Response<Body>) -> Response<Body> {
    let is_compressible =
        response.extensions().get::<JsonStream>().is_none() && response.extensions().get::<ProxiedResponse>().is_none();
    if !is_compressible
        || response.headers().contains_key(header::CONTENT_ENCODING)
        || response.body().size_hint().exact().is_none_or(|size| size <= THRESHOLD)
    {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    // A response that a node sent has its uncompressed length.
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    let chunks = stream::try_unfold(Some((encoder(), body)), |state| async {
        let Some((encoder, body)) = state else { return Ok(None) };
        next_chunk(encoder, body).await.map(Some)
    });
    Response::from_parts(head, StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync())
}

type Encoder = GzEncoder<Vec<u8>>;

fn encoder() -> Encoder {
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// Returns the next compressed chunk that is not empty, and the remaining state.
async fn next_chunk(mut encoder: Encoder, mut body: Body) -> Result<(Bytes, Option<(Encoder, Body)>), BoxError> {
    while let Some(frame) = body.frame().await.transpose()? {
        let Ok(chunk) = frame.into_data() else { continue };
        // Compression must not block an async worker thread.
        let work = move || encoder.write_all(&chunk).map(|()| encoder);
        encoder = tokio::task::spawn_blocking(work).await??;
        if !encoder.get_ref().is_empty() {
            return Ok((std::mem::take(encoder.get_mut()).into(), Some((encoder, body))));
        }
    }
    Ok((encoder.finish()?.into(), None))
}

#[cfg(test)]
mod tests {
    use crate::test_server::{send, server};
    use flate2::read::GzDecoder;
    use serde_json::json;
    use std::io::Read;

    #[tokio::test]
    async fn compressed_response_loses_content_length() {
        let mut large = response::json(200, &json!({"k": "x".repeat(200_000)}));
        large.headers_mut().insert("content-length", 200_008.into());
        let answer = super::compress_response(large);
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        assert!(!answer.headers().contains_key("content-length"));
    }

    #[tokio::test]
    async fn only_large_responses_are_compressed_if_accepted() {
        let server = server().await;
        let path = "/api/v1/namespaces/default/configmaps";
        for (name, size) in [("small", 1000), ("large", 200_000)] {
            let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}}).to_string();
            assert_eq!(send(&server, "POST", path, &[], map.as_bytes()).await.code, 201);
        }
        for (name, encodings, compressed) in [
            ("large", "gzip", true),
            ("large", "deflate, gzip;q=0.5", true),
            ("large", "gzip;q=0", false),
            ("large", "", false),
            ("small", "gzip", false),
        ] {
            let answer = send(&server, "GET", &format!("{path}/{name}"), &[("accept-encoding", encodings)], &[]).await;
            assert_eq!(answer.header("content-encoding") == "gzip", compressed, "{name} {encodings}");
            if compressed {
                let mut text = String::new();
                GzDecoder::new(answer.body.as_ref()).read_to_string(&mut text).unwrap();
                assert!(answer.body.len() < 10_000 && text.contains("\"name\":\"large\""));
            } else {
                assert_eq!(answer.json()["metadata"]["name"], name);
            }
        }
    }
}
