//! Identity of a StatefulSet's Pods: ordinal, name, host name, labels and claims.

use crate::{controller_history::CONTROLLER_REVISION_HASH, pod_control::pod_from_template, pod_summary::PodSummary};
use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec},
        core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodSpec, PodTemplateSpec, Volume},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

/// Label of a Pod: its name, so that a Service can select a single Pod.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Label of a Pod: its ordinal.
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// Returns the ordinal of a Pod of the set by its name, `None` for other names (`getParentNameAndOrdinal`).
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i64> {
    let number = pod.strip_prefix(set)?.strip_prefix('-')?;
    let ordinal: i32 = number.parse().ok().filter(|n| *n >= 0)?;
    (ordinal.to_string() == number).then_some(i64::from(ordinal))
}

pub(super) fn name(set: &str, ordinal: i64) -> String {
    format!("{set}-{ordinal}")
}

pub(super) fn claim_name(template: &PersistentVolumeClaim, set: &str, ordinal: i64) -> String {
    format!("{}-{set}-{ordinal}", template.metadata.name.as_deref().unwrap_or_default())
}

fn templates(spec: &StatefulSetSpec) -> &[PersistentVolumeClaim] {
    spec.volume_claim_templates.as_deref().unwrap_or_default()
}

/// Returns the names of a Pod's claims.
pub(super) fn claim_names(set: &str, spec: &StatefulSetSpec, ordinal: i64) -> Vec<String> {
    templates(spec).iter().map(|template| claim_name(template, set, ordinal)).collect()
}

/// Returns the claims of a Pod (`getPersistentVolumeClaims`).
pub(super) fn claims(set: &str, spec: &StatefulSetSpec, ordinal: i64) -> Vec<PersistentVolumeClaim> {
    let selected = spec.selector.match_labels.clone().unwrap_or_default();
    let one = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        claim.metadata.name = Some(claim_name(template, set, ordinal));
        claim.metadata.labels.get_or_insert_default().extend(selected.clone());
        claim
    };
    templates(spec).iter().map(one).collect()
}

/// Returns a Pod of a revision (`newStatefulSetPod`).
pub(super) fn pod(set: &StatefulSet, template: &PodTemplateSpec, revision: &str, ordinal: i64) -> Pod {
    let spec = set.spec.clone().unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let mut pod = pod_from_template(set, template, String::new());
    pod.metadata.generate_name = None;
    pod.metadata.name = Some(name(set_name, ordinal));
    update_identity(&mut pod.metadata, set_name, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(CONTROLLER_REVISION_HASH.to_owned(), revision.to_owned());
    let inner = pod.spec.get_or_insert_default();
    inner.hostname = Some(name(set_name, ordinal));
    inner.subdomain = spec.service_name.clone().filter(|service| !service.is_empty());
    update_storage(inner, set_name, &spec, ordinal);
    pod
}

/// Sets the identity labels (`updateIdentity`).
pub(super) fn update_identity(meta: &mut ObjectMeta, set: &str, ordinal: i64) {
    let labels = meta.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name(set, ordinal));
    labels.insert(INDEX.to_owned(), ordinal.to_string());
}

/// Sets the volumes of the Pod's claims. They replace volumes of the same name in the template (`updateStorage`).
pub(super) fn update_storage(pod: &mut PodSpec, set: &str, spec: &StatefulSetSpec, ordinal: i64) {
    let claimed = |template: &PersistentVolumeClaim| Volume {
        name: template.metadata.name.clone().unwrap_or_default(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_name(template, set, ordinal),
            ..PersistentVolumeClaimVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes: Vec<Volume> = templates(spec).iter().map(claimed).collect();
    let others = pod.volumes.take().unwrap_or_default();
    let is_claimed = |volume: &Volume| templates(spec).iter().any(|t| t.metadata.name.as_ref() == Some(&volume.name));
    volumes.extend(others.into_iter().filter(|volume| !is_claimed(volume)));
    pod.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
}

/// Returns whether the Pod has its identity labels (`identityMatches`).
pub(super) fn identity_matches(pod: &PodSummary) -> bool {
    pod.labels.get(POD_NAME) == Some(&pod.name)
}

/// Returns whether the Pod's volumes use its claims (`storageMatches`).
pub(super) fn storage_matches(pod: &PodSummary, set: &str, spec: &StatefulSetSpec, ordinal: i64) -> bool {
    let has = |template: &PersistentVolumeClaim| {
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        let claim = claim_name(template, set, ordinal);
        pod.claims.iter().any(|(name, known)| name == volume && *known == claim)
    };
    templates(spec).iter().all(has)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value) -> StatefulSet {
        let mut all = json!({"selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "template": {}});
        for (field, value) in spec.as_object().unwrap() {
            all[field] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "w"}, "spec": all})).unwrap()
    }

    #[test]
    fn ordinal_is_parsed_from_the_pod_name() {
        let check = |pod: &str, expected: Option<i64>| assert_eq!(ordinal("web", pod), expected, "{pod}");
        check("web-0", Some(0));
        check("web-12", Some(12));
        check("web-2147483647", Some(2_147_483_647));
        for other in ["web", "web-", "web-01", "web--1", "web-+1", "web-a", "web-1-1", "web-2147483648", "webs-1"] {
            check(other, None);
        }
    }

    #[test]
    fn pod_identity_follows_from_its_ordinal() {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}});
        let set = set(json!({"template": template}));
        let pod = pod(&set, &set.spec.as_ref().unwrap().template, "web-abc", 2);
        assert_eq!((pod.metadata.name.as_deref(), pod.metadata.generate_name), (Some("web-2"), None));
        let labels = serde_json::to_value(&pod.metadata.labels).unwrap();
        let expected = json!({"app": "web", "statefulset.kubernetes.io/pod-name": "web-2",
            "apps.kubernetes.io/pod-index": "2", "controller-revision-hash": "web-abc"});
        assert_eq!(labels, expected);
        let owner = pod.metadata.owner_references.unwrap().remove(0);
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("StatefulSet", "w", Some(true)));
        let spec = pod.spec.unwrap();
        assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("web-2"), Some("web")));
        assert_eq!(spec.volumes, None);
    }

    #[test]
    fn claim_templates_override_volumes_of_the_template() {
        let claims_of = json!([{"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {}}]);
        let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]);
        let template = json!({"spec": {"containers": [], "volumes": volumes}});
        let set = set(json!({"template": template, "volumeClaimTemplates": claims_of}));
        let spec = set.spec.as_ref().unwrap();
        let made = pod(&set, &spec.template, "r", 1);
        let volumes = serde_json::to_value(made.spec.as_ref().unwrap().volumes.as_ref().unwrap()).unwrap();
        let expected = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}, {"name": "tmp", "emptyDir": {}}]);
        assert_eq!(volumes, expected);
        let claim = claims("web", spec, 1).remove(0);
        assert_eq!(claim.metadata.name.as_deref(), Some("data-web-1"));
        assert_eq!(serde_json::to_value(claim.metadata.labels).unwrap(), json!({"a": "b", "app": "web"}));
        let made = PodSummary::from_pod(made);
        assert!(identity_matches(&made) && storage_matches(&made, "web", spec, 1));
        assert!(!storage_matches(&made, "web", spec, 2));
        assert!(!storage_matches(&PodSummary { claims: vec![], ..made.clone() }, "web", spec, 1));
        assert!(!identity_matches(&PodSummary { labels: [].into(), ..made }));
    }
}
