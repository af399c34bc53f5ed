//! One operation at a path, in upstream's words.

use crate::kinds::KindInfo;
use serde_json::{Map, Value, json};

/// Query parameters: name, type, and what it is for.
pub(super) type Parameter = (&'static str, &'static str, &'static str);

pub(super) const LIST: [Parameter; 10] = [
    ("allowWatchBookmarks", "boolean", "Send events that only carry a resourceVersion."),
    ("continue", "string", "Where an earlier answer ended."),
    ("fieldSelector", "string", "Only objects whose fields match."),
    ("labelSelector", "string", "Only objects whose labels match."),
    ("limit", "integer", "How many objects one answer holds at most."),
    ("resourceVersion", "string", "Which state to show, as resourceVersionMatch says."),
    ("resourceVersionMatch", "string", "Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Begin a watch with all objects that there are, then send a bookmark."),
    ("timeoutSeconds", "integer", "How long to watch, or how long the answer may take."),
    ("watch", "boolean", "Send changes as they come."),
];
pub(super) const WRITE: [Parameter; 3] = [
    ("dryRun", "string", "All: do everything but store."),
    ("fieldManager", "string", "Who makes the change."),
    ("fieldValidation", "string", "What to do about unknown fields: Ignore, Warn or Strict."),
];
pub(super) const PATCH_WRITE: [Parameter; 4] =
    [WRITE[0], WRITE[1], WRITE[2], ("force", "boolean", "Apply over conflicts: the fields become this manager's.")];
pub(super) const DELETE: [Parameter; 4] = [
    ("dryRun", "string", "All: do everything but store."),
    ("gracePeriodSeconds", "integer", "How long the object may take to end, in seconds."),
    ("orphanDependents", "boolean", "The old form of propagationPolicy."),
    ("propagationPolicy", "string", "Orphan, Background or Foreground."),
];
/// What a PATCH may hold.
const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const FORMS: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const WATCHED: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// An operation of a kind at one path.
pub(super) struct Operation<'a> {
    pub(super) info: &'a KindInfo,
    /// Whether it is built in: only then there is protobuf, and a table of how lists are merged by strategic patches.
    pub(super) built_in: bool,
    /// Upstream's name for it: `list`, `create`, ...
    pub(super) action: &'a str,
    pub(super) parameters: &'a [Parameter],
    /// The schema of the body.
    pub(super) body: Option<Value>,
    pub(super) answer: Value,
    /// Group, version and kind that it is about.
    pub(super) about: (&'a str, &'a str, &'a str),
    /// What ends its id: the scope, the kind, the subresource.
    pub(super) id: String,
}

impl Operation<'_> {
    pub(super) fn value(&self) -> Value {
        let group = self.info.group.strip_suffix(".k8s.io").unwrap_or(self.info.group);
        let tag = if group.is_empty() { "core".to_owned() } else { camel_case(group) };
        let (group, version, kind) = self.about;
        let answer = content(self.forms(), &self.answer);
        let mut responses = Map::new();
        for (code, text) in self.codes() {
            responses.insert((*code).to_owned(), json!({"description": text, "content": answer}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let mut value = json!({
            "tags": [format!("{tag}_{}", self.info.version)],
            "description": self.description(),
            "operationId": format!("{}{}{}{}", self.verb(), capitalized(&tag), capitalized(self.info.version), self.id),
            "responses": responses,
            "x-kubernetes-action": self.upstream_action(),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if !self.parameters.is_empty() {
            value["parameters"] = parameters(self.parameters);
        }
        if let Some(schema) = &self.body {
            // Options of a deletion need not be there.
            let required = !self.action.starts_with("delete");
            value["requestBody"] = json!({"content": content(self.body_forms(), schema)});
            if required {
                value["requestBody"]["required"] = json!(true);
            }
        }
        value
    }

    /// With what its id begins. The verb of a collection's deletion ends where upstream's does (`verbs.GetPrefix`).
    fn verb(&self) -> &str {
        if self.action == "deletecollection" { "delete" } else { self.action }
    }

    /// `x-kubernetes-action`.
    fn upstream_action(&self) -> &str {
        match self.action {
            "create" => "post",
            "replace" => "put",
            "read" => "get",
            other if other.starts_with("connect") => "connect",
            other => other,
        }
    }

    fn description(&self) -> String {
        let what = match self.action {
            "create" => "create",
            "replace" => "replace the specified",
            "read" => "read the specified",
            "list" => "list or watch objects of kind",
            "patch" => "partially update the specified",
            "delete" => "delete",
            "deletecollection" => "delete collection of",
            _ => "connect requests to",
        };
        format!("{what} {}", self.info.kind)
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            "create" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            "replace" | "patch" => &[("200", "OK"), ("201", "Created")],
            "delete" => &[("200", "OK"), ("202", "Accepted")],
            _ => &[("200", "OK")],
        }
    }

    /// The media types of the answer.
    fn forms(&self) -> Vec<&'static str> {
        let own = FORMS.into_iter().chain(WATCHED.into_iter().filter(|_| self.action == "list"));
        let all = |form: &&str| self.built_in || !form.contains("protobuf");
        match self.action {
            action if action.starts_with("connect") => vec!["*/*"],
            "read" if self.id.ends_with("Log") => vec!["text/plain"],
            _ => own.filter(all).collect(),
        }
    }

    /// The media types of the body.
    fn body_forms(&self) -> Vec<&'static str> {
        match self.action {
            "patch" => PATCHES[..if self.built_in { 4 } else { 3 }].to_vec(),
            _ => vec!["*/*"],
        }
    }
}

/// Parameters of a query.
pub(super) fn parameters(all: &[Parameter]) -> Value {
    let value = |(name, kind, text): &Parameter| json!({"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": true}});
    all.iter().map(value).collect()
}

fn content(forms: Vec<&'static str>, schema: &Value) -> Map<String, Value> {
    forms.into_iter().map(|form| (form.to_owned(), json!({"schema": schema}))).collect()
}

/// Words in one, each but the first with a capital letter (`ToValidOperationID`).
fn camel_case(text: &str) -> String {
    let mut words = text.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    words.next().map(str::to_owned).into_iter().chain(words.map(capitalized)).collect()
}

/// With a capital first letter, as upstream names operations on subresources.
pub(super) fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
