//! Deprecation warnings of custom versions (`defaultDeprecationWarning`).

use crate::field_validation::text;
use api::version::version_priority;
use serde_json::Value;

/// Returns the deprecation warning of a version: the one of the definition, or a default that names a newer version.
pub(super) fn deprecation_warning(spec: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let (group, kind) = (text(spec, "group"), text(&spec["names"], "kind"));
    let name = text(version, "name");
    let versions = spec["versions"].as_array().into_iter().flatten();
    let supported = versions.filter(|v| v["served"] == true && v["deprecated"] != true).map(|v| text(v, "name"));
    let newer = supported
        .filter(|other| version_priority(other) > version_priority(name))
        .max_by_key(|other| version_priority(other));
    let instead = newer.map_or_else(String::new, |newer| format!("; use {group}/{newer} {kind}"));
    Some(format!("{group}/{name} {kind} is deprecated{instead}"))
}

#[cfg(test)]
mod tests {
    use super::deprecation_warning;
    use serde_json::{Value, json};

    #[test]
    fn default_warning_names_newest_supported_version() {
        let version = |name: &str, served: bool, deprecated: bool| json!({"name": name, "served": served, "deprecated": deprecated});
        let warning_of = |versions: &[Value]| {
            let spec = json!({"group": "g.io", "names": {"kind": "Foo"}, "versions": versions});
            deprecation_warning(&spec, &versions[0]).unwrap_or_default()
        };
        let old = version("v1alpha1", true, true);
        for (others, expected) in [
            (vec![], "g.io/v1alpha1 Foo is deprecated"),
            (vec![version("v1", true, false)], "g.io/v1alpha1 Foo is deprecated; use g.io/v1 Foo"),
            (
                vec![version("v1beta1", true, false), version("v2", true, false), version("v1", true, false)],
                "g.io/v1alpha1 Foo is deprecated; use g.io/v2 Foo",
            ),
            (
                vec![version("v1", false, false), version("v1beta1", true, true), version("v1alpha2", true, false)],
                "g.io/v1alpha1 Foo is deprecated; use g.io/v1alpha2 Foo",
            ),
            (vec![version("foo1", true, false)], "g.io/v1alpha1 Foo is deprecated"),
        ] {
            let versions: Vec<Value> = std::iter::once(old.clone()).chain(others).collect();
            assert_eq!(warning_of(&versions), expected);
        }
        assert_eq!(warning_of(&[version("v1", true, false)]), "");
        let mut version_warning = old;
        version_warning["deprecationWarning"] = json!("do not");
        assert_eq!(warning_of(&[version_warning, version("v1", true, false)]), "do not");
    }
}
