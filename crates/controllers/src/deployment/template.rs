//! Comparison and hash of Pod templates.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use std::collections::BTreeMap;

/// Label of a ReplicaSet and its Pods: hash of the template.
pub(super) const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Compares templates, ignoring the hash label (`EqualIgnoreHash`).
pub(super) fn equal_ignore_hash(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    without_hash(one) == without_hash(other)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        let empty = |map: &BTreeMap<String, String>| map.is_empty();
        if let Some(labels) = &mut meta.labels {
            labels.remove(POD_TEMPLATE_HASH);
        }
        meta.labels = meta.labels.take().filter(|map| !empty(map));
        meta.annotations = meta.annotations.take().filter(|map| !empty(map));
        meta.creation_timestamp = None;
    }
    template.metadata = template.metadata.filter(|meta| *meta != Default::default());
    template
}

/// Returns the hash of a template: FNV-1a of its JSON, encoded in letters that form no words (`ComputeHash`).
/// `collisions` is the owner's `collisionCount`.
pub(crate) fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = serde_json::to_vec(&without_hash(template)).unwrap_or_default();
    let collisions = collisions.map(i32::to_le_bytes);
    let bytes = text.iter().chain(collisions.iter().flatten());
    let sum = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    sum.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn template(value: Value) -> PodTemplateSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn templates_are_equal_ignoring_the_hash_label() {
        let plain = template(json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}));
        let hashed = json!({"metadata": {"labels": {"app": "a", POD_TEMPLATE_HASH: "x"}, "creationTimestamp": null}, "spec": {"containers": []}});
        assert!(equal_ignore_hash(&plain, &template(hashed)));
        let other = json!({"metadata": {"labels": {"app": "b"}}, "spec": {"containers": []}});
        assert!(!equal_ignore_hash(&plain, &template(other)));
        assert!(equal_ignore_hash(
            &template(json!({})),
            &template(json!({"metadata": {"labels": {POD_TEMPLATE_HASH: "x"}}}))
        ));
    }

    #[test]
    fn template_hash_is_stable_and_differs_after_a_collision() {
        let one = template(json!({"metadata": {"labels": {"app": "a"}}}));
        let name = hash(&one, None);
        assert!(name.len() <= 10 && name.chars().all(|c| c.is_ascii_alphanumeric()), "{name}");
        assert_eq!(name, hash(&one, None));
        assert_ne!(name, hash(&one, Some(1)));
        assert_ne!(name, hash(&template(json!({"metadata": {"labels": {"app": "b"}}})), None));
    }
}
