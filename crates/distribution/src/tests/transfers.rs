//! Tests of interrupted and resumed transfers of layers.

use super::{
    DEADLINE,
    image::{Image, noise},
    memory_store::MemoryStore,
    options, pull,
    registry::{Body, Contents, Recorded, Registry, cut, hang, reply, serve_content, with_header},
};
use crate::{Digest, PullErrorKind, PullOptions};
use bytes::Bytes;
use http::{Response, StatusCode};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Registry with an image of one layer, whose handler gets the requests for that layer.
struct OneLayer {
    layer: Bytes,
    digest: Digest,
    registry: Registry,
    store: Arc<MemoryStore>,
    options: PullOptions,
}

impl OneLayer {
    async fn new(
        size: usize,
        handler: impl Fn(&Recorded, &Bytes, &Contents) -> Option<Response<Body>> + Send + Sync + 'static,
    ) -> Self {
        let layer = noise(1, size);
        let image = Image::new(std::slice::from_ref(&layer));
        let digest = Digest::of(&layer);
        let (served, contents) = (layer.clone(), image.tagged());
        let registry = Registry::with_handler(image.tagged(), move |request| {
            if request.path.ends_with(&digest.to_string()) { handler(request, &served, &contents) } else { None }
        })
        .await;
        Self { layer, digest, registry, store: Arc::new(MemoryStore::default()), options: options() }
    }

    async fn pull(&self) -> Result<(), crate::PullError> {
        pull(&self.registry.reference(), &self.options, &self.store).await.map(drop)
    }

    /// Asserts that the layer is stored.
    #[track_caller]
    fn check_stored(&self) {
        assert_eq!(self.store.blob(&self.digest).as_deref(), Some(&*self.layer));
    }

    /// Returns the ranges of the requests for the layer.
    fn ranges(&self) -> Vec<String> {
        let requests = self.registry.requests();
        let layer = requests.iter().filter(|r| r.path.ends_with(&self.digest.to_string()));
        layer.map(|r| r.header("range").to_owned()).collect()
    }
}

#[tokio::test]
async fn interrupted_transfer_is_resumed() {
    let test = OneLayer::new(3 << 20, |request, layer, _| {
        (request.count == 0).then(|| cut(layer.slice(..2 << 20), layer.len()))
    })
    .await;
    test.pull().await.unwrap();
    test.check_stored();
    let ranges = test.ranges();
    assert_eq!((ranges.len(), ranges[0].as_str()), (2, ""));
    assert!(ranges[1].starts_with("bytes="), "{ranges:?}");
    // Beside the layer, only manifest and config are written.
    assert!(test.store.written() < (3 << 20) + 10_000, "{}", test.store.written());
}

#[tokio::test]
async fn transfer_of_an_earlier_pull_is_resumed() {
    let test = OneLayer::new(1000, |_, _, _| None).await;
    test.store.set_partial(test.digest, &test.layer[..400]);
    test.pull().await.unwrap();
    test.check_stored();
    assert_eq!(test.ranges(), ["bytes=400-"]);
    assert_eq!(test.registry.requests().len(), 3);
}

#[tokio::test]
async fn complete_partial_blob_is_not_requested() {
    let test = OneLayer::new(1000, |_, _, _| None).await;
    test.store.set_partial(test.digest, &test.layer);
    test.pull().await.unwrap();
    test.check_stored();
    assert_eq!(test.ranges(), [""; 0]);
}

#[tokio::test]
async fn transfer_starts_again_if_ranges_are_ignored() {
    let test = OneLayer::new(1000, |_, layer, _| Some(reply(StatusCode::OK, layer.clone()))).await;
    test.store.set_partial(test.digest, &test.layer[..400]);
    test.pull().await.unwrap();
    test.check_stored();
    assert_eq!(test.ranges(), ["bytes=400-"]);
}

#[tokio::test]
async fn transfer_starts_again_after_status_416() {
    let test = OneLayer::new(1000, |request, _, _| {
        let has_range = !request.header("range").is_empty();
        has_range.then(|| reply(StatusCode::RANGE_NOT_SATISFIABLE, ""))
    })
    .await;
    test.store.set_partial(test.digest, &test.layer[..400]);
    test.pull().await.unwrap();
    test.check_stored();
    assert_eq!(test.ranges(), ["bytes=400-", ""]);
}

#[tokio::test]
async fn transfer_starts_again_if_range_is_another_one() {
    let test = OneLayer::new(1000, |request, layer, _| {
        let has_range = !request.header("range").is_empty();
        let partial = reply(StatusCode::PARTIAL_CONTENT, layer.slice(500..));
        has_range.then(|| with_header(partial, "content-range", "bytes 500-999/1000"))
    })
    .await;
    test.store.set_partial(test.digest, &test.layer[..400]);
    test.pull().await.unwrap();
    test.check_stored();
    assert_eq!(test.ranges(), ["bytes=400-", ""]);
}

#[tokio::test]
async fn wrong_partial_blob_is_fetched_again() {
    for stored in [400, 1000, 2000] {
        let test = OneLayer::new(1000, |_, _, _| None).await;
        test.store.set_partial(test.digest, &noise(7, stored));
        test.pull().await.unwrap();
        test.check_stored();
        assert_eq!(test.ranges().last().map(String::as_str), Some(""), "{stored}");
    }
}

#[tokio::test]
async fn server_errors_and_rate_limits_are_retried() {
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::BAD_GATEWAY, StatusCode::TOO_MANY_REQUESTS] {
        let test = OneLayer::new(1000, move |request, _, _| (request.count < 3).then(|| reply(status, "wait"))).await;
        test.pull().await.unwrap();
        test.check_stored();
        assert_eq!(test.ranges().len(), 4);
    }
}

#[tokio::test]
async fn manifests_are_retried() {
    let image = Image::new(&[noise(1, 10)]);
    let registry = Registry::with_handler(image.tagged(), |request| {
        (request.count < 2 && !request.is_blob()).then(|| match request.count {
            0 => reply(StatusCode::INTERNAL_SERVER_ERROR, ""),
            _ => cut(Bytes::from_static(b"{"), 1000),
        })
    })
    .await;
    pull(&registry.reference(), &options(), &Arc::new(MemoryStore::default())).await.unwrap();
    assert_eq!(registry.requests().iter().filter(|r| !r.is_blob()).count(), 3);
}

#[tokio::test]
async fn requested_delay_is_honoured() {
    let test = OneLayer::new(1000, |request, _, _| {
        let limited = || with_header(reply(StatusCode::TOO_MANY_REQUESTS, ""), "retry-after", "1");
        (request.count == 0).then(limited)
    })
    .await;
    let start = Instant::now();
    test.pull().await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn long_requested_delay_ends_the_pull() {
    let test = OneLayer::new(1000, |_, _, _| {
        Some(with_header(reply(StatusCode::TOO_MANY_REQUESTS, ""), "retry-after", "86400"))
    })
    .await;
    assert_eq!(test.pull().await.unwrap_err().kind(), PullErrorKind::TooManyRequests);
    assert_eq!(test.ranges().len(), 1);
}

#[tokio::test]
async fn attempts_without_much_progress_end() {
    // One byte for each connection would otherwise take as many connections as the layer has bytes.
    let test = OneLayer::new(1000, |request, layer, contents| {
        let mut response = serve_content(contents, request);
        let offset = request.header("range").trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap_or(0);
        let cut = cut(layer.slice(offset..offset + 1), layer.len() - offset);
        let (_, body) = cut.into_parts();
        *response.body_mut() = body;
        response.headers_mut().insert("content-length", (layer.len() - offset).into());
        Some(response)
    })
    .await;
    let error = test.pull().await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Connection, "{error}");
    assert!((5..=6).contains(&test.ranges().len()), "{:?}", test.ranges());
    assert!(test.store.partial(&test.digest).is_some_and(|partial| partial.len() < 10));
}

#[tokio::test]
async fn bytes_that_are_fetched_again_are_no_progress() {
    // Ranges are ignored, and no connection lives until the end. Only after many attempts the layer would be complete.
    let test = OneLayer::new(3 << 20, |request, layer, _| {
        (request.count < 20).then(|| cut(layer.slice(..3 << 19), layer.len()))
    })
    .await;
    let error = test.pull().await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Connection, "{error}");
    assert!((5..=9).contains(&test.ranges().len()), "{:?}", test.ranges());
}

#[tokio::test]
async fn stalled_transfer_ends_and_keeps_its_bytes() {
    let mut test = OneLayer::new(3 << 20, |_, layer, _| Some(hang(layer.slice(..2 << 20), layer.len()))).await;
    test.options.timeouts.idle = Duration::from_secs(8);
    let error = test.pull().await.unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Timeout, "{error}");
    assert!(error.to_string().ends_with("failed to copy: no progress for 8 s"), "{error}");
    assert_eq!(test.store.partial(&test.digest).unwrap().len(), 2 << 20);
    assert_eq!(test.ranges().len(), 1);
}

#[tokio::test]
async fn dropped_pull_keeps_its_bytes() {
    let test = OneLayer::new(3 << 20, |request, layer, _| {
        (request.count == 0).then(|| hang(layer.slice(..2 << 20), layer.len()))
    })
    .await;
    {
        let mut pulling = std::pin::pin!(test.pull());
        let deadline = Instant::now() + DEADLINE;
        while test.store.partial(&test.digest).is_none_or(|partial| partial.len() < 1 << 20) {
            assert!(Instant::now() < deadline, "nothing is stored");
            assert!(tokio::time::timeout(Duration::from_millis(5), &mut pulling).await.is_err());
        }
    }
    let deadline = Instant::now() + DEADLINE;
    while test.store.is_locked(&test.digest) {
        assert!(Instant::now() < deadline, "the blob is locked");
        tokio::task::yield_now().await;
    }
    test.pull().await.unwrap();
    test.check_stored();
    assert!(test.ranges()[1].starts_with("bytes="), "{:?}", test.ranges());
}

#[tokio::test]
async fn full_storage_ends_the_pull() {
    let test = OneLayer::new(1000, |_, _, _| None).await;
    test.store.set_full();
    assert_eq!(test.pull().await.unwrap_err().kind(), PullErrorKind::Storage);
}
