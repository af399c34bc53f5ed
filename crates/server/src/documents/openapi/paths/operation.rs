//! An operation of a path, as upstream describes it.

use crate::documents::{discovery, openapi::parameters};
use kinds::KindInfo;
use serde_json::{Map, Value, json};

pub(super) const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
pub(super) const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
pub(super) const PATCH_WRITE: [&str; 4] = ["dryRun", "fieldManager", "fieldValidation", "force"];
pub(super) const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];
/// Media types of patches.
const PATCH_MEDIA_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
// Descriptions of the deprecated watch paths.
const WATCH_PARAMETER: &str = "deprecated: use the 'watch' parameter with a list operation instead";
const WATCH_ONE: &str = "filtered to a single item with the 'fieldSelector' parameter.";
const MEDIA_TYPES: [&str; 3] = ["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"];
const WATCH_MEDIA_TYPES: [&str; 2] =
    ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

/// Operation of a kind.
pub(super) struct Operation<'a> {
    pub(super) info: &'a KindInfo,
    /// Whether the kind is built-in: only built-in kinds support protobuf and strategic merge patches.
    pub(super) built_in: bool,
    /// Upstream's action: `list`, `create`, ...
    pub(super) action: &'a str,
    pub(super) parameters: &'a [&'a str],
    /// Subresource; empty for the resource itself.
    pub(super) subresource: &'a str,
    /// Schema of the body.
    pub(super) body: Option<Value>,
    /// Schema of the response.
    pub(super) response: Value,
    pub(super) gvk: (&'a str, &'a str, &'a str),
    /// End of the operation's ID: scope, kind and subresource.
    pub(super) id: String,
}

impl Operation<'_> {
    pub(super) fn value(&self) -> Value {
        let tag = group_tag(self.info.group);
        let (group, version, kind) = self.gvk;
        let content_of_response = content(self.response_media_types(), &self.response);
        let mut responses = Map::new();
        for (code, text) in self.codes() {
            responses.insert((*code).to_owned(), json!({"description": text, "content": content_of_response}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let mut value = json!({
            "tags": [format!("{tag}_{}", self.info.version)],
            "description": self.description(),
            "operationId": format!("{}{}{}", self.verb(), group_id(self.info.group, self.info.version), self.id),
            "responses": responses,
            "x-kubernetes-action": self.upstream_action(),
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        let owner = if self.upstream_action() == "connect" { kind } else { self.upstream_action() };
        // Streams are not indented.
        let pretty = ["pretty"].into_iter().filter(|_| owner != kind);
        let all = self.parameters.iter().copied().chain(pretty);
        value["parameters"] = all.map(|name| parameters::query(name, owner)).collect();
        if let Some(schema) = &self.body {
            // `DeleteOptions` are optional.
            let required = !self.action.starts_with("delete");
            value["requestBody"] = json!({"content": content(self.body_media_types(), schema)});
            if required {
                value["requestBody"]["required"] = json!(true);
            }
        }
        value
    }

    /// Returns the verb that starts the ID (`verbs.GetPrefix`).
    fn verb(&self) -> &str {
        match self.action {
            "deletecollection" => "delete",
            "watchlist" => "watch",
            same => same.split(' ').next().unwrap_or(same),
        }
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

    /// Returns the description (`installer.go`, and `descriptionFor` for custom kinds).
    fn description(&self) -> String {
        let kind = self.info.kind;
        let media_types = |tail: &str| {
            if self.subresource.is_empty() { tail.to_owned() } else { format!(" {} of{tail}", self.subresource) }
        };
        let article = article(kind);
        let watched = self.built_in && discovery::verbs(self.info).contains(&"watch");
        match self.action {
            "create" => format!("create{} {kind}", media_types(article)),
            "delete" => format!("delete{} {kind}", media_types(article)),
            "read" => format!("read{} {kind}", media_types(" the specified")),
            "replace" => format!("replace{} {kind}", media_types(" the specified")),
            "patch" => format!("partially update{} {kind}", media_types(" the specified")),
            "list" if watched => format!("list or watch objects of kind {kind}"),
            "list" => format!("list objects of kind {kind}"),
            "deletecollection" => format!("delete collection of {kind}"),
            "watch" => format!("watch changes to an object of kind {kind}. {WATCH_PARAMETER}, {WATCH_ONE}"),
            "watchlist" => format!("watch individual changes to a list of {kind}. {WATCH_PARAMETER}."),
            other => {
                let method = other.split(' ').nth(1).unwrap_or_default().to_uppercase();
                format!("connect {method} requests to{} {kind}", media_types(""))
            }
        }
    }

    fn codes(&self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            "create" => &[("200", "OK"), ("201", "Created"), ("202", "Accepted")],
            "replace" | "patch" => &[("200", "OK"), ("201", "Created")],
            "delete" => &[("200", "OK"), ("202", "Accepted")],
            _ => &[("200", "OK")],
        }
    }

    /// Returns the media types of the response.
    fn response_media_types(&self) -> Vec<&'static str> {
        let media_types = MEDIA_TYPES.into_iter().chain(WATCH_MEDIA_TYPES.into_iter().filter(|_| self.is_streamed()));
        let is_supported = |media_type: &&str| self.built_in || !media_type.contains("protobuf");
        match self.action {
            action if action.starts_with("connect") => vec!["*/*"],
            "read" if self.subresource == "log" => ["text/plain"].into_iter().chain(MEDIA_TYPES).collect(),
            _ => media_types.filter(is_supported).collect(),
        }
    }

    /// Whether the response can be a watch.
    fn is_streamed(&self) -> bool {
        matches!(self.action, "list" | "watch" | "watchlist")
    }

    /// Returns the media types of the body.
    fn body_media_types(&self) -> Vec<&'static str> {
        match self.action {
            "patch" => PATCH_MEDIA_TYPES[..if self.built_in { 4 } else { 3 }].to_vec(),
            _ => vec!["*/*"],
        }
    }
}

fn content(media_types: Vec<&'static str>, schema: &Value) -> Map<String, Value> {
    media_types.into_iter().map(|media_type| (media_type.to_owned(), json!({"schema": schema}))).collect()
}

/// Returns the tag of a group: `core`, `rbacAuthorization`.
pub(in crate::documents::openapi) fn group_tag(group: &str) -> String {
    if group.is_empty() { "core".to_owned() } else { camel_case(group.strip_suffix(".k8s.io").unwrap_or(group)) }
}

/// Returns the group and version in the IDs of operations: `CoreV1`, `RbacAuthorizationV1`.
pub(in crate::documents::openapi) fn group_id(group: &str, version: &str) -> String {
    format!("{}{}", capitalized(&group_tag(group)), capitalized(version))
}

/// Returns the article of a kind, none for plurals (`GetArticleForNoun`).
fn article(kind: &str) -> &'static str {
    let is_plural = kind.ends_with('s') && !kind.ends_with("ss");
    match kind.chars().next().map(|first| first.to_ascii_lowercase()) {
        _ if is_plural => "",
        Some('a' | 'e' | 'i' | 'o' | 'u') => " an",
        _ => " a",
    }
}

/// Converts to camel case (`ToValidOperationID`).
fn camel_case(text: &str) -> String {
    let mut words = text.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_');
    words.next().map(str::to_owned).into_iter().chain(words.map(capitalized)).collect()
}

/// Capitalizes the first letter.
pub(super) fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
