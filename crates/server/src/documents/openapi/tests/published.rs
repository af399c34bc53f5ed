//! Comparison of version 2 with upstream's published document, except for intended differences.

use super::get;
use lines::lines;
use std::collections::BTreeMap;

#[path = "../../../../../../xtask/src/openapi_lines.rs"]
mod lines;

const PUBLISHED: &str = include_str!("published.txt");

/// Schemas that differ: the document is of a prerelease of 1.35.
const DIFFERENT: [&str; 7] = [
    "io.k8s.api.core.v1.NodeStatus",
    "io.k8s.api.core.v1.PodCertificateProjection",
    "io.k8s.api.core.v1.PodSpec",
    "io.k8s.api.core.v1.PodStatus",
    "io.k8s.api.storage.v1.CSIDriverSpec",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionCondition",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
];

/// Maps lines by `get /api/v1/pods` or the name of a schema.
fn by_name<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<String, &'a str> {
    let name = |line: &str| {
        let words = if line.starts_with("io.") { 1 } else { 2 };
        line.split(' ').take(words).collect::<Vec<_>>().join(" ")
    };
    lines.map(|line| (name(line), line)).collect()
}

/// Returns the lines that differ, by name.
async fn differences() -> BTreeMap<String, String> {
    let document = get("/openapi/v2", &[]).await.json();
    let own = lines(&document);
    let own = by_name(own.iter().map(String::as_str));
    let published = by_name(PUBLISHED.lines().filter(|line| !line.starts_with('#')));
    let both = published.iter().filter_map(|(name, line)| Some((name, *line, *own.get(name)?)));
    let different = both.filter(|(_, one, other)| one != other);
    different.map(|(name, one, other)| (name.clone(), format!("{one}\n  {other}"))).collect()
}

#[tokio::test]
async fn document_equals_the_published_document() {
    let found = differences().await;
    let unknown: Vec<&String> =
        found.iter().filter(|(name, _)| !DIFFERENT.contains(&name.as_str())).map(|(_, lines)| lines).collect();
    assert!(unknown.is_empty(), "{} differences: {unknown:#?}", unknown.len());
    let same: Vec<&&str> = DIFFERENT.iter().filter(|name| !found.contains_key(**name)).collect();
    assert!(same.is_empty(), "no longer different: {same:?}");
}
