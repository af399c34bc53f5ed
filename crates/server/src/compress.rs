//! Large answers are compressed for clients that can read that.

use crate::reply::{Body, Frames, Passed};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use std::io::{self, Write};

/// Upstream compresses nothing smaller: what the network saves, the processor would pay.
const THRESHOLD: u64 = 128 << 10;

/// Whether the client reads gzip. A quality of zero says no.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).any(|choice| {
        let mut parts = choice.split(';').map(str::trim);
        let refused = |p: &str| p.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0);
        matches!(parts.next(), Some("gzip" | "*")) && !parts.any(refused)
    })
}

/// The answer, compressed if it is large and at hand as a whole.
pub(crate) async fn answer(response: Response<Body>) -> Response<Body> {
    let is_own = response.extensions().get::<Frames>().is_none() && response.extensions().get::<Passed>().is_none();
    let whole = is_own && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !whole || response.body().size_hint().exact().is_none_or(|size| size <= THRESHOLD) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(all) => all.to_bytes(),
        Err(error) => {
            let body = http_body_util::StreamBody::new(futures::stream::iter([Err(error)]));
            return Response::from_parts(head, body.boxed_unsync());
        }
    };
    let plain = bytes.clone();
    let bytes = match tokio::task::spawn_blocking(move || gzip(&plain)).await {
        Ok(Ok(compressed)) => {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            // A node's answer comes with the length that it had.
            head.headers.remove(header::CONTENT_LENGTH);
            head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            compressed
        }
        _ => bytes,
    };
    Response::from_parts(head, Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
}

fn gzip(bytes: &[u8]) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?.into())
}

#[cfg(test)]
mod tests {
    use crate::test_server::{send, server};
    use flate2::read::GzDecoder;
    use serde_json::json;
    use std::io::Read;

    #[tokio::test]
    async fn the_length_of_a_nodes_answer_goes_with_its_compression() {
        let mut large = crate::reply::json(200, &json!({"k": "x".repeat(200_000)}));
        large.headers_mut().insert("content-length", 200_008.into());
        let answer = super::answer(large).await;
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        assert!(!answer.headers().contains_key("content-length"));
    }

    #[tokio::test]
    async fn only_large_answers_to_clients_that_read_gzip_are_compressed() {
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
