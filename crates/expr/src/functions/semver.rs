//! Semantic version library (`apiserver/pkg/cel/library/semverlib.go`).

use crate::{EvalError, Value, eval::Outcome, value::Semver};
use std::{cmp::Ordering, sync::Arc};

/// Calls a function that creates or validates a semantic version.
pub(super) fn create(name: &str, args: &[Value]) -> Option<Outcome> {
    let (text, lenient) = match args {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(lenient)] => (text, *lenient),
        _ => return None,
    };
    Some(match name {
        "semver" => {
            let version = parse(text, lenient).map(|v| Value::Semver(Arc::new(v)));
            version.ok_or_else(|| EvalError::new(format!("Invalid semantic version {text:?}")))
        }
        "isSemver" => Ok(Value::Bool(parse(text, lenient).is_some())),
        _ => return None,
    })
}

fn parse(text: &str, lenient: bool) -> Option<Semver> {
    let text = if lenient { text.strip_prefix('v').unwrap_or(text) } else { text };
    let (version, _) = text.split_once('+').unwrap_or((text, ""));
    let (numbers, pre) = version.split_once('-').map_or((version, None), |(n, p)| (n, Some(p)));
    let mut parts: Vec<&str> = numbers.split('.').collect();
    if lenient {
        parts.resize(3.max(parts.len()), "0");
    }
    let number = |part: &str| {
        let canonical = lenient || part == "0" || !part.starts_with('0');
        part.parse::<u64>().ok().filter(|_| canonical && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let [major, minor, patch] = parts.as_slice() else { return None };
    let pre: Vec<String> = pre.map(|p| p.split('.').map(str::to_owned).collect()).unwrap_or_default();
    let allowed = |p: &String| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    pre.iter().all(allowed).then_some(())?;
    Some(Semver { numbers: [number(major)?, number(minor)?, number(patch)?], prerelease: pre })
}

/// Calls a method of a semantic version.
pub(super) fn call_method(name: &str, version: &Arc<Semver>, args: &[Value]) -> Outcome {
    let order = |other: &Value| Value::Semver(Arc::clone(version)).compare(other).ok_or_else(EvalError::overload);
    let part = |i: usize| Value::Int(i64::try_from(version.numbers[i]).unwrap_or(i64::MAX));
    Ok(match (name, args) {
        ("major", []) => part(0),
        ("minor", []) => part(1),
        ("patch", []) => part(2),
        ("isLessThan", [other]) => Value::Bool(order(other)? == Ordering::Less),
        ("isGreaterThan", [other]) => Value::Bool(order(other)? == Ordering::Greater),
        ("compareTo", [other]) => Value::Int(order(other)? as i64),
        _ => return Err(EvalError::overload()),
    })
}
