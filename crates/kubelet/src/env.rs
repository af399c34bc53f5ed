//! The environment of a container, and `$(VAR)` in commands and values.

use crate::Shared;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Secret};
use kube::Api;
use lifecycle::Pod;
use std::collections::BTreeMap;

/// Replaces `$(NAME)` where NAME is known; `$$(NAME)` stands for itself (upstream's `third_party/forked/golang/expansion`).
pub(crate) fn expand(text: &str, env: &[(String, String)]) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match env.iter().rev().find(|(k, _)| k == name) {
                Some((_, value)) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

pub(crate) async fn environment(shared: &Shared, pod: &Pod, spec: &Container) -> Result<Vec<(String, String)>, String> {
    let mut env: Vec<(String, String)> = Vec::new();
    let mut set = |name: String, value: String| match env.iter_mut().find(|(k, _)| *k == name) {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    };
    for source in spec.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or("");
        let data = match (&source.config_map_ref, &source.secret_ref) {
            (Some(r), _) => config_map(shared, pod, &r.name, r.optional == Some(true)).await?,
            (_, Some(r)) => secret(shared, pod, &r.name, r.optional == Some(true)).await?,
            _ => BTreeMap::new(),
        };
        data.into_iter().for_each(|(k, v)| set(format!("{prefix}{k}"), v));
    }
    let mut all = env;
    for variable in spec.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match value_from(shared, pod, spec, source).await? {
                Some(value) => value,
                None => continue,
            },
            (value, None) => expand(value.as_deref().unwrap_or(""), &all),
        };
        all.retain(|(k, _)| *k != variable.name);
        all.push((variable.name.clone(), value));
    }
    Ok(all)
}

async fn config_map(
    shared: &Shared,
    pod: &Pod,
    name: &str,
    optional: bool,
) -> Result<BTreeMap<String, String>, String> {
    let api: Api<ConfigMap> = Api::namespaced(shared.client.clone(), pod.namespace());
    match api.get_opt(name).await.map_err(|e| e.to_string())? {
        Some(object) => Ok(object.data.unwrap_or_default()),
        None if optional => Ok(BTreeMap::new()),
        None => Err(format!("configmap {name:?} not found")),
    }
}

async fn secret(shared: &Shared, pod: &Pod, name: &str, optional: bool) -> Result<BTreeMap<String, String>, String> {
    let api: Api<Secret> = Api::namespaced(shared.client.clone(), pod.namespace());
    match api.get_opt(name).await.map_err(|e| e.to_string())? {
        Some(object) => {
            let data = object.data.unwrap_or_default();
            Ok(data.into_iter().map(|(k, v)| (k, String::from_utf8_lossy(&v.0).into_owned())).collect())
        }
        None if optional => Ok(BTreeMap::new()),
        None => Err(format!("secret {name:?} not found")),
    }
}

/// `None` when an optional source is not there.
async fn value_from(
    shared: &Shared,
    pod: &Pod,
    spec: &Container,
    source: &EnvVarSource,
) -> Result<Option<String>, String> {
    let pick = |data: BTreeMap<String, String>, kind: &str, name: &str, key: &str, optional: bool| match data.get(key) {
        Some(value) => Ok(Some(value.clone())),
        None if optional => Ok(None),
        None => Err(format!("couldn't find key {key} in {kind} {}/{name}", pod.namespace())),
    };
    if let Some(r) = &source.config_map_key_ref {
        let optional = r.optional == Some(true);
        return pick(config_map(shared, pod, &r.name, optional).await?, "ConfigMap", &r.name, &r.key, optional);
    }
    if let Some(r) = &source.secret_key_ref {
        let optional = r.optional == Some(true);
        return pick(secret(shared, pod, &r.name, optional).await?, "Secret", &r.name, &r.key, optional);
    }
    if let Some(r) = &source.field_ref {
        return field(shared, pod, &r.field_path).map(Some);
    }
    if let Some(r) = &source.resource_field_ref {
        return resource_field(spec, &r.resource).map(Some);
    }
    Err("this source of an environment variable is not implemented yet".to_owned())
}

fn field(shared: &Shared, pod: &Pod, path: &str) -> Result<String, String> {
    let meta = &pod.object().metadata;
    let spec = pod.object().spec.as_ref();
    let keyed = |map: &Option<BTreeMap<String, String>>, rest: &str| {
        let key = rest.trim_start_matches("['").trim_end_matches("']");
        map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default()
    };
    let ip = || pod.ips().first().map(ToString::to_string).unwrap_or_default();
    Ok(match path {
        "metadata.name" => pod.name().to_owned(),
        "metadata.namespace" => pod.namespace().to_owned(),
        "metadata.uid" => pod.uid().to_owned(),
        "spec.nodeName" => shared.options.node_name.clone(),
        "spec.serviceAccountName" => spec.and_then(|s| s.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" => ip(),
        "status.podIPs" => pod.ips().iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        "status.hostIP" | "status.hostIPs" => shared.options.node_ip.to_string(),
        _ => match (path.strip_prefix("metadata.labels"), path.strip_prefix("metadata.annotations")) {
            (Some(rest), _) if !rest.is_empty() => keyed(&meta.labels, rest),
            (_, Some(rest)) if !rest.is_empty() => keyed(&meta.annotations, rest),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        },
    })
}

fn resource_field(spec: &Container, resource: &str) -> Result<String, String> {
    let (side, name) = match resource.split_once('.') {
        Some(("limits", name)) => (api::resources::Side::Limits, name),
        Some(("requests", name)) => (api::resources::Side::Requests, name),
        _ => return Err(format!("unsupported resource: {resource}")),
    };
    let amount = api::resources::container(spec, side).get(name).copied().unwrap_or_default();
    Ok(amount.value().to_string())
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn references_are_expanded_as_upstream_expands_them() {
        let env = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), String::new())];
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(B)z", "x1yz"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(C)", "$(C)"),
            ("$A", "$A"),
            ("$(A", "$(A"),
            ("a$", "a$"),
            ("$$", "$"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }
}
