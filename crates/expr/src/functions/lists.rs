//! Lists, and lists as sets.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    operators,
};
use std::{cmp::Ordering, sync::Arc};

pub(super) fn int(length: usize) -> Value {
    Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

pub(super) fn on(evaluator: &mut Evaluator, name: &str, items: &Arc<Vec<Value>>, args: &[Value]) -> Outcome {
    match (name, args) {
        ("size", []) => Ok(int(items.len())),
        ("isSorted", []) => {
            let sorted = items.windows(2).map(|w| w[0].order(&w[1]).ok_or_else(EvalError::overload));
            let orders = sorted.collect::<Result<Vec<Ordering>, _>>()?;
            Ok(Value::Bool(orders.into_iter().all(Ordering::is_le)))
        }
        ("sum", []) => {
            let mut all = items.iter();
            let first = all.next().cloned().unwrap_or(Value::Int(0));
            all.try_fold(first, |sum, item| operators::add(&sum, item))
        }
        ("min" | "max", []) => extreme(name, items),
        ("indexOf", [item]) => Ok(items.iter().position(|i| i.is(item)).map_or(Value::Int(-1), int)),
        ("lastIndexOf", [item]) => Ok(items.iter().rposition(|i| i.is(item)).map_or(Value::Int(-1), int)),
        ("join", rest) => {
            let between = match rest {
                [] => "",
                [Value::String(between)] => between,
                _ => return Err(EvalError::overload()),
            };
            let mut texts: Vec<&str> = Vec::with_capacity(items.len());
            for item in items.iter() {
                let Value::String(text) = item else { return Err(EvalError::overload()) };
                texts.push(text);
            }
            let joined = texts.join(between);
            evaluator.pay(u64::try_from(joined.len() / 10).unwrap_or(u64::MAX))?;
            Ok(Value::text(&joined))
        }
        _ => Err(EvalError::overload()),
    }
}

fn extreme(name: &str, items: &[Value]) -> Outcome {
    let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
    let mut found: Option<&Value> = None;
    for item in items {
        let better = match found {
            None => true,
            Some(best) => item.order(best).ok_or_else(EvalError::overload)? == wanted,
        };
        if better {
            found = Some(item);
        }
    }
    found.cloned().ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

pub(super) fn sets(evaluator: &mut Evaluator, name: &str, args: &[Value]) -> Outcome {
    let [Value::List(left), Value::List(right)] = args else { return Err(EvalError::overload()) };
    evaluator.pay(u64::try_from(left.len().saturating_mul(right.len())).unwrap_or(u64::MAX))?;
    let within = |item: &Value, all: &[Value]| all.iter().any(|other| other.is(item));
    let contains = |all: &[Value], some: &[Value]| some.iter().all(|item| within(item, all));
    Ok(Value::Bool(match name {
        "contains" => contains(left, right),
        "intersects" => left.iter().any(|item| within(item, right)),
        "equivalent" => contains(left, right) && contains(right, left),
        _ => return Err(EvalError::overload()),
    }))
}
