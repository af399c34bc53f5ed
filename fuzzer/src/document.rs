//! The operations of a server, read from its OpenAPI documents.

use crate::client::{ApiRequest, Client};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

/// An operation of the API.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    /// Path with `{namespace}` and `{name}`.
    pub(crate) path: String,
    /// Query parameters.
    pub(crate) parameters: Vec<String>,
    /// Media types of the body.
    pub(crate) media: Vec<String>,
    /// Schema of the body.
    pub(crate) body: Option<Value>,
    /// `apiVersion` and `kind` of the object.
    pub(crate) about: (String, String),
}

impl Operation {
    /// Returns the operation's name in reports.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns the plural resource: `pods` of `/api/v1/namespaces/{namespace}/pods/{name}/status`.
    pub(crate) fn plural(&self) -> &str {
        let parts: Vec<&str> = self.path.split('/').collect();
        let named = parts.iter().position(|p| *p == "{name}").and_then(|at| at.checked_sub(1));
        named.or(parts.len().checked_sub(1)).and_then(|at| parts.get(at)).copied().unwrap_or_default()
    }

    /// Returns the subresource: `status` of the same path.
    pub(crate) fn subresource(&self) -> Option<&str> {
        self.path.split_once("{name}/").map(|(_, sub)| sub)
    }
}

/// All operations and schemas of a server.
#[derive(Debug, Default)]
pub(crate) struct Api {
    pub(crate) operations: Vec<Operation>,
    pub(crate) schemas: Map<String, Value>,
}

const METHODS: [(&str, &str); 5] =
    [("get", "GET"), ("post", "POST"), ("put", "PUT"), ("patch", "PATCH"), ("delete", "DELETE")];

impl Api {
    /// Reads all documents.
    pub(crate) async fn of(client: &Client) -> Result<Self> {
        let index = get(client, "/openapi/v3").await?;
        let mut api = Self::default();
        let paths = index["paths"].as_object().context("/openapi/v3 has no paths")?;
        for (path, entry) in paths {
            let url = entry["serverRelativeURL"].as_str().with_context(|| format!("{path} has no URL"))?;
            api.add(&get(client, url).await.with_context(|| url.to_owned())?);
        }
        if api.operations.is_empty() {
            bail!("no operations in the OpenAPI documents");
        }
        Ok(api)
    }

    pub(crate) fn add(&mut self, document: &Value) {
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for (name, method) in METHODS {
                if item[name].is_object() {
                    self.operations.push(operation(path, method, item, &item[name]));
                }
            }
        }
        let schemas = document["components"]["schemas"].as_object().into_iter().flatten();
        self.schemas.extend(schemas.map(|(name, schema)| (name.clone(), schema.clone())));
    }
}

fn operation(path: &str, method: &'static str, item: &Value, value: &Value) -> Operation {
    let parameters = [&item["parameters"], &value["parameters"]].into_iter().filter_map(Value::as_array).flatten();
    let in_query = parameters.filter(|p| p["in"] == "query").filter_map(|p| p["name"].as_str());
    let content = value["requestBody"]["content"].as_object();
    let about = &value["x-kubernetes-group-version-kind"];
    let text = |field: &str| about[field].as_str().unwrap_or_default();
    let version = if text("group").is_empty() {
        text("version").to_owned()
    } else {
        format!("{}/{}", text("group"), text("version"))
    };
    Operation {
        method,
        path: path.to_owned(),
        parameters: in_query.map(str::to_owned).collect(),
        media: content.into_iter().flatten().map(|(media, _)| media.clone()).collect(),
        body: content.and_then(|c| c.values().next()).map(|c| c["schema"].clone()),
        about: (version, text("kind").to_owned()),
    }
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    let response = client.send(&ApiRequest { method: "GET", path: path.to_owned(), ..ApiRequest::default() }).await?;
    if response.status != 200 {
        bail!("{path}: {}", response.status);
    }
    Ok(serde_json::from_slice(&response.body)?)
}

#[cfg(test)]
mod tests {
    use super::Api;
    use serde_json::json;

    #[test]
    fn operation_has_its_group_version_kind() {
        let mut api = Api::default();
        api.add(&json!({"paths": {"/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale": {"parameters": [
            {"name": "name", "in": "path"}, {"name": "pretty", "in": "query"}],
            "put": {"parameters": [{"name": "dryRun", "in": "query"}], "x-kubernetes-action": "put",
            "requestBody": {"content": {"*/*": {"schema": {"type": "object"}}}},
            "x-kubernetes-group-version-kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}}}}));
        let found = &api.operations[0];
        assert_eq!((found.method, found.plural(), found.subresource()), ("PUT", "deployments", Some("scale")));
        assert_eq!(found.about, ("autoscaling/v1".to_owned(), "Scale".to_owned()));
        assert_eq!((found.parameters.join(" "), found.media.join(" ")), ("pretty dryRun".into(), "*/*".into()));
        assert_eq!(found.body, Some(json!({"type": "object"})));
    }
}
