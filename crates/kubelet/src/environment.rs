//! The environment of a container.

mod env_file;
mod expand;
mod services;

use crate::{
    Shared, blocking,
    objects::Objects,
    volumes::{self, field, resource_field},
};
pub(crate) use expand::expand;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource, FileKeySelector};
use lifecycle::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// Names and values in the order of the spec; a later one of the same name takes the place of an earlier one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Environment(Vec<(String, String)>);

impl Environment {
    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Replaces `$(NAME)`.
    pub(crate) fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name))
    }

    /// Replaces `$(NAME)` in a path (`ExpandContainerVolumeMounts`).
    ///
    /// # Errors
    /// When a variable is not known or empty: it would lead to another directory than the one that is meant.
    pub(crate) fn expand_path(&self, text: &str) -> Result<String, String> {
        let missing = std::cell::RefCell::new(BTreeSet::new());
        let expanded = expand(text, |name| {
            let value = self.get(name).filter(|value| !value.is_empty());
            if value.is_none() {
                missing.borrow_mut().insert(name.to_owned());
            }
            value
        });
        let missing = missing.into_inner();
        if missing.is_empty() {
            return Ok(expanded);
        }
        Err(format!("missing value for {}", Vec::from_iter(missing).join(", ")))
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

/// Puts a container's environment together: Services, `envFrom`, then `env`, each of which may refer to what is before it.
///
/// # Errors
/// In upstream's words for an object or key that does not exist.
pub(crate) async fn environment(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    objects: &mut Objects<'_>,
) -> Result<Environment, String> {
    let mut env = Environment(services::variables(shared, pod).await?);
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (key, value) in all_keys(source, objects).await? {
            env.set(format!("{prefix}{key}"), value);
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (variable.value.as_deref().filter(|v| !v.is_empty()), &variable.value_from) {
            (None, Some(source)) => match one_value(shared, pod, container, source, objects).await? {
                Some(value) => value,
                None => continue,
            },
            (value, _) => env.expand(value.unwrap_or_default()),
        };
        env.set(variable.name.clone(), value);
    }
    Ok(env)
}

async fn all_keys(source: &EnvFromSource, objects: &mut Objects<'_>) -> Result<BTreeMap<String, String>, String> {
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

/// `None` when an optional source is not there.
async fn one_value(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    source: &EnvVarSource,
    objects: &mut Objects<'_>,
) -> Result<Option<String>, String> {
    let missing = |kind: &str, name: &str, key: &str, optional: bool| {
        if optional { Ok(None) } else { Err(format!("couldn't find key {key} in {kind} {}/{name}", pod.namespace())) }
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
        return field(shared, pod, &r.field_path).map(Some);
    }
    if let Some(r) = &source.resource_field_ref {
        return resource_field(shared, pod, Some(container), r).map(Some);
    }
    if let Some(r) = &source.file_key_ref {
        return from_file(shared, pod, r).await;
    }
    Err("an environment variable has a source of a type that is not supported yet".to_owned())
}

/// A variable of a file; one that is empty counts as none, as upstream.
async fn from_file(shared: &Shared, pod: &Pod, source: &FileKeySelector) -> Result<Option<String>, String> {
    let (name, key) = (&source.volume_name, source.key.clone());
    let volume = volumes::source(shared, pod, name)
        .map_err(|_| format!("cannot find the volume {name:?} referenced by FileKeyRef"))?;
    let (place, file, wanted) = (volume.join(&source.path), source.path.clone(), key.clone());
    let value = blocking::run(move || env_file::value(&volume, &file, &wanted)).await.map_err(|error| {
        // Nothing of the file itself: what is in it may be a secret.
        tracing::info!(pod = pod.name(), %error, "an env file could not be read");
        "couldn't parse env file".to_owned()
    })?;
    match value {
        value if !value.is_empty() => Ok(Some(value)),
        _ if source.optional == Some(true) => Ok(None),
        _ => Err(format!("environment variable key {key:?} not found in file {place:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::Environment;

    #[test]
    fn a_path_needs_a_value_for_each_of_its_variables() {
        let env = Environment(vec![("POD".to_owned(), "web".to_owned()), ("EMPTY".to_owned(), String::new())]);
        for (path, expected) in [
            ("logs/$(POD)", Ok("logs/web")),
            ("plain", Ok("plain")),
            ("$$(NONE)", Ok("$(NONE)")),
            ("$(EMPTY)", Err("missing value for EMPTY")),
            ("$(NONE)/$(EMPTY)/$(NONE)", Err("missing value for EMPTY, NONE")),
        ] {
            assert_eq!(env.expand_path(path).as_deref().map_err(String::as_str), expected, "{path}");
        }
    }
}
