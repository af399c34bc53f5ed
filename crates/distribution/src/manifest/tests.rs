//! Tests of manifests.

use super::*;
use serde_json::{Value, json};

const MAX_SIZE: u64 = 1 << 30;

fn descriptor(media_type: &str, content: &str, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": Digest::of(content.as_bytes()).to_string(), "size": size })
}

fn image(layers: &[Value]) -> Value {
    let config = descriptor("application/vnd.oci.image.config.v1+json", "config", 2);
    json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers })
}

fn layer(content: &str, size: u64) -> Value {
    descriptor("application/vnd.oci.image.layer.v1.tar+gzip", content, size)
}

#[track_caller]
fn parse_value(value: &Value) -> Result<Document, PullError> {
    parse("", value.to_string().as_bytes(), MAX_SIZE)
}

#[track_caller]
fn check_error(value: &Value, kind: PullErrorKind, message: &str) {
    let error = parse_value(value).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn manifest_lists_config_and_distinct_layers() {
    let document = parse_value(&image(&[layer("a", 3), layer("b", 4), layer("a", 3)])).unwrap();
    let Document::Image(image) = document else { panic!("an index") };
    assert_eq!(image.config, Blob { digest: Digest::of(b"config"), size: 2 });
    let blob = |content: &[u8], size| Blob { digest: Digest::of(content), size };
    assert_eq!(image.layers, [blob(b"a", 3), blob(b"b", 4)]);
}

#[test]
fn media_type_comes_from_document_or_header() {
    let mut untyped = image(&[]);
    untyped.as_object_mut().unwrap().remove("mediaType");
    let body = untyped.to_string();
    for content_type in ["", "application/json; charset=utf-8", OCI_MANIFEST, DOCKER_MANIFEST] {
        assert!(matches!(parse(content_type, body.as_bytes(), MAX_SIZE), Ok(Document::Image(_))), "{content_type}");
    }
    let error = parse(OCI_INDEX, body.as_bytes(), MAX_SIZE).unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::InvalidManifest);
    for media_type in ["application/vnd.docker.container.image.v1+json", DOCKER_INDEX] {
        let mut other = image(&[]);
        other["mediaType"] = media_type.into();
        check_error(&other, PullErrorKind::InvalidManifest, "unexpected media type");
    }
}

#[test]
fn ambiguous_or_malformed_manifest_is_rejected() {
    let mut both = image(&[]);
    both["manifests"] = json!([]);
    check_error(&both, PullErrorKind::InvalidManifest, "fields of a manifest and of an index");
    check_error(&json!({}), PullErrorKind::InvalidManifest, "neither a config nor manifests");
    check_error(&json!([]), PullErrorKind::InvalidManifest, "invalid manifest");
    let mut negative = layer("a", 3);
    negative["size"] = json!(-1);
    check_error(&image(&[negative]), PullErrorKind::InvalidManifest, "invalid value");
    let mut path = layer("a", 3);
    path["digest"] = json!("sha256:../../etc/passwd");
    check_error(&image(&[path]), PullErrorKind::InvalidManifest, "invalid checksum digest length");
    check_error(&image(&[layer("a", 3), layer("a", 4)]), PullErrorKind::InvalidManifest, "has two sizes");
    let error = parse_value(&json!("a".repeat(1 << 20))).unwrap_err();
    assert!(error.to_string().len() < 400, "{}", error.to_string().len());
    assert!(parse("", "[".repeat(1 << 20).as_bytes(), MAX_SIZE).is_err());
}

#[test]
fn unsupported_images_are_rejected() {
    let schema_1 = json!({ "schemaVersion": 1, "name": "a", "fsLayers": [] });
    check_error(&schema_1, PullErrorKind::Unsupported, "please rebuild the image");
    let mut foreign = layer("a", 3);
    foreign["urls"] = json!(["http://127.0.0.1/a"]);
    check_error(&image(&[foreign]), PullErrorKind::Unsupported, "foreign layers are not supported");
    for media_type in [
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
        "",
    ] {
        check_error(&image(&[descriptor(media_type, "a", 3)]), PullErrorKind::Unsupported, "layer");
    }
}

#[test]
fn sizes_and_counts_are_limited() {
    let layers = |n: usize| (0..n).map(|i| layer(&i.to_string(), 1)).collect::<Vec<_>>();
    assert!(parse_value(&image(&layers(127))).is_ok());
    check_error(&image(&layers(128)), PullErrorKind::TooLarge, "128 layers, the limit is 127");
    check_error(&image(&[layer("a", MAX_SIZE)]), PullErrorKind::TooLarge, "byte image");
    check_error(&image(&[layer("a", u64::MAX), layer("b", u64::MAX)]), PullErrorKind::TooLarge, "byte image");
    let mut config = image(&[]);
    config["config"]["size"] = json!(MAX_CONFIG_SIZE + 1);
    check_error(&config, PullErrorKind::TooLarge, "byte config");
}

#[test]
fn best_platform_of_index_is_selected() {
    let entry = |content: &str, os: &str, architecture: &str, variant: &str| {
        let mut entry = descriptor(OCI_MANIFEST, content, 10);
        entry["platform"] = json!({ "os": os, "architecture": architecture, "variant": variant });
        entry
    };
    let bare = descriptor(OCI_MANIFEST, "bare", 10);
    let entries = [
        bare,
        entry("attestation", "unknown", "unknown", ""),
        entry("windows", "windows", "amd64", ""),
        entry("386", "linux", "386", ""),
        entry("amd64", "linux", "amd64", ""),
        entry("amd64 again", "linux", "amd64", ""),
        entry("arm64", "linux", "arm64", "v8"),
    ];
    let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries });
    let Document::Index(entries) = parse_value(&index).unwrap() else { panic!("an image") };
    let selected = |architecture: &str| {
        let platform = Platform { architecture: architecture.to_owned(), variant: String::new() };
        select(&entries, &Digest::of(b""), &platform).unwrap().digest
    };
    assert_eq!(selected("amd64"), Digest::of(b"amd64"));
    assert_eq!(selected("arm64"), Digest::of(b"arm64"));
    assert_eq!(selected("s390x"), Digest::of(b"bare"));
    let platform = Platform { architecture: "s390x".to_owned(), variant: String::new() };
    let error = select(&entries[1..], &Digest::of(b"index"), &platform).unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::NoPlatform);
    let message = format!("no match for platform in manifest {}: not found", Digest::of(b"index"));
    assert_eq!(error.to_string(), message);
}

#[test]
fn platform_of_config_is_checked() {
    let platform = Platform { architecture: "amd64".to_owned(), variant: String::new() };
    let check = |config: Value| check_platform(config.to_string().as_bytes(), &Digest::of(b""), &platform);
    assert!(check(json!({})).is_ok());
    assert!(check(json!({ "os": "linux", "architecture": "amd64" })).is_ok());
    let kind = |config| check(config).unwrap_err().kind();
    assert_eq!(kind(json!({ "os": "linux", "architecture": "arm64" })), PullErrorKind::NoPlatform);
    assert_eq!(kind(json!({ "os": "windows", "architecture": "amd64" })), PullErrorKind::NoPlatform);
    assert_eq!(kind(json!("text")), PullErrorKind::InvalidManifest);
}
