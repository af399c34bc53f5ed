//! Imported and saved archives.

use super::{Layer, config, docker_archive, names_in, store, tar, two_layers};
use crate::{Digest, ImportError};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::io::{self, Read, Write};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Makes an OCI image layout with one image. Its layers are stored as `packed`.
fn oci_archive(layers: &[Vec<u8>], packed: &[Vec<u8>], annotations: &Value) -> Vec<u8> {
    let config = config(layers, &json!({}));
    let descriptor = |media_type: &str, data: &[u8]| json!({"mediaType": media_type, "digest": Digest::of(data).to_string(), "size": data.len()});
    let layer_type = "application/vnd.oci.image.layer.v1.tar+gzip";
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": packed.iter().map(|layer| descriptor(layer_type, layer)).collect::<Vec<_>>()});
    let manifest = manifest.to_string().into_bytes();
    let mut entry = descriptor(MANIFEST, &manifest);
    entry["annotations"] = annotations.clone();
    // As buildx writes it, with an attestation that is not in the archive.
    let mut attestation = descriptor(MANIFEST, b"attestation");
    attestation["platform"] = json!({"os": "unknown", "architecture": "unknown"});
    let index = json!({"schemaVersion": 2, "manifests": [entry, attestation]}).to_string();
    let path = |data: &[u8]| format!("blobs/sha256/{}", Digest::of(data).hex());
    let blobs: Vec<&Vec<u8>> = packed.iter().chain([&config, &manifest]).collect();
    let paths: Vec<String> = blobs.iter().map(|data| path(data)).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("oci-layout", br#"{"imageLayoutVersion": "1.0.0"}"#)];
    files.extend(paths.iter().zip(&blobs).map(|(path, data)| (path.as_str(), data.as_slice())));
    files.push(("index.json", index.as_bytes()));
    tar(&files)
}

#[test]
fn image_gets_layers_of_another_one_only_with_their_content() {
    let (_dir, store) = store();
    let layers = two_layers();
    let unzipped = oci_archive(&layers, &layers, &json!({"io.containerd.image.name": "registry.example/private:1"}));
    store.import(unzipped.as_slice(), |_| ()).unwrap();
    let name = json!({"io.containerd.image.name": "registry.example/same:1"});
    let same: Vec<Vec<u8>> = layers.iter().map(|layer| gzip(layer)).collect();
    store.import(oci_archive(&layers, &same, &name).as_slice(), |_| ()).unwrap();
    // Its configuration names the layers, which it does not have.
    let name = json!({"io.containerd.image.name": "registry.example/thief:1"});
    let other: Vec<Vec<u8>> = layers.iter().map(|_| gzip(b"other")).collect();
    let refused = store.import(oci_archive(&layers, &other, &name).as_slice(), |_| ()).unwrap_err().to_string();
    assert!(refused.contains("the digest of the uncompressed layer is"), "{refused}");
    assert!(store.image("registry.example/thief:1").is_err());
    store.image("registry.example/same:1").unwrap();
}

#[test]
fn docker_archive_is_imported_from_a_pipe() {
    let (_dir, store) = store();
    let archive = docker_archive(&two_layers(), &["a:1", "registry.example/b:2"]);
    let (reader, mut writer) = io::pipe().unwrap();
    let sent = archive.clone();
    let thread = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut progress = 0;
    let names = store.import(reader, |n| progress = n).unwrap();
    thread.join().unwrap();
    assert_eq!(names, ["docker.io/library/a:1", "registry.example/b:2"]);
    assert_eq!(progress, archive.len() as u64);
    let image = store.image("a:1").unwrap();
    assert_eq!((image.uid, image.stop_signal.as_deref()), (Some(1000), Some("SIGQUIT")));
    assert_eq!(image.tags, names);
    assert_eq!(names_in(&store.root().join("layers")).len(), 2);
    // Only the document manifest.json, as a manifest of our own, is no file of the archive.
    assert_eq!(store.import(archive.as_slice(), |_| {}).unwrap(), names);
}

#[test]
fn compressed_archives_and_layers_are_imported() {
    let layers = two_layers();
    for (name, packed, whole) in [
        ("gzip", [gzip(&layers[0]), layers[1].clone()], gzip as fn(&[u8]) -> Vec<u8>),
        ("zstd", [zstd(&layers[0]), gzip(&layers[1])], zstd),
        ("plain", [layers[0].clone(), layers[1].clone()], |data| data.to_vec()),
    ] {
        let (_dir, store) = store();
        let annotations = json!({"io.containerd.image.name": format!("docker.io/library/{name}:1"),
            "org.opencontainers.image.ref.name": "1"});
        let archive = whole(&oci_archive(&layers, &packed, &annotations));
        let names = store.import(archive.as_slice(), |_| {}).unwrap();
        assert_eq!(names, [format!("docker.io/library/{name}:1")]);
        let lower = store.acquire(std::path::Path::new("/"), "c", name_and_tag(name)).unwrap().lower_dirs;
        assert_eq!(std::fs::read(lower[0].join("etc/c")).unwrap(), b"c");
        assert_eq!(std::fs::read(lower[1].join("etc/a")).unwrap(), b"a");
    }
}

fn name_and_tag(name: &str) -> &str {
    match name {
        "gzip" => "gzip:1",
        "zstd" => "zstd:1",
        _ => "plain:1",
    }
}

#[test]
fn links_of_docker_archives_are_followed() {
    let (_dir, store) = store();
    let layers = [two_layers()[0].clone(), two_layers()[0].clone()];
    let config = config(&layers, &json!({}));
    let manifest = json!([{"Config": "./c.json", "RepoTags": ["a:1"], "Layers": ["x/layer.tar", "y/layer.tar"]}]);
    let archive = Layer::new()
        .file("c.json", &config)
        .symlink("y/layer.tar", "../x/layer.tar")
        .file("./x/layer.tar", &layers[0])
        .file("manifest.json", manifest.to_string().as_bytes())
        .build();
    store.import(archive.as_slice(), |_| {}).unwrap();
}

#[test]
fn archives_without_a_usable_image_are_refused() {
    let (_dir, store) = store();
    let layers = two_layers();
    let good = docker_archive(&layers, &["a"]);
    let mut truncated = good.clone();
    truncated.truncate(good.len() / 2);
    let wrong_layer =
        oci_archive(&layers, &[gzip(&layers[0]), gzip(b"x")], &json!({"org.opencontainers.image.ref.name": "a:1"}));
    let mut damaged = oci_archive(&layers, &layers, &json!({"org.opencontainers.image.ref.name": "a:1"}));
    // A byte of the data of the first blob.
    damaged[512 * 3 + 10] ^= 1;
    let missing = tar(&[("manifest.json", br#"[{"Config": "c", "RepoTags": ["a"], "Layers": []}]"#)]);
    let outside = tar(&[("manifest.json", br#"[{"Config": "../../etc/passwd", "RepoTags": ["a"], "Layers": []}]"#)]);
    let other = String::from_utf8(config(&layers, &json!({}))).unwrap().replace("linux", "plan9");
    let manifest = br#"[{"Config": "c", "RepoTags": ["a"], "Layers": ["l", "m"]}]"#;
    let foreign = tar(&[("c", other.as_bytes()), ("l", &layers[0]), ("m", &layers[1]), ("manifest.json", manifest)]);
    for (archive, problem) in [
        (b"not a tar file".to_vec(), "unexpected end of file"),
        (vec![b'x'; 2000], "invalid tar header"),
        (Vec::new(), "no image"),
        (tar(&[("a", b"b")]), "no image"),
        (truncated, "unexpected end of file"),
        (gzip(&good)[..300].to_vec(), ""),
        (wrong_layer, "failed to unpack layer"),
        (damaged, "digest"),
        (missing, "missing in the archive"),
        (outside, "missing in the archive"),
        (foreign, "no match for platform"),
        (tar(&[("index.json", b"{")]), "index.json"),
        (tar(&[("index.json", br#"{"schemaVersion": 1, "manifests": []}"#)]), "schemaVersion"),
    ] {
        let error = store.import(archive.as_slice(), |_| {}).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ImportError::Refused(_)), "{text}");
        assert!(text.starts_with("the archive is corrupt or contains no image: ") && text.contains(problem), "{text}");
    }
    assert!(store.list().unwrap().is_empty());
    store.collect(std::time::Duration::ZERO).unwrap();
    assert!(names_in(&store.root().join("blobs/sha256")).is_empty());
    assert!(names_in(&store.root().join("layers")).is_empty());
}

#[test]
fn nameless_and_unreadable_archives_have_their_own_errors() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let (_dir, store) = store();
    let layers = two_layers();
    for nameless in [
        docker_archive(&layers, &[]),
        oci_archive(&layers, &layers, &json!({"org.opencontainers.image.ref.name": "latest"})),
    ] {
        let error = store.import(nameless.as_slice(), |_| {}).unwrap_err();
        assert!(matches!(error, ImportError::Nameless), "{error}");
    }
    let half = docker_archive(&layers, &["a"]);
    let error = store.import(half[..600].chain(Broken), |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "failed to read the archive: the disk is gone");
}

#[test]
fn documents_of_an_archive_are_limited() {
    let (_dir, store) = store();
    let large = vec![b' '; 5 << 20];
    for name in ["manifest.json", "index.json"] {
        let error = store.import(tar(&[(name, &large)]).as_slice(), |_| {}).unwrap_err().to_string();
        assert!(error.contains("more than 4194304 bytes"), "{error}");
    }
    let manifest = br#"[{"Config": "c", "RepoTags": ["a"], "Layers": []}]"#;
    let archive = tar(&[("manifest.json", manifest), ("c", &large)]);
    let error = store.import(archive.as_slice(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("configuration of 4 MiB"), "{error}");
    let layers = vec![Layer::new().build(); 128];
    let error = store.import(docker_archive(&layers, &["a"]).as_slice(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("more than 127 layers"), "{error}");
    let files: Vec<String> = (0..20_001).map(|n| n.to_string()).collect();
    let mut archive = Layer::new();
    for name in &files {
        archive = archive.symlink(name, "x");
    }
    let error = store.import(archive.build().as_slice(), |_| {}).unwrap_err().to_string();
    assert!(error.contains("more than 20000 files"), "{error}");
}

#[test]
fn saved_images_are_imported_again() {
    let (_dir, first) = store();
    super::import(&first, &two_layers(), "a:1");
    super::import(&first, &two_layers()[..1], "b:1");
    let mut archive = Vec::new();
    first.save(&["a:1", "b:1"], &mut archive).unwrap();
    let (_dir, second) = store();
    let names = second.import(archive.as_slice(), |_| {}).unwrap();
    assert_eq!(names, ["docker.io/library/a:1", "docker.io/library/b:1"]);
    assert_eq!(first.list().unwrap(), second.list().unwrap());
    let mut again = Vec::new();
    second.save(&["a:1", "b:1"], &mut again).unwrap();
    assert!(again == archive, "the same images make the same archive");
    // Docker reads manifest.json: without the index, the images are the same.
    let mut docker = tar::Archive::new(archive.as_slice());
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for entry in docker.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut data = Vec::new();
        entry.read_to_end(&mut data).unwrap();
        files.push((entry.path().unwrap().display().to_string(), data));
    }
    files.retain(|(name, _)| name != "index.json");
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, data)| (name.as_str(), data.as_slice())).collect();
    let (_dir, third) = store();
    assert_eq!(third.import(tar(&files).as_slice(), |_| {}).unwrap(), names);
    assert_eq!(third.resolve("a:1").unwrap().id, first.resolve("a:1").unwrap().id);
    // By ID, an image has no name.
    let mut nameless = Vec::new();
    first.save(&[&first.resolve("a:1").unwrap().id.to_string()], &mut nameless).unwrap();
    assert!(matches!(third.import(nameless.as_slice(), |_| {}), Err(ImportError::Nameless)));
    first.save(&["c"], &mut Vec::new()).unwrap_err();
}

#[test]
fn busybox_archives_of_the_tests_are_imported() {
    let (dir, store) = store();
    let path = dir.path().join("image.tar");
    let options = test_images::ImageConfig::default();
    match test_images::busybox(&path, &[test_images::BUSYBOX], &options) {
        Err(test_images::ImageError::NoBusybox) => return println!("skipped: no busybox"),
        result => result.unwrap(),
    }
    let begin = std::time::Instant::now();
    store.import(std::fs::File::open(&path).unwrap(), |_| {}).unwrap();
    println!("import of {} bytes: {:?}", std::fs::metadata(&path).unwrap().len(), begin.elapsed());
    test_images::busybox_oci(&path, "example.org/oci:1", &options).unwrap();
    assert_eq!(store.import(std::fs::File::open(&path).unwrap(), |_| {}).unwrap(), ["example.org/oci:1"]);
    let other = test_images::ImageConfig { architecture: Some("s390x".to_owned()), ..options.clone() };
    test_images::busybox_index(&path, "example.org/index:1", &[other, options]).unwrap();
    assert_eq!(store.import(std::fs::File::open(&path).unwrap(), |_| {}).unwrap(), ["example.org/index:1"]);
    assert_eq!(store.list().unwrap().len(), 1, "the images are the same");
    assert_eq!(store.list().unwrap()[0].tags.len(), 3);
}
