//! Environment variables of containers.

mod env_file;
mod expand;
mod services;

use crate::{
    Shared, blocking,
    object_cache::{ObjectCache, ObjectError},
    volumes::{self, DownwardApiError, field_ref_value, resource_field_ref_value},
};
pub(crate) use expand::expand;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, FileKeySelector};
use lifecycle::Pod;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// Failure to collect the environment variables of a container, with upstream's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvVarError {
    #[error(transparent)]
    Services(kube::Error),
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    MissingKey { kind: &'static str, namespace: String, name: String, key: String },
    #[error(transparent)]
    DownwardApi(#[from] DownwardApiError),
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    MissingVolume(String),
    /// The cause is logged only: it must not reveal the file's content, which may be secret.
    #[error("couldn't parse env file")]
    EnvFile,
    #[error("environment variable key {key:?} not found in file {path:?}")]
    MissingFileKey { key: String, path: PathBuf },
    #[error("an environment variable has a source of a type that is not supported yet")]
    UnsupportedSource,
}

/// Variables in a path that are missing or empty.
#[derive(Debug, thiserror::Error)]
#[error("missing value for {}", Vec::from_iter(.0.iter().cloned()).join(", "))]
pub(crate) struct MissingValueError(BTreeSet<String>);

/// Environment variables in the order of the spec; a later value replaces an earlier one of the same name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct EnvVars(Vec<(String, String)>);

impl EnvVars {
    /// Returns the value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Expands `$(NAME)`.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name))
    }

    /// Expands `$(NAME)` in a path (`ExpandContainerVolumeMounts`).
    ///
    /// # Errors
    /// Fails if a variable is missing or empty: the path would be another directory.
    pub(crate) fn expand_path(&self, text: &str) -> Result<String, MissingValueError> {
        let missing = std::cell::RefCell::new(BTreeSet::new());
        let expanded = expand(text, |name| {
            let value = self.get(name).filter(|value| !value.is_empty());
            if value.is_none() {
                missing.borrow_mut().insert(name.to_owned());
            }
            value
        });
        let missing = missing.into_inner();
        if missing.is_empty() { Ok(expanded) } else { Err(MissingValueError(missing)) }
    }

    pub(crate) fn into_pairs(self) -> Vec<(String, String)> {
        self.0
    }

    fn set(&mut self, name: String, value: String) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }
}

/// Returns a container's environment variables: Services, `envFrom`, then `env`, each of which may refer to earlier ones.
pub(crate) async fn make_environment_variables(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    objects: &mut ObjectCache<'_>,
) -> Result<EnvVars, EnvVarError> {
    let mut env = EnvVars(services::service_env_vars(shared, pod).await.map_err(EnvVarError::Services)?);
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (key, value) in env_from_values(source, objects).await? {
            env.set(format!("{prefix}{key}"), value);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (variable.value.as_deref().filter(|v| !v.is_empty()), &variable.value_from) {
            (None, Some(source)) => match value_from(shared, pod, container, source, objects).await? {
                Some(value) => value,
                None => continue,
            },
            (value, _) => env.expand(value.unwrap_or_default()),
        };
        env.set(variable.name.clone(), value);
    }
    Ok(env)
}

async fn env_from_values(
    source: &EnvFromSource,
    objects: &mut ObjectCache<'_>,
) -> Result<BTreeMap<String, String>, EnvVarError> {
    if let Some(r) = &source.config_map_ref {
        let found = objects.config_map(&r.name, r.optional == Some(true)).await?;
        return Ok(found.and_then(|o| o.data.clone()).unwrap_or_default());
    }
    if let Some(r) = &source.secret_ref {
        let found = objects.secret(&r.name, r.optional == Some(true)).await?;
        let data = found.and_then(|o| o.data.clone()).unwrap_or_default();
        return Ok(data.into_iter().map(|(k, v)| (k, text(&v.0))).collect());
    }
    Ok(BTreeMap::new())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the value of one variable, or `None` if an optional source is missing.
async fn value_from(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    objects: &mut ObjectCache<'_>,
) -> Result<Option<String>, EnvVarError> {
    let missing = |kind, name: &str, key: &str, optional: bool| {
        if optional {
            return Ok(None);
        }
        let (namespace, name, key) = (pod.namespace().to_owned(), name.to_owned(), key.to_owned());
        Err(EnvVarError::MissingKey { kind, namespace, name, key })
    };
    if let Some(r) = &source.config_map_key_ref {
        let optional = r.optional == Some(true);
        let found = objects.config_map(&r.name, optional).await?;
        let value = found.as_ref().and_then(|o| o.data.as_ref()?.get(&r.key).cloned());
        return value.map_or_else(|| missing("ConfigMap", &r.name, &r.key, optional), |v| Ok(Some(v)));
    }
    if let Some(r) = &source.secret_key_ref {
        let optional = r.optional == Some(true);
        let found = objects.secret(&r.name, optional).await?;
        let value = found.as_ref().and_then(|o| o.data.as_ref()?.get(&r.key).map(|v| text(&v.0)));
        return value.map_or_else(|| missing("Secret", &r.name, &r.key, optional), |v| Ok(Some(v)));
    }
    if let Some(r) = &source.field_ref {
        return Ok(Some(field_ref_value(shared, pod, &r.field_path)?));
    }
    if let Some(r) = &source.resource_field_ref {
        return Ok(Some(resource_field_ref_value(shared, pod, Some(container), r)?));
    }
    if let Some(r) = &source.file_key_ref {
        return file_key_ref_value(shared, pod, r).await;
    }
    Err(EnvVarError::UnsupportedSource)
}

/// Returns a variable of an env file; an empty one counts as missing, as upstream.
async fn file_key_ref_value(
    shared: &Shared,
    pod: &Pod,
    source: &FileKeySelector,
) -> Result<Option<String>, EnvVarError> {
    let (name, key) = (&source.volume_name, source.key.clone());
    let volume = volumes::volume_path(shared, pod, name).map_err(|_| EnvVarError::MissingVolume(name.clone()))?;
    let (path, file, variable) = (volume.join(&source.path), source.path.clone(), key.clone());
    let value = blocking::run(move || env_file::value(&volume, &file, &variable)).await.map_err(|error| {
        // The error must not contain the file's content, which may be secret.
        tracing::info!(pod = pod.name(), %error, "failed to read env file");
        EnvVarError::EnvFile
    })?;
    match value {
        value if !value.is_empty() => Ok(Some(value)),
        _ if source.optional == Some(true) => Ok(None),
        _ => Err(EnvVarError::MissingFileKey { key, path }),
    }
}

#[cfg(test)]
mod tests {
    use super::EnvVars;

    #[test]
    fn path_with_a_missing_variable_is_an_error() {
        let env = EnvVars(vec![("POD".to_owned(), "web".to_owned()), ("EMPTY".to_owned(), String::new())]);
        for (path, expected) in [
            ("logs/$(POD)", Ok("logs/web")),
            ("plain", Ok("plain")),
            ("$$(NONE)", Ok("$(NONE)")),
            ("$(EMPTY)", Err("missing value for EMPTY")),
            ("$(NONE)/$(EMPTY)/$(NONE)", Err("missing value for EMPTY, NONE")),
        ] {
            let found = env.expand_path(path).map_err(|e| e.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected, "{path}");
        }
    }
}
