//! Variables `${name}` in requests and expected values of a case.

use anyhow::{Result, bail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The variables of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, Value>);

impl Variables {
    /// Returns the predefined variables: the namespace and its paths in common API groups.
    pub(crate) fn of_namespace(ns: &str) -> Self {
        let mut variables = Self::default();
        variables.set("ns", Value::from(ns));
        variables.set("core", Value::from(format!("/api/v1/namespaces/{ns}")));
        variables.set("things", Value::from(format!("/apis/{ns}.example.com/v1/namespaces/{ns}/things")));
        for (name, group) in [
            ("apps", "apps"),
            ("autoscaling", "autoscaling"),
            ("batch", "batch"),
            ("coordination", "coordination.k8s.io"),
            ("discovery", "discovery.k8s.io"),
            ("networking", "networking.k8s.io"),
            ("policy", "policy"),
            ("rbac", "rbac.authorization.k8s.io"),
        ] {
            let version = if group == "autoscaling" { "v2" } else { "v1" };
            variables.set(name, Value::from(format!("/apis/{group}/{version}/namespaces/{ns}")));
        }
        variables
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// Substitutes variables in a text.
    pub(crate) fn text(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((name, after)) = after.split_once('}') else { bail!("{text:?} has an unclosed ${{") };
            match self.get(name)? {
                Value::String(value) => filled.push_str(value),
                value => filled.push_str(&value.to_string()),
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Substitutes variables in a value, in keys too. A string that is one variable becomes its value of any type.
    pub(crate) fn value(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => match text.strip_prefix("${").and_then(|t| t.strip_suffix('}')) {
                Some(name) if !name.contains("${") => self.get(name)?.clone(),
                _ => Value::String(self.text(text)?),
            },
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect::<Result<_>>()?,
            Value::Object(fields) => {
                let filled = fields.iter().map(|(key, field)| Ok((self.text(key)?, self.value(field)?)));
                Value::Object(filled.collect::<Result<Map<_, _>>>()?)
            }
            other => other.clone(),
        })
    }

    fn get(&self, name: &str) -> Result<&Value> {
        match self.0.get(name) {
            Some(value) => Ok(value),
            None => bail!("undefined variable ${{{name}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::Variables;
    use serde_json::json;

    #[test]
    fn variables_are_substituted_in_keys_and_values() {
        let mut variables = Variables::of_namespace("one");
        variables.set("n", json!(3));
        assert_eq!(variables.text("${core}/pods?n=${n}").unwrap(), "/api/v1/namespaces/one/pods?n=3");
        let filled = variables.value(&json!({"${ns}": ["${n}", "n${n}", true]})).unwrap();
        assert_eq!(filled, json!({"one": [3, "n3", true]}));
    }

    #[test]
    fn undefined_variable_is_an_error() {
        let variables = Variables::of_namespace("one");
        assert!(variables.text("${other}").is_err());
        assert!(variables.text("${open").is_err());
        assert_eq!(variables.text("$1 {x}").unwrap(), "$1 {x}");
    }
}
