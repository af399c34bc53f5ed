//! List and set libraries.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    operators,
};
use std::{cmp::Ordering, sync::Arc};

pub(super) fn int(length: usize) -> Value {
    Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

/// Calls a method of a list.
pub(super) fn call_method(evaluator: &mut Evaluator, name: &str, items: &Arc<Vec<Value>>, args: &[Value]) -> Outcome {
    match (name, args) {
        ("size", []) => Ok(int(items.len())),
        ("isSorted", []) => {
            let sorted = items.windows(2).map(|w| w[0].compare(&w[1]).ok_or_else(EvalError::overload));
            let orders = sorted.collect::<Result<Vec<Ordering>, _>>()?;
            Ok(Value::Bool(orders.into_iter().all(Ordering::is_le)))
        }
        ("sum", []) => {
            let mut all = items.iter();
            let first = all.next().cloned().unwrap_or(Value::Int(0));
            all.try_fold(first, |sum, item| operators::add(&sum, item))
        }
        ("min" | "max", []) => extreme(name, items),
        ("slice", [Value::Int(start), Value::Int(end)]) => slice(items, *start, *end),
        ("flatten", []) => flatten(evaluator, items, 1),
        ("flatten", [Value::Int(depth)]) => flatten(evaluator, items, *depth),
        ("distinct", []) => distinct(evaluator, items),
        ("reverse", []) => Ok(Value::list(items.iter().rev().cloned().collect())),
        ("sort", []) => sort(items.iter().map(|item| (item.clone(), item.clone())).collect()),
        ("first", []) => Ok(items.first().cloned().map_or(Value::Optional(None), Value::some)),
        ("last", []) => Ok(items.last().cloned().map_or(Value::Optional(None), Value::some)),
        ("indexOf", [item]) => Ok(items.iter().position(|i| i.equals(item)).map_or(Value::Int(-1), int)),
        ("lastIndexOf", [item]) => Ok(items.iter().rposition(|i| i.equals(item)).map_or(Value::Int(-1), int)),
        ("join", rest) => {
            let separator = match rest {
                [] => "",
                [Value::String(separator)] => separator,
                _ => return Err(EvalError::overload()),
            };
            let mut texts: Vec<&str> = Vec::with_capacity(items.len());
            for item in items.iter() {
                let Value::String(text) = item else { return Err(EvalError::overload()) };
                texts.push(text);
            }
            let joined = texts.join(separator);
            evaluator.charge(u64::try_from(joined.len() / 10).unwrap_or(u64::MAX))?;
            Ok(Value::string(&joined))
        }
        _ => Err(EvalError::overload()),
    }
}

fn slice(items: &[Value], start: i64, end: i64) -> Outcome {
    let slice_error = |message: &str| Err(EvalError::new(format!("cannot slice({start}, {end}), {message}")));
    let (Ok(first), Ok(last)) = (usize::try_from(start), usize::try_from(end)) else {
        return slice_error("negative indexes not supported");
    };
    if first > last {
        return slice_error("start index must be less than or equal to end index");
    }
    match items.get(first..last) {
        Some(part) => Ok(Value::list(part.to_vec())),
        None => slice_error(&format!("list is length {}", items.len())),
    }
}

/// Flattens nested lists up to a depth.
fn flatten(evaluator: &mut Evaluator, items: &[Value], depth: i64) -> Outcome {
    fn into(evaluator: &mut Evaluator, items: &[Value], depth: i64, all: &mut Vec<Value>) -> Result<(), EvalError> {
        evaluator.charge(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
        for item in items {
            match item {
                Value::List(inner) if depth > 0 => into(evaluator, inner, depth - 1, all)?,
                _ => all.push(item.clone()),
            }
        }
        Ok(())
    }
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative".to_owned()));
    }
    let mut all = Vec::new();
    into(evaluator, items, depth, &mut all)?;
    Ok(Value::list(all))
}

fn distinct(evaluator: &mut Evaluator, items: &[Value]) -> Outcome {
    let mut all: Vec<Value> = Vec::new();
    for item in items {
        evaluator.charge(u64::try_from(all.len()).unwrap_or(u64::MAX))?;
        if !all.iter().any(|known| known.equals(item)) {
            all.push(item.clone());
        }
    }
    Ok(Value::list(all))
}

/// Sorts values by their keys, which must be of one type; the sort is stable.
pub(crate) fn sort(mut keyed: Vec<(Value, Value)>) -> Outcome {
    let is_one_type = keyed.iter().all(|(key, _)| std::mem::discriminant(key) == std::mem::discriminant(&keyed[0].0));
    if !is_one_type {
        return Err(EvalError::new("list elements must have the same type".to_owned()));
    }
    if keyed.first().is_some_and(|(key, _)| key.compare(key).is_none()) {
        return Err(EvalError::new("list elements must be comparable".to_owned()));
    }
    keyed.sort_by(|(left, _), (right, _)| left.compare(right).unwrap_or(Ordering::Equal));
    Ok(Value::list(keyed.into_iter().map(|(_, value)| value).collect()))
}

/// Returns the integers from 0 to an exclusive end.
pub(super) fn range(evaluator: &mut Evaluator, args: &[Value]) -> Outcome {
    let [Value::Int(end)] = args else { return Err(EvalError::overload()) };
    // Creating an item costs more than visiting one.
    evaluator.charge(u64::try_from(*end).unwrap_or(0).saturating_mul(10))?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn extreme(name: &str, items: &[Value]) -> Outcome {
    let expected = if name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut found: Option<&Value> = None;
    for item in items {
        let better = match found {
            None => true,
            Some(best) => item.compare(best).ok_or_else(EvalError::overload)? == expected,
        };
        if better {
            found = Some(item);
        }
    }
    found.cloned().ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

pub(super) fn sets(evaluator: &mut Evaluator, name: &str, args: &[Value]) -> Outcome {
    let [Value::List(left), Value::List(right)] = args else { return Err(EvalError::overload()) };
    evaluator.charge(u64::try_from(left.len().saturating_mul(right.len())).unwrap_or(u64::MAX))?;
    let within = |item: &Value, all: &[Value]| all.iter().any(|other| other.equals(item));
    let contains = |all: &[Value], some: &[Value]| some.iter().all(|item| within(item, all));
    Ok(Value::Bool(match name {
        "contains" => contains(left, right),
        "intersects" => left.iter().any(|item| within(item, right)),
        "equivalent" => contains(left, right) && contains(right, left),
        _ => return Err(EvalError::overload()),
    }))
}
