//! String library: CEL's string extension, regular expressions, and `format`.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    go_regexp::GoRegexp,
};
use std::sync::Arc;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Calls a global function.
pub(super) fn call_global(evaluator: &mut Evaluator, name: &str, args: &[Value]) -> Option<Outcome> {
    match (name, args) {
        ("matches", [Value::String(text), Value::String(pattern)]) => {
            Some(compile_matcher(evaluator, text, pattern).map(|m| Value::Bool(m.is_match(text))))
        }
        _ => None,
    }
}

/// Calls a method of a string.
pub(super) fn call_method(evaluator: &mut Evaluator, name: &str, text: &Arc<str>, args: &[Value]) -> Outcome {
    match (name, args) {
        ("size", []) => Ok(super::lists::int(text.chars().count())),
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("matches", [Value::String(pattern)]) => {
            Ok(Value::Bool(compile_matcher(evaluator, text, pattern)?.is_match(text)))
        }
        ("find", [Value::String(pattern)]) => {
            let found = compile_matcher(evaluator, text, pattern)?;
            Ok(Value::string(found.find_all(text).next().unwrap_or("")))
        }
        ("findAll", [Value::String(pattern), rest @ ..]) => {
            let limit = parse_limit(rest)?;
            let found = compile_matcher(evaluator, text, pattern)?;
            Ok(Value::list(found.find_all(text).take(limit).map(Value::string).collect()))
        }
        ("lowerAscii", []) => Ok(Value::string(&text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::string(&text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::string(text.trim())),
        ("charAt", [Value::Int(i)]) => char_at(text, *i),
        ("indexOf" | "lastIndexOf", [Value::String(part), rest @ ..]) => index_of(name, text, part, rest),
        ("substring", [Value::Int(from), rest @ ..]) => substring(text, *from, rest),
        ("replace", [Value::String(from), Value::String(to), rest @ ..]) => {
            let limit = parse_limit(rest)?;
            let occurrences = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&**from).count() };
            let size = occurrences.min(limit).saturating_mul(to.len()) / 10;
            evaluator.charge(u64::try_from(size).unwrap_or(u64::MAX))?;
            Ok(Value::string(&text.replacen(&**from, to, limit)))
        }
        ("split", [Value::String(at), rest @ ..]) => split(text, at, parse_limit(rest)?),
        ("format", [Value::List(values)]) => super::format::format(evaluator, text, values),
        _ => Err(EvalError::overload()),
    }
}

/// Parses an optional limit argument; a negative limit is unlimited.
fn parse_limit(args: &[Value]) -> Result<usize, EvalError> {
    match args {
        [] => Ok(usize::MAX),
        [Value::Int(limit)] => Ok(usize::try_from(*limit).unwrap_or(usize::MAX)),
        _ => Err(EvalError::overload()),
    }
}

fn compile_matcher(evaluator: &mut Evaluator, text: &str, pattern: &str) -> Result<GoRegexp, EvalError> {
    // In the worst case, matching time is proportional to the product of both sizes.
    let cost = (text.len() / 10 + 1).saturating_mul(pattern.len() / 4 + 1);
    evaluator.charge(u64::try_from(cost).unwrap_or(u64::MAX))?;
    GoRegexp::compile(pattern, MAX_PATTERN_BYTES)
        .map_err(|error| EvalError::new(format!("error parsing regexp: {error}")))
}

fn out_of_range(i: i64) -> EvalError {
    EvalError::new(format!("index out of range: {i}"))
}

fn char_at(text: &str, i: i64) -> Outcome {
    let index = usize::try_from(i).map_err(|_| out_of_range(i))?;
    match text.chars().nth(index) {
        Some(c) => Ok(Value::string(c.encode_utf8(&mut [0; 4]))),
        None if index == text.chars().count() => Ok(Value::string("")),
        None => Err(out_of_range(i)),
    }
}

fn index_of(name: &str, text: &str, part: &str, rest: &[Value]) -> Outcome {
    let chars: Vec<char> = text.chars().collect();
    let part: Vec<char> = part.chars().collect();
    let from = match rest {
        [] => None,
        [Value::Int(i)] => {
            Some(usize::try_from(*i).ok().filter(|i| *i <= chars.len()).ok_or_else(|| out_of_range(*i))?)
        }
        _ => return Err(EvalError::overload()),
    };
    let found = if part.len() > chars.len() {
        None
    } else {
        let last = chars.len() - part.len();
        let at = |i: &usize| chars[*i..*i + part.len()] == part[..];
        if name == "indexOf" {
            (from.unwrap_or(0)..=last).find(at)
        } else {
            (0..=from.unwrap_or(last).min(last)).rev().find(at)
        }
    };
    Ok(found.map_or(Value::Int(-1), super::lists::int))
}

fn substring(text: &str, from: i64, rest: &[Value]) -> Outcome {
    let length = text.chars().count();
    let check_index = |i: i64| usize::try_from(i).ok().filter(|i| *i <= length).ok_or_else(|| out_of_range(i));
    let start = check_index(from)?;
    let end = match rest {
        [] => length,
        [Value::Int(to)] => check_index(*to)?,
        _ => return Err(EvalError::overload()),
    };
    if start > end {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(Value::string(&text.chars().skip(start).take(end - start).collect::<String>()))
}

fn split(text: &str, at: &str, limit: usize) -> Outcome {
    let parts: Vec<Value> = match (limit, at) {
        (0, _) => Vec::new(),
        (_, "") => {
            let mut rest = text.chars();
            let mut parts = Vec::new();
            while parts.len() + 1 < limit
                && let Some(c) = rest.next()
            {
                parts.push(Value::string(c.encode_utf8(&mut [0; 4])));
            }
            if !rest.as_str().is_empty() {
                parts.push(Value::string(rest.as_str()));
            }
            parts
        }
        _ => text.splitn(limit, at).map(Value::string).collect(),
    };
    Ok(Value::list(parts))
}

pub(super) fn quote(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::string(&format!("{text:?}"))),
        _ => Err(EvalError::overload()),
    }
}
