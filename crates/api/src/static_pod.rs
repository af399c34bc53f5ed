//! Static Pods, which are defined by manifests on a node, and their mirror Pods in the API (`pkg/kubelet/types`).

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume, VolumeProjection};

/// Annotation with the source of a Pod: [`FILE`] for a manifest on the node, otherwise `api` (`ConfigSourceAnnotationKey`).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation with the hash of a static Pod, from which its UID is derived (`ConfigHashAnnotationKey`).
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// Annotation with the time at which the kubelet first saw the manifest (`ConfigFirstSeenAnnotationKey`).
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Annotation of a mirror Pod with the hash of its static Pod (`ConfigMirrorAnnotationKey`).
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Source of a static Pod from a manifest file (`FileSource`).
pub const FILE: &str = "file";

/// Error for a volume of an unknown type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VolumeTypeError {
    /// Unknown volume type.
    #[error("unknown volume type for volume {0:?}")]
    Volume(String),
    /// Unknown source of a projected volume.
    #[error("unknown source for projected volume {0:?}")]
    Projection(String),
}

/// Returns an annotation of a Pod.
#[must_use]
pub fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns whether this is a static Pod (`IsStaticPod`). A mirror Pod is not, although it has the same annotations.
#[must_use]
pub fn is_static(pod: &Pod) -> bool {
    !is_mirror(pod) && annotation(pod, CONFIG_SOURCE).is_some_and(|source| source != "api")
}

/// Returns whether this is a mirror Pod (`IsMirrorPod`).
#[must_use]
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}

/// Returns the first kind of API object that a spec refers to (`HasAPIObjectReference`). Static Pods must not refer to any,
/// because they run without the API (gate `PreventStaticPodAPIReferences`).
///
/// # Errors
/// When a volume is of an unknown type, which might refer to an API object.
pub fn api_reference(spec: &PodSpec) -> Result<Option<&'static str>, VolumeTypeError> {
    if has_service_account(spec) {
        return Ok(Some("serviceaccounts"));
    }
    if references_secrets(spec) {
        return Ok(Some("secrets"));
    }
    let volumes = || spec.volumes.iter().flatten();
    let (env, env_from) = environment(spec);
    let value_from = |e: &EnvVar| e.value_from.clone().unwrap_or_default();
    if env.iter().any(|e| value_from(e).config_map_key_ref.is_some())
        || env_from.iter().any(|e| e.config_map_ref.is_some())
        || volumes().any(|v| v.config_map.is_some() || sources(v).any(|s| s.config_map.is_some()))
    {
        return Ok(Some("configmaps"));
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        return Ok(Some("resourceclaims"));
    }
    for volume in volumes() {
        if let Some(resource) = volume_api_reference(volume) {
            return Ok(Some(resource));
        }
        check_volume_type(volume)?;
    }
    Ok(None)
}

/// Returns whether a spec sets a service account.
#[must_use]
pub fn has_service_account(spec: &PodSpec) -> bool {
    spec.service_account_name.as_deref().is_some_and(|name| !name.is_empty())
}

/// Returns whether a spec refers to a Secret (`VisitPodSecretNames`).
#[must_use]
pub fn references_secrets(spec: &PodSpec) -> bool {
    let (env, env_from) = environment(spec);
    spec.image_pull_secrets.as_ref().is_some_and(|s| !s.is_empty())
        || env.iter().any(|e| e.value_from.as_ref().is_some_and(|value_from| value_from.secret_key_ref.is_some()))
        || env_from.iter().any(|e| e.secret_ref.is_some())
        || spec.volumes.iter().flatten().any(volume_references_secret)
}

/// Returns whether a spec has a projected service account token volume.
#[must_use]
pub fn projects_service_account_token(spec: &PodSpec) -> bool {
    spec.volumes.iter().flatten().flat_map(sources).any(|source| source.service_account_token.is_some())
}

/// Returns `env` and `envFrom` of all containers.
fn environment(spec: &PodSpec) -> (Vec<&EnvVar>, Vec<&EnvFromSource>) {
    let (mut env, mut env_from) = (Vec::new(), Vec::new());
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        env.extend(container.env.iter().flatten());
        env_from.extend(container.env_from.iter().flatten());
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        env.extend(container.env.iter().flatten());
        env_from.extend(container.env_from.iter().flatten());
    }
    (env, env_from)
}

fn sources(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().flat_map(|p| p.sources.iter().flatten())
}

/// Returns whether a volume of any type refers to a Secret.
fn volume_references_secret(volume: &Volume) -> bool {
    volume.secret.is_some()
        || sources(volume).any(|s| s.secret.is_some())
        || volume.azure_file.is_some()
        || volume.cephfs.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.cinder.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.flex_volume.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.rbd.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.scale_io.is_some()
        || volume.iscsi.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.storageos.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.csi.as_ref().is_some_and(|v| v.node_publish_secret_ref.is_some())
}

/// Rejects volumes and projected sources of an unknown type.
fn check_volume_type(volume: &Volume) -> Result<(), VolumeTypeError> {
    let name = &volume.name;
    if *volume == (Volume { name: name.clone(), ..Volume::default() }) {
        return Err(VolumeTypeError::Volume(name.clone()));
    }
    if sources(volume).any(|source| *source == VolumeProjection::default()) {
        return Err(VolumeTypeError::Projection(name.clone()));
    }
    Ok(())
}

fn volume_api_reference(volume: &Volume) -> Option<&'static str> {
    if volume.csi.is_some() {
        return Some("csidrivers (via CSI volumes)");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints (via glusterFS volumes)");
    }
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims (via ephemeral volumes)");
    }
    sources(volume).find_map(|source| {
        if source.service_account_token.is_some() {
            Some("serviceaccounts (via projected volumes)")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else if source.pod_certificate.is_some() {
            Some("podcertificates")
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(spec: Value, expected: Option<&str>) {
        let mut all = json!({"containers": [{"name": "c", "image": "i"}]});
        spec.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        let parsed: PodSpec = serde_json::from_value(all).unwrap();
        assert_eq!(api_reference(&parsed), Ok(expected), "{spec}");
    }

    #[test]
    fn api_references_of_a_pod_spec_are_found() {
        let container = |fields: Value| {
            let mut container = json!({"name": "c", "image": "i"});
            fields.as_object().unwrap().iter().for_each(|(key, value)| container[key] = value.clone());
            json!([container])
        };
        let volume = |source: Value| {
            let mut volume = json!({"name": "v"});
            source.as_object().unwrap().iter().for_each(|(key, value)| volume[key] = value.clone());
            json!({"volumes": [volume]})
        };
        check(json!({}), None);
        check(json!({"serviceAccountName": "default"}), Some("serviceaccounts"));
        check(json!({"imagePullSecrets": [{"name": "s"}]}), Some("secrets"));
        let key = json!({"name": "x", "key": "k"});
        for (field, expected) in [("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")] {
            let env = container(json!({"env": [{"name": "A", "valueFrom": {field: key}}]}));
            check(json!({"containers": env}), Some(expected));
            check(json!({"initContainers": env}), Some(expected));
        }
        for (field, expected) in [("secretRef", "secrets"), ("configMapRef", "configmaps")] {
            check(json!({"containers": container(json!({"envFrom": [{field: {"name": "x"}}]}))}), Some(expected));
        }
        check(json!({"containers": container(json!({"env": [{"name": "A", "value": "b"}]}))}), None);
        check(volume(json!({"secret": {"secretName": "s"}})), Some("secrets"));
        check(volume(json!({"configMap": {"name": "c"}})), Some("configmaps"));
        check(volume(json!({"persistentVolumeClaim": {"claimName": "c"}})), Some("persistentvolumeclaims"));
        for local in
            [json!({"emptyDir": {}}), json!({"hostPath": {"path": "/x"}}), json!({"downwardAPI": {"items": []}})]
        {
            check(volume(local), None);
        }
        for (source, expected) in [
            (json!({"secret": {"name": "s"}}), Some("secrets")),
            (json!({"configMap": {"name": "c"}}), Some("configmaps")),
            (json!({"serviceAccountToken": {"path": "t"}}), Some("serviceaccounts (via projected volumes)")),
            (json!({"downwardAPI": {"items": []}}), None),
        ] {
            check(volume(json!({"projected": {"sources": [source]}})), expected);
        }
    }

    #[test]
    fn volume_of_unknown_type_is_refused() {
        for (volume, expected) in [
            (json!({"name": "v", "newType": {}}), "unknown volume type for volume \"v\""),
            (
                json!({"name": "v", "projected": {"sources": [{"newType": {}}]}}),
                "unknown source for projected volume \"v\"",
            ),
        ] {
            let spec: PodSpec = serde_json::from_value(json!({"containers": [], "volumes": [volume]})).unwrap();
            assert_eq!(api_reference(&spec).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn mirror_pod_is_not_a_static_pod() {
        let with = |annotations: Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        let (file, mirror) =
            (with(json!({CONFIG_SOURCE: "file"})), with(json!({CONFIG_SOURCE: "file", CONFIG_MIRROR: "h"})));
        assert_eq!((is_static(&file), is_mirror(&file)), (true, false));
        assert_eq!((is_static(&mirror), is_mirror(&mirror)), (false, true));
        assert!(!is_static(&with(json!({}))) && !is_static(&with(json!({CONFIG_SOURCE: "api"}))));
    }
}
