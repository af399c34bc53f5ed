//! Image pull Secrets of Pods (upstream's `pkg/credentialprovider/secrets`).

use super::keyring::{DockerConfig, Keyring, SecretCoordinates};
use crate::{Shared, object_cache::ObjectCache, pods};
use k8s_openapi::api::core::v1::Secret;
use lifecycle::Pod;
use serde::Deserialize;
use std::sync::Arc;

/// Invalid content of an image pull Secret.
#[derive(Debug, thiserror::Error)]
#[error("image pull secret {name:?}: {source}")]
pub(crate) struct PullSecretError {
    name: String,
    source: serde_json::Error,
}

/// Docker's `config.json`; only the credentials are parsed.
#[derive(Deserialize)]
pub(super) struct ConfigJson {
    pub(super) auths: Option<DockerConfig>,
}

/// Returns the pull Secrets of a Pod, and the names of missing ones.
pub(crate) async fn fetch(shared: &Shared, pod: &Pod) -> (Vec<Arc<Secret>>, Vec<String>) {
    let names = pods::spec(pod).image_pull_secrets.iter().flatten().map(|s| s.name.as_str());
    let mut objects = ObjectCache::new(shared, pod.namespace());
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    // Entries without a name are skipped, as upstream does.
    for name in names.filter(|name| !name.is_empty()) {
        match objects.secret(name, true).await {
            Ok(Some(secret)) => found.push(secret),
            Ok(None) => missing.push(name.to_owned()),
            Err(error) => {
                tracing::warn!(pod = pod.name(), name, %error, "failed to read image pull secret");
                missing.push(name.to_owned());
            }
        }
    }
    (found, missing)
}

/// Adds the credentials of Secrets to a keyring; Secrets of other types are skipped.
///
/// # Errors
/// Fails with the name of an invalid Secret.
pub(crate) fn add(keyring: &mut Keyring, secrets: &[Arc<Secret>]) -> Result<(), PullSecretError> {
    for secret in secrets {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let meta = &secret.metadata;
        let id = SecretCoordinates { uid: text(&meta.uid), namespace: text(&meta.namespace), name: text(&meta.name) };
        let config = read(secret).map_err(|source| PullSecretError { name: id.name.clone(), source })?;
        if let Some(config) = config {
            keyring.add(Some(&id), config);
        }
    }
    Ok(())
}

fn read(secret: &Secret) -> serde_json::Result<Option<DockerConfig>> {
    let bytes = |key: &str| secret.data.as_ref()?.get(key).map(|b| b.0.as_slice()).filter(|b| !b.is_empty());
    let kind = secret.type_.as_deref().unwrap_or("");
    match (kind, bytes(".dockerconfigjson"), bytes(".dockercfg")) {
        ("kubernetes.io/dockerconfigjson", Some(json), _) => {
            serde_json::from_slice::<ConfigJson>(json).map(|config| config.auths)
        }
        ("kubernetes.io/dockercfg", _, Some(json)) => serde_json::from_slice(json).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    /// Returns the usernames that are tried for the image `r.io/a` with this Secret, and its name.
    fn check_lookup(kind: &str, key: &str, value: &Value) -> Result<Vec<(String, String)>, PullSecretError> {
        let data = STANDARD.encode(value.to_string());
        let secret =
            json!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"}, "type": kind, "data": {key: data}});
        let mut keyring = Keyring::default();
        add(&mut keyring, &[Arc::new(serde_json::from_value(secret).unwrap())])?;
        let found = keyring.lookup("r.io/a").into_iter();
        Ok(found.map(|c| (c.login.username, c.source.unwrap_or_default().name)).collect())
    }

    #[test]
    fn docker_config_secrets_are_read_and_other_types_skipped() {
        let auths = json!({"r.io": {"username": "robot", "password": "p"}});
        let robot = vec![("robot".to_owned(), "s".to_owned())];
        let (new, old) = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg");
        assert_eq!(check_lookup(new, ".dockerconfigjson", &json!({"auths": auths})).unwrap(), robot);
        assert_eq!(check_lookup(old, ".dockercfg", &auths).unwrap(), robot);
        for (kind, key) in [(new, ".dockercfg"), (old, ".dockerconfigjson"), ("Opaque", ".dockercfg")] {
            assert_eq!(check_lookup(kind, key, &auths).unwrap(), [], "{kind} {key}");
        }
        assert_eq!(check_lookup(new, ".dockerconfigjson", &json!({"credHelpers": {}})).unwrap(), []);
    }

    #[test]
    fn invalid_pull_secret_is_named() {
        let error = check_lookup("kubernetes.io/dockercfg", ".dockercfg", &json!({"r.io": {"auth": "x"}})).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("image pull secret \"s\": unable to decode auth field"), "{error}");
    }
}
