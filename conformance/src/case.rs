//! What a case is, as it is written in `cases/*.yaml`.

use crate::custom_kind::Custom;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, path::Path};

/// One statement of what upstream documents, and the requests that show it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// A sentence.
    pub(crate) name: String,
    /// Where upstream says so: a page of its documentation, a KEP, or a file and function of its source.
    pub(crate) source: String,
    /// Whether it gets a namespace of its own, `${ns}`; without one that is only a prefix for names.
    #[serde(default = "yes")]
    pub(crate) namespace: bool,
    /// A custom kind of its own: `Thing`, at `${things}`.
    pub(crate) custom: Option<Custom>,
    pub(crate) steps: Vec<Step>,
    /// Paths that are deleted at the end, whatever came of the steps.
    #[serde(default)]
    pub(crate) cleanup: Vec<String>,
}

fn yes() -> bool {
    true
}

/// One request and what must come of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) get: Option<String>,
    pub(crate) post: Option<String>,
    pub(crate) put: Option<String>,
    pub(crate) patch: Option<String>,
    pub(crate) delete: Option<String>,
    /// Opens a watch, which `events` asks later by the name in `save_as`.
    pub(crate) watch: Option<String>,
    #[serde(default = "watch_name")]
    pub(crate) save_as: String,
    /// Takes the next events of that watch, which must be these, in this order.
    pub(crate) events: Option<Vec<Value>>,
    /// Events of these types are passed over.
    #[serde(default)]
    pub(crate) skip: Vec<String>,
    /// The watch must end after the events.
    #[serde(default)]
    pub(crate) ended: bool,
    #[serde(default)]
    pub(crate) query: BTreeMap<String, Value>,
    /// The kind of a patch.
    #[serde(rename = "type")]
    pub(crate) patch_type: Option<PatchType>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Option<Value>,
    /// A body as it is.
    pub(crate) text: Option<String>,
    /// A body of bytes, in base64.
    pub(crate) bytes: Option<String>,
    /// Who asks, if not the kubeconfig's user.
    #[serde(rename = "as")]
    pub(crate) identity: Option<Identity>,
    /// How often it is sent, with `${i}` from 0 on.
    pub(crate) times: Option<usize>,
    /// 201 for a POST and 200 for all others, if nothing is said.
    pub(crate) status: Option<u16>,
    /// What the answer must hold at least (`matching.rs`).
    pub(crate) expect: Option<Value>,
    /// The same for an answer of several JSON documents, line by line.
    pub(crate) lines: Option<Value>,
    /// JSON pointers to what must not be there.
    #[serde(default)]
    pub(crate) absent: Vec<String>,
    /// What the headers of the answer must be.
    #[serde(default)]
    pub(crate) answers: BTreeMap<String, Value>,
    /// Variables from JSON pointers into the answer, or from a header by `header:NAME`.
    #[serde(default)]
    pub(crate) save: BTreeMap<String, String>,
    /// Repeated until everything holds, for so many seconds.
    pub(crate) until: Option<u64>,
}

fn watch_name() -> String {
    "watch".to_owned()
}

/// The forms of a patch, named as `kubectl patch --type` does, and an applied configuration.
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

/// Who asks.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Identity {
    /// Nobody: neither certificate nor token.
    Anonymous,
    /// Whom this token stands for.
    Token(String),
    /// This user, impersonated, as a member of `system:authenticated`.
    User(String),
}

impl Step {
    /// The method and the path, if it is a request whose answer is awaited.
    pub(crate) fn request(&self) -> Option<(&'static str, &str)> {
        [("GET", &self.get), ("POST", &self.post), ("PUT", &self.put), ("PATCH", &self.patch), ("DELETE", &self.delete)]
            .into_iter()
            .find_map(|(method, path)| Some((method, path.as_deref()?)))
    }

    /// The status that the answer must have.
    pub(crate) fn wanted_status(&self) -> u16 {
        self.status.unwrap_or(if self.post.is_some() { 201 } else { 200 })
    }

    fn check(&self) -> Result<()> {
        let ways = [&self.get, &self.post, &self.put, &self.patch, &self.delete, &self.watch];
        let ways = ways.iter().filter(|way| way.is_some()).count() + usize::from(self.events.is_some());
        if ways != 1 {
            bail!("a step is one of get, post, put, patch, delete, watch and events, this is {ways} of them: {self:?}");
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
            bail!("{:?} does not say where upstream says so", self.name);
        }
        self.steps.iter().try_for_each(Step::check).with_context(|| self.name.clone())
    }
}

/// Every case of a directory with the section that it belongs to: the name of its file.
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

/// A YAML document of any size: the reader's own bounds are for what strangers send.
pub(crate) fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    let options = serde_saphyr::options! { budget: None };
    Ok(serde_saphyr::from_str_with_options(text, options)?)
}

/// The YAML files of a directory, in order, with their names without ending.
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
    fn a_step_is_one_request_and_its_words_are_known() {
        check("{get: /a}").unwrap();
        check("{patch: /a, type: merge, body: {}}").unwrap();
        check("{watch: /a}, {events: [{type: ADDED}]}").unwrap();
        for wrong in ["{}", "{get: /a, post: /b}", "{patch: /a, body: {}}", "{get: /a, expects: {}}"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
