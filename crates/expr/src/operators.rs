//! Arithmetic and comparison operators. Integer overflow is an error.

use crate::{EvalError, Value, eval::Outcome, value::Key};
use cel::common::ast::operators as op;
use std::{cmp::Ordering, sync::Arc};

pub(crate) fn is_operator(name: &str) -> bool {
    name.starts_with('_') || matches!(name, op::NEGATE | op::LOGICAL_NOT | op::IN)
}

pub(crate) fn apply(name: &str, values: &[Value]) -> Outcome {
    match (name, values) {
        (op::LOGICAL_NOT, [Value::Bool(b)]) => Ok(Value::Bool(!b)),
        (op::NEGATE, [Value::Int(i)]) => i.checked_neg().map(Value::Int).ok_or_else(overflow),
        (op::NEGATE, [Value::Double(d)]) => Ok(Value::Double(-d)),
        (op::EQUALS, [l, r]) => Ok(Value::Bool(l.equals(r))),
        (op::NOT_EQUALS, [l, r]) => Ok(Value::Bool(!l.equals(r))),
        (op::LESS, [l, r]) => compare(l, r, Ordering::is_lt),
        (op::LESS_EQUALS, [l, r]) => compare(l, r, Ordering::is_le),
        (op::GREATER, [l, r]) => compare(l, r, Ordering::is_gt),
        (op::GREATER_EQUALS, [l, r]) => compare(l, r, Ordering::is_ge),
        (op::IN, [value, Value::List(items)]) => Ok(Value::Bool(items.iter().any(|item| item.equals(value)))),
        (op::IN, [value, Value::Map(map)]) => Ok(Value::Bool(value.key().is_ok_and(|key: Key| map.contains_key(&key)))),
        (op::ADD, [l, r]) => add(l, r),
        (op::SUBSTRACT, [l, r]) => subtract(l, r),
        (op::MULTIPLY, [l, r]) => match (l, r) {
            (Value::Int(l), Value::Int(r)) => l.checked_mul(*r).map(Value::Int).ok_or_else(overflow),
            (Value::Uint(l), Value::Uint(r)) => l.checked_mul(*r).map(Value::Uint).ok_or_else(unsigned_overflow),
            (Value::Double(l), Value::Double(r)) => Ok(Value::Double(l * r)),
            _ => Err(EvalError::overload()),
        },
        (op::DIVIDE, [l, r]) => match (l, r) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
                Err(EvalError::new("division by zero"))
            }
            (Value::Int(l), Value::Int(r)) => l.checked_div(*r).map(Value::Int).ok_or_else(overflow),
            (Value::Uint(l), Value::Uint(r)) => Ok(Value::Uint(l / r)),
            (Value::Double(l), Value::Double(r)) => Ok(Value::Double(l / r)),
            _ => Err(EvalError::overload()),
        },
        (op::MODULO, [l, r]) => match (l, r) {
            (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(EvalError::new("modulus by zero")),
            (Value::Int(l), Value::Int(r)) => l.checked_rem(*r).map(Value::Int).ok_or_else(overflow),
            (Value::Uint(l), Value::Uint(r)) => Ok(Value::Uint(l % r)),
            _ => Err(EvalError::overload()),
        },
        _ => Err(EvalError::overload()),
    }
}

pub(crate) fn overflow() -> EvalError {
    EvalError::new("integer overflow")
}

pub(crate) fn unsigned_overflow() -> EvalError {
    EvalError::new("unsigned integer overflow")
}

pub(crate) fn duration_overflow() -> EvalError {
    EvalError::new("duration overflow")
}

pub(crate) fn time_overflow() -> EvalError {
    EvalError::new("timestamp overflow")
}

fn compare(l: &Value, r: &Value, predicate: fn(Ordering) -> bool) -> Outcome {
    if matches!(l, Value::Quantity(_) | Value::Semver(_)) {
        return Err(EvalError::overload());
    }
    l.compare(r).map(|order| Value::Bool(predicate(order))).ok_or_else(EvalError::overload)
}

pub(crate) fn add(l: &Value, r: &Value) -> Outcome {
    match (l, r) {
        (Value::Int(l), Value::Int(r)) => l.checked_add(*r).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(l), Value::Uint(r)) => l.checked_add(*r).map(Value::Uint).ok_or_else(unsigned_overflow),
        (Value::Double(l), Value::Double(r)) => Ok(Value::Double(l + r)),
        (Value::String(l), Value::String(r)) => Ok(Value::String(format!("{l}{r}").into())),
        (Value::Bytes(l), Value::Bytes(r)) => Ok(Value::Bytes([&**l, &**r].concat().into())),
        (Value::List(l), Value::List(r)) => {
            let mut all = Arc::clone(l);
            Arc::make_mut(&mut all).extend(r.iter().cloned());
            Ok(Value::List(all))
        }
        (Value::Duration(l), Value::Duration(r)) => {
            l.checked_add(*r).map(Value::Duration).ok_or_else(duration_overflow)
        }
        (Value::Time(t), Value::Duration(d)) | (Value::Duration(d), Value::Time(t)) => {
            t.checked_add(*d).map(Value::Time).map_err(|_| time_overflow())
        }
        _ => Err(EvalError::overload()),
    }
}

fn subtract(l: &Value, r: &Value) -> Outcome {
    match (l, r) {
        (Value::Int(l), Value::Int(r)) => l.checked_sub(*r).map(Value::Int).ok_or_else(overflow),
        (Value::Uint(l), Value::Uint(r)) => l.checked_sub(*r).map(Value::Uint).ok_or_else(unsigned_overflow),
        (Value::Double(l), Value::Double(r)) => Ok(Value::Double(l - r)),
        (Value::Duration(l), Value::Duration(r)) => {
            l.checked_sub(*r).map(Value::Duration).ok_or_else(duration_overflow)
        }
        (Value::Time(t), Value::Duration(d)) => t.checked_sub(*d).map(Value::Time).map_err(|_| time_overflow()),
        (Value::Time(l), Value::Time(r)) => Ok(Value::Duration(l.duration_since(*r))),
        _ => Err(EvalError::overload()),
    }
}
