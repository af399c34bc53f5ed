use super::*;
use crate::{
    platform::linux,
    tests::{config, store, two_layers},
};
use serde_json::{Value, json};

fn descriptor(digest: &Digest) -> Value {
    json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest.to_string(), "size": 1})
}

#[test]
fn documents_that_are_ambiguous_or_too_large_are_refused() {
    let digest = Digest::of(b"");
    let layers = |n: usize| vec![descriptor(&digest); n];
    let manifest = |n: usize| json!({"schemaVersion": 2, "config": descriptor(&digest), "layers": layers(n)});
    let parsed = |document: &Value| parse(document.to_string().as_bytes());
    assert!(matches!(parsed(&manifest(127)), Ok(Document::Manifest(_))));
    let error = parsed(&manifest(128)).unwrap_err();
    assert_eq!(error, "it has 128 layers, but overlayfs mounts at most 127: squash some of them");
    let mut both = manifest(1);
    both["manifests"] = json!([]);
    assert_eq!(parsed(&both).unwrap_err(), "it is both a manifest and an index");
    let mut large = manifest(1);
    large["config"]["size"] = json!(5 << 20);
    assert!(parsed(&large).unwrap_err().contains("configuration has more than"));
    assert!(matches!(parsed(&json!({"schemaVersion": 2, "manifests": layers(3)})), Ok(Document::Index(_))));
    for document in [json!({}), json!([]), json!({"schemaVersion": 1}), json!({"schemaVersion": 2})] {
        parsed(&document).unwrap_err();
    }
}

#[test]
fn chain_ids_are_those_of_the_specification() {
    let [a, b, c] = ["a", "b", "c"].map(|text| Digest::of(text.as_bytes()));
    let ab = Digest::of(format!("{a} {b}").as_bytes());
    let abc = Digest::of(format!("{ab} {c}").as_bytes());
    assert_eq!(chain_ids(&[a, b, c]), [a, ab, abc]);
    assert!(chain_ids(&[]).is_empty());
}

/// Stores a manifest without layers for an architecture.
fn image(lease: &crate::Lease, architecture: &str) -> Digest {
    let config = json!({"os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []}});
    let config = lease.put(config.to_string().as_bytes()).unwrap();
    let manifest = json!({"schemaVersion": 2, "config": descriptor(&config), "layers": []});
    lease.put(manifest.to_string().as_bytes()).unwrap()
}

fn index(lease: &crate::Lease, entries: &[Value]) -> Digest {
    lease.put(json!({"schemaVersion": 2, "manifests": entries}).to_string().as_bytes()).unwrap()
}

#[test]
fn manifest_for_the_platform_is_found() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let (arm, s390x) = (image(&lease, "arm64"), image(&lease, "s390x"));
    let on = |digest: &Digest, architecture: &str| {
        let mut entry = descriptor(digest);
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let missing = Digest::of(b"missing");
    let entries = [on(&missing, "ppc64le"), on(&arm, "arm64"), on(&s390x, "s390x"), on(&missing, "riscv64")];
    let nested = index(&lease, &[descriptor(&index(&lease, &entries))]);
    for (architecture, expected) in [("arm64", Some(&arm)), ("s390x", Some(&s390x)), ("riscv64", None), ("386", None)] {
        let store = store.with_platform(linux(architecture));
        let found = store.find_manifest(&nested);
        assert_eq!(found.as_ref().ok().map(|content| &content.manifest_digest), expected, "{architecture}");
        assert!(expected.is_some() || matches!(found, Err(Error::NoPlatform { .. })));
    }
    let foreign = store.with_platform(linux("arm64")).find_manifest(&s390x).unwrap_err();
    assert_eq!(foreign.to_string(), format!("{s390x}: no match for platform linux/arm64 in manifest"));
}

#[test]
fn nested_indexes_are_limited() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let mut deep = image(&lease, "none");
    for _ in 0..6 {
        deep = index(&lease, &[descriptor(&deep)]);
    }
    let error = store.find_manifest(&deep).unwrap_err().to_string();
    assert!(error.contains("nested deeper"), "{error}");
    let mut wide = image(&lease, "none");
    for _ in 0..3 {
        wide = index(&lease, &vec![descriptor(&wide); 1000]);
    }
    let error = store.find_manifest(&wide).unwrap_err().to_string();
    assert!(error.contains("candidates"), "{error}");
}

#[test]
fn image_without_layers_may_have_null_lists() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let mut document: Value = serde_json::from_slice(&config(&[], &json!(null))).unwrap();
    document["rootfs"]["diff_ids"] = Value::Null;
    let config = lease.put(document.to_string().as_bytes()).unwrap();
    let manifest = json!({"schemaVersion": 2, "config": descriptor(&config), "layers": null});
    let digest = lease.put(manifest.to_string().as_bytes()).unwrap();
    assert_eq!(store.find_manifest(&digest).unwrap().id, config);
    document["rootfs"]["diff_ids"] = json!("x");
    let config = lease.put(document.to_string().as_bytes()).unwrap();
    store.config(&config).unwrap_err();
}

#[test]
fn layers_of_manifest_and_configuration_must_agree() {
    let (_dir, store) = store();
    let lease = store.lease().unwrap();
    let config = lease.put(&config(&two_layers(), &json!({}))).unwrap();
    let manifest = json!({"schemaVersion": 2, "config": descriptor(&config), "layers": [descriptor(&config)]});
    let digest = lease.put(manifest.to_string().as_bytes()).unwrap();
    let error = store.find_manifest(&digest).unwrap_err().to_string();
    assert_eq!(error, format!("invalid image {digest}: it has 1 layers, and its configuration 2"));
    let sha512 = json!({"schemaVersion": 2, "config": {"mediaType": "x", "size": 1, "digest": format!("sha512:{}", "a".repeat(128))},
        "layers": []});
    let digest = lease.put(sha512.to_string().as_bytes()).unwrap();
    assert!(matches!(store.find_manifest(&digest), Err(Error::Digest { .. })));
}
