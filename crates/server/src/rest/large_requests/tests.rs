use super::*;
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs requests that block their threads until the returned sender is dropped.
fn block(
    large: &Arc<LargeRequests>,
    count: usize,
) -> (Vec<tokio::task::JoinHandle<HandlerResult>>, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let one = |_| {
        let (large, released) = (Arc::clone(large), Arc::clone(&released));
        tokio::spawn(async move {
            let work = async move {
                let _ = released.lock().recv();
                Ok(response::json(200, &json!({})))
            };
            large.run(work).await
        })
    };
    ((0..count).map(one).collect(), release)
}

#[tokio::test]
async fn blocked_large_requests_do_not_block_the_runtime_worker() {
    let large = Arc::new(LargeRequests::default());
    let (blocked, release) = block(&large, MAX_THREADS + 5);
    // The test has one worker: it makes progress although the threads of all large requests are blocked.
    tokio::time::timeout(TIMEOUT, async {
        while large.threads.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    drop(release);
    for request in blocked {
        assert_eq!(tokio::time::timeout(TIMEOUT, request).await.unwrap().unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn large_requests_compute_within_the_limit_of_slots() {
    let large = Arc::new(LargeRequests::default());
    let (running, maximum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let requests = (0..MAX_THREADS).map(|_| {
        let (running, maximum) = (Arc::clone(&running), Arc::clone(&maximum));
        large.run(async move {
            for _ in 0..10 {
                maximum.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
            Ok(response::json(200, &json!({})))
        })
    });
    assert!(futures::future::join_all(requests).await.iter().all(Result::is_ok));
    assert!(maximum.load(Ordering::SeqCst) <= large.slots.total, "{maximum:?}");
}

#[tokio::test]
async fn dropped_large_requests_free_their_threads() {
    let large = Arc::new(LargeRequests::default());
    for _ in 0..3 * MAX_THREADS {
        let pending = large.run(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(5), pending).await.is_err());
    }
    let request = large.run(async { Ok(response::json(200, &json!({}))) });
    assert!(tokio::time::timeout(TIMEOUT, request).await.unwrap().is_ok());
}

#[tokio::test]
async fn panic_in_large_request_reaches_the_caller() {
    let large = LargeRequests::default();
    let work = AssertUnwindSafe(large.run(async { panic!("a bug") })).catch_unwind();
    let panic = work.await.map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug"));
}

#[tokio::test]
async fn large_requests_are_retried_less_often() {
    let server = crate::test_server::server().await;
    for (length, expected) in [(THRESHOLD / 2, MAX_ATTEMPTS), (THRESHOLD, MAX_ATTEMPTS_WHEN_LARGE)] {
        let path = format!("/api/v1/namespaces/default/configmaps/c{length}");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{length}")},
            "data": {"k": "x".repeat(length)}});
        let headers = [("content-type", "application/apply-patch+yaml")];
        let query = format!("{path}?fieldManager=m");
        let response =
            crate::test_server::send(&server, "PATCH", &query, &headers, config.to_string().as_bytes()).await;
        assert_eq!(response.code, 201, "{}", response.json());
        // A small patch of a large object is a large request.
        let served = server.kinds.served();
        let resource = crate::objects::request_scope::resolve(
            &served,
            &request::RequestInfo::new(&http::Method::GET, &path.parse().unwrap()),
        )
        .unwrap();
        assert_eq!(max_attempts_of(&server.registry, &resource, &Method::PATCH, 10), expected);
    }
}
