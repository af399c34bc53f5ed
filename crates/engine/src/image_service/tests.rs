use super::*;
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use test_images::{ExtraFile, ImageConfig, OciImage, oci};

/// Serves an image as `HOST/image:1`, and counts the downloads of its layer. Returns the host.
fn serve(image: OciImage, downloads: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let layer = oci::digest(&image.layer);
    let files = [
        ("/v2/image/manifests/1".to_owned(), image.manifest.clone()),
        (format!("/v2/image/blobs/{}", oci::digest(&image.config)), image.config),
        (format!("/v2/image/blobs/{layer}"), image.layer),
    ];
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut first = [0];
            if stream.peek(&mut first).is_err() || !first[0].is_ascii_uppercase() {
                // The client tries TLS first.
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
                continue;
            }
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let path = request.split(' ').nth(1).unwrap_or_default();
            downloads.fetch_add(usize::from(path.ends_with(&layer)), Ordering::Relaxed);
            let found = files.iter().find(|(known, _)| known == path);
            let (status, body) = found.map_or(("404 Not Found", &[][..]), |(_, body)| ("200 OK", body.as_slice()));
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                oci::MANIFEST,
                body.len()
            );
            // The client may have what it needs.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    host
}

/// Changes the content of a blob, or cuts it.
fn damage(store: &ImageStore, layer: &str, length: Option<u64>) {
    let path = store.root().join("blobs/sha256").join(layer.strip_prefix("sha256:").unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    match length {
        Some(length) => file.set_len(length).unwrap(),
        None => std::os::unix::fs::FileExt::write_all_at(&file, b"damage", 4 << 20).unwrap(),
    }
}

#[tokio::test]
async fn damaged_layer_is_fetched_again_by_a_pull() {
    let files = vec![("large".to_owned(), ExtraFile::Regular("x".repeat(5 << 20)))];
    let image = OciImage::busybox(&ImageConfig { files, ..ImageConfig::default() }).unwrap();
    let (layer, content) = (oci::digest(&image.layer), image.layer.clone());
    let downloads = Arc::new(AtomicUsize::new(0));
    let reference = format!("{}/image:1", serve(image, downloads.clone()));
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(&dir.path().join("images")).unwrap();
    let pull = async || pull_image(&store, &reference, &PullOptions::default(), &|_| {}).await;
    let id = pull().await.unwrap();
    assert_eq!(pull().await.unwrap(), id);
    assert_eq!(downloads.load(Ordering::Relaxed), 1, "a present layer is not fetched again");
    // Its size is checked also if the layer is unpacked.
    damage(&store, &layer, Some(5 << 20));
    assert_eq!(pull().await.unwrap(), id);
    assert_eq!(downloads.load(Ordering::Relaxed), 2);
    damage(&store, &layer, None);
    std::fs::remove_dir_all(store.root().join("layers")).unwrap();
    std::fs::create_dir(store.root().join("layers")).unwrap();
    assert_eq!(pull().await.unwrap(), id);
    assert_eq!(downloads.load(Ordering::Relaxed), 3);
    let blob = store.open_blob(&layer.parse().unwrap()).unwrap();
    let mut found = Vec::new();
    std::io::Read::read_to_end(&mut { blob }, &mut found).unwrap();
    assert!(found == content);
}

#[tokio::test(start_paused = true)]
async fn queries_wait_for_the_import_up_to_their_deadline() {
    let import = watch::Sender::new(false);
    let begin = tokio::time::Instant::now();
    let error = imported(import.subscribe()).await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), begin.elapsed()),
        ("image archives are still being imported", IMPORT_TIMEOUT)
    );
    let mut waiting = std::pin::pin!(imported(import.subscribe()));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    import.send_replace(true);
    assert!(waiting.await.is_ok());
    let import = watch::Sender::new(false);
    let given_up = import.subscribe();
    drop(import);
    assert!(imported(given_up).await.is_ok());
}
