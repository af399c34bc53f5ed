use super::*;
use crate::response;
use serde_json::json;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

const SOON: Duration = Duration::from_secs(60);

/// Requests that occupy their threads until `release` is sent to.
fn block(
    large: &Arc<LargeRequests>,
    count: usize,
) -> (Vec<tokio::task::JoinHandle<Reply>>, std::sync::mpsc::Sender<()>) {
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
async fn large_requests_leave_the_only_worker_free() {
    let large = Arc::new(LargeRequests::default());
    let (blocked, release) = block(&large, MAX_THREADS + 5);
    // The test has one worker: it goes on although the threads of all large requests are blocked.
    tokio::time::timeout(SOON, async {
        while large.threads.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    drop(release);
    for request in blocked {
        assert_eq!(tokio::time::timeout(SOON, request).await.unwrap().unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn only_some_large_requests_compute_at_a_time() {
    let large = Arc::new(LargeRequests::default());
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let requests = (0..MAX_THREADS).map(|_| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        large.run(async move {
            for _ in 0..10 {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
            Ok(response::json(200, &json!({})))
        })
    });
    assert!(futures::future::join_all(requests).await.iter().all(Result::is_ok));
    assert!(most.load(Ordering::SeqCst) <= large.turns.most, "{most:?}");
}

#[tokio::test]
async fn dropped_requests_give_their_threads_back() {
    let large = Arc::new(LargeRequests::default());
    for _ in 0..3 * MAX_THREADS {
        let waits = large.run(std::future::pending());
        assert!(tokio::time::timeout(Duration::from_millis(5), waits).await.is_err());
    }
    let answer = large.run(async { Ok(response::json(200, &json!({}))) });
    assert!(tokio::time::timeout(SOON, answer).await.unwrap().is_ok());
}

#[tokio::test]
async fn panics_reach_the_caller() {
    let large = LargeRequests::default();
    let work = AssertUnwindSafe(large.run(async { panic!("a bug") })).catch_unwind();
    let panic = work.await.map(drop).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug"));
}

#[tokio::test]
async fn large_requests_are_tried_less_often() {
    let server = crate::test_server::server().await;
    for (length, expected) in [(LARGE / 2, TRIES), (LARGE, TRIES_IF_LARGE)] {
        let path = format!("/api/v1/namespaces/default/configmaps/c{length}");
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{length}")},
            "data": {"k": "x".repeat(length)}});
        let headers = [("content-type", "application/apply-patch+yaml")];
        let query = format!("{path}?fieldManager=m");
        let answer = crate::test_server::send(&server, "PATCH", &query, &headers, config.to_string().as_bytes()).await;
        assert_eq!(answer.code, 201, "{}", answer.json());
        // The object makes a small patch of it large.
        let served = server.registry.served();
        let resource = crate::request::resource(&served, &path).unwrap();
        assert_eq!(tries_of(&server, &resource, &Method::PATCH, 10), expected);
    }
}
