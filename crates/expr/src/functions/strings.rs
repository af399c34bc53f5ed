//! Text: the extension of CEL for strings, regular expressions, and `format`.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    pattern::Pattern,
};
use std::sync::Arc;

/// What a pattern may become, in bytes: one that is larger is refused.
const LARGEST_PATTERN: usize = 1 << 20;

pub(super) fn global(evaluator: &mut Evaluator, name: &str, args: &[Value]) -> Option<Outcome> {
    match (name, args) {
        ("matches", [Value::String(text), Value::String(pattern)]) => {
            Some(matcher(evaluator, text, pattern).map(|m| Value::Bool(m.is_match(text))))
        }
        _ => None,
    }
}

pub(super) fn on(evaluator: &mut Evaluator, name: &str, text: &Arc<str>, args: &[Value]) -> Outcome {
    match (name, args) {
        ("size", []) => Ok(super::lists::int(text.chars().count())),
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("matches", [Value::String(pattern)]) => Ok(Value::Bool(matcher(evaluator, text, pattern)?.is_match(text))),
        ("find", [Value::String(pattern)]) => {
            let found = matcher(evaluator, text, pattern)?;
            Ok(Value::text(found.find_all(text).next().unwrap_or("")))
        }
        ("findAll", [Value::String(pattern), rest @ ..]) => {
            let most = limit(rest)?;
            let found = matcher(evaluator, text, pattern)?;
            Ok(Value::list(found.find_all(text).take(most).map(Value::text).collect()))
        }
        ("lowerAscii", []) => Ok(Value::text(&text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(&text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("charAt", [Value::Int(i)]) => char_at(text, *i),
        ("indexOf" | "lastIndexOf", [Value::String(part), rest @ ..]) => index_of(name, text, part, rest),
        ("substring", [Value::Int(from), rest @ ..]) => substring(text, *from, rest),
        ("replace", [Value::String(from), Value::String(to), rest @ ..]) => {
            let most = limit(rest)?;
            let times = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&**from).count() };
            let size = times.min(most).saturating_mul(to.len()) / 10;
            evaluator.pay(u64::try_from(size).unwrap_or(u64::MAX))?;
            Ok(Value::text(&text.replacen(&**from, to, most)))
        }
        ("split", [Value::String(at), rest @ ..]) => split(text, at, limit(rest)?),
        ("format", [Value::List(values)]) => super::formats::format(evaluator, text, values),
        _ => Err(EvalError::overload()),
    }
}

/// The number of times that something is done at most; a negative one is no bound.
fn limit(args: &[Value]) -> Result<usize, EvalError> {
    match args {
        [] => Ok(usize::MAX),
        [Value::Int(most)] => Ok(usize::try_from(*most).unwrap_or(usize::MAX)),
        _ => Err(EvalError::overload()),
    }
}

fn matcher(evaluator: &mut Evaluator, text: &str, pattern: &str) -> Result<Pattern, EvalError> {
    // Matching takes as long as the product of both, at worst.
    let cost = (text.len() / 10 + 1).saturating_mul(pattern.len() / 4 + 1);
    evaluator.pay(u64::try_from(cost).unwrap_or(u64::MAX))?;
    Pattern::compile(pattern, LARGEST_PATTERN).map_err(|why| EvalError::new(format!("error parsing regexp: {why}")))
}

fn out_of_range(i: i64) -> EvalError {
    EvalError::new(format!("index out of range: {i}"))
}

fn char_at(text: &str, i: i64) -> Outcome {
    let place = usize::try_from(i).map_err(|_| out_of_range(i))?;
    match text.chars().nth(place) {
        Some(c) => Ok(Value::text(c.encode_utf8(&mut [0; 4]))),
        None if place == text.chars().count() => Ok(Value::text("")),
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
    let place = |i: i64| usize::try_from(i).ok().filter(|i| *i <= length).ok_or_else(|| out_of_range(i));
    let start = place(from)?;
    let end = match rest {
        [] => length,
        [Value::Int(to)] => place(*to)?,
        _ => return Err(EvalError::overload()),
    };
    if start > end {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    Ok(Value::text(&text.chars().skip(start).take(end - start).collect::<String>()))
}

fn split(text: &str, at: &str, most: usize) -> Outcome {
    let parts: Vec<Value> = match (most, at) {
        (0, _) => Vec::new(),
        (_, "") => {
            let mut rest = text.chars();
            let mut parts = Vec::new();
            while parts.len() + 1 < most
                && let Some(c) = rest.next()
            {
                parts.push(Value::text(c.encode_utf8(&mut [0; 4])));
            }
            if !rest.as_str().is_empty() {
                parts.push(Value::text(rest.as_str()));
            }
            parts
        }
        _ => text.splitn(most, at).map(Value::text).collect(),
    };
    Ok(Value::list(parts))
}

pub(super) fn quote(args: &[Value]) -> Outcome {
    match args {
        [Value::String(text)] => Ok(Value::text(&format!("{text:?}"))),
        _ => Err(EvalError::overload()),
    }
}
