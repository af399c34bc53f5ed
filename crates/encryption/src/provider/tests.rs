use super::*;

#[test]
fn displayed_prefix_excludes_encrypted_data() {
    let shown = |stored: &[u8]| display_prefix(stored);
    assert_eq!(shown(b"k8s:enc:aescbc:v1:key1:\xff\x00more:").as_deref(), Some("k8s:enc:aescbc:v1:key1:"));
    assert_eq!(shown(b"k8s:enc:kms:v2:name:more").as_deref(), Some("k8s:enc:kms:v2:name:"));
    assert_eq!(shown(b"k8s:enc:x").as_deref(), Some("k8s:enc:"));
    for stored in [&b"{}"[..], b"k8s:en", b"k8s:enc:\xff:", b"k8s:enc:\x1b[31m:"] {
        assert_eq!(shown(stored), None);
    }
}

#[test]
fn duplicate_errors_are_aggregated() {
    let errors = |texts: &[&str]| texts.iter().map(|text| TransformError((*text).to_owned())).collect();
    assert_eq!(aggregate(errors(&[]), "none").0, "none");
    assert_eq!(aggregate(errors(&["a", "a"]), "none").0, "a");
    assert_eq!(aggregate(errors(&["a", "b"]), "none").0, "[a, b]");
}
