//! The format of a case in `cases/*.yaml`.

use crate::custom_kind::Custom;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// A documented statement about the API, and the requests that verify it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// The statement, a plain sentence.
    pub(crate) name: String,
    /// Upstream's source of the statement: a documentation page, a KEP, or a file and function.
    pub(crate) source: String,
    /// Whether the case gets a namespace `${ns}`; else `${ns}` is only a prefix for names.
    #[serde(default = "yes")]
    pub(crate) namespace: bool,
    /// A CustomResourceDefinition for the case: kind `Thing`, at `${things}`.
    pub(crate) custom: Option<Custom>,
    pub(crate) steps: Vec<Step>,
    /// Paths that are deleted at the end, whatever the result.
    #[serde(default)]
    pub(crate) cleanup: Vec<String>,
}

fn yes() -> bool {
    true
}

/// A request and its expected response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) get: Option<String>,
    pub(crate) post: Option<String>,
    pub(crate) put: Option<String>,
    pub(crate) patch: Option<String>,
    pub(crate) delete: Option<String>,
    /// Opens a watch, from which `events` reads later by the name in `save_as`.
    pub(crate) watch: Option<String>,
    #[serde(default = "watch_name")]
    pub(crate) save_as: String,
    /// Expected next events of that watch, in this order.
    pub(crate) events: Option<Vec<Value>>,
    /// Event types to skip.
    #[serde(default)]
    pub(crate) skip: Vec<String>,
    /// The watch must end after the events.
    #[serde(default)]
    pub(crate) ended: bool,
    #[serde(default)]
    pub(crate) query: BTreeMap<String, Value>,
    /// The type of a patch.
    #[serde(rename = "type")]
    pub(crate) patch_type: Option<PatchType>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<Value>,
    /// A body as text.
    pub(crate) text: Option<String>,
    /// A body of bytes, in base64.
    pub(crate) bytes: Option<String>,
    /// Identity of the request. Default: the kubeconfig's user.
    #[serde(rename = "as")]
    pub(crate) identity: Option<Identity>,
    /// Number of repetitions, with `${i}` from 0 on.
    pub(crate) times: Option<usize>,
    /// Expected status code. Default: 201 for a POST, else 200.
    pub(crate) status: Option<u16>,
    /// Expected content of the response body (`matching.rs`).
    pub(crate) expect: Option<Value>,
    /// The same for a response of several JSON documents, one per line.
    pub(crate) lines: Option<Value>,
    /// JSON pointers to fields that must be absent.
    #[serde(default)]
    pub(crate) absent: Vec<String>,
    /// Expected response headers.
    #[serde(default)]
    pub(crate) answers: BTreeMap<String, Value>,
    /// Variables to save from the response, by JSON pointer or `header:NAME`.
    #[serde(default)]
    pub(crate) save: BTreeMap<String, String>,
    /// Timeout in seconds for repeating the request until the response is as expected.
    pub(crate) until: Option<u64>,
}

fn watch_name() -> String {
    "watch".to_owned()
}

/// Patch types as of `kubectl patch --type`, and server-side apply.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Identity of a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Identity {
    /// Without certificate and token.
    Anonymous,
    /// The user of this token.
    Token(String),
    /// This impersonated user, as a member of `system:authenticated`.
    User(String),
}

impl Step {
    /// Returns method and path of a request, except for a watch.
    pub(crate) fn request(&self) -> Option<(&'static str, &str)> {
        [("GET", &self.get), ("POST", &self.post), ("PUT", &self.put), ("PATCH", &self.patch), ("DELETE", &self.delete)]
            .into_iter()
            .find_map(|(method, path)| Some((method, path.as_deref()?)))
    }

    /// Returns the expected status code.
    pub(crate) fn expected_status(&self) -> u16 {
        self.status.unwrap_or(if self.post.is_some() { 201 } else { 200 })
    }

    fn check(&self) -> Result<()> {
        let kinds = [&self.get, &self.post, &self.put, &self.patch, &self.delete, &self.watch];
        let kinds = kinds.iter().filter(|kind| kind.is_some()).count() + usize::from(self.events.is_some());
        if kinds != 1 {
            bail!(
                "a step is one of get, post, put, patch, delete, watch and events, this is {kinds} of them: {self:?}"
            );
        }
        if self.patch.is_some() && self.patch_type.is_none() && !self.headers.contains_key("Content-Type") {
            bail!("a patch needs a type: {self:?}");
        }
        Ok(())
    }
}

impl Case {
    pub(crate) fn check(&self) -> Result<()> {
        if self.source.trim().is_empty() {
            bail!("source: missing in {:?}", self.name);
        }
        self.steps.iter().try_for_each(Step::check).with_context(|| self.name.clone())
    }
}

/// Loads all cases of a directory with their section, the name of the file.
pub(crate) fn load(dir: &Path) -> Result<Vec<(String, Case)>> {
    let mut cases = Vec::new();
    for (section, text) in files(dir)? {
        let read: Vec<Case> = read_yaml(&text).with_context(|| format!("{section}.yaml"))?;
        for case in read {
            let case = match &case.custom {
                Some(custom) => custom.defined_in(&case).with_context(|| case.name.clone())?,
                None => case,
            };
            case.check().with_context(|| format!("{section}.yaml"))?;
            cases.push((section.clone(), case));
        }
    }
    Ok(cases)
}

/// Parses a YAML document without the parser's limits for untrusted input.
pub(crate) fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    let options = serde_saphyr::options! { budget: None };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

/// Reads the YAML files of a directory in order, with their names without extension.
pub(crate) fn files(dir: &Path) -> Result<Vec<(String, String)>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, std::fs::read_to_string(&path)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::{Case, read_yaml};

    fn check(step: &str) -> Result<(), String> {
        let text = format!("- {{name: a, source: b, steps: [{step}]}}");
        let cases: Vec<Case> = read_yaml(&text).map_err(|e| e.to_string())?;
        cases.iter().try_for_each(Case::check).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn step_has_one_request_and_known_fields() {
        check("{get: /a}").unwrap();
        check("{patch: /a, type: merge, body: {}}").unwrap();
        check("{watch: /a}, {events: [{type: ADDED}]}").unwrap();
        for wrong in ["{}", "{get: /a, post: /b}", "{patch: /a, body: {}}", "{get: /a, expects: {}}"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
