//! Evaluator of expressions.

use crate::{EvalError, Value, comprehension, functions, operators, value::Key};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators as op};
use std::{collections::BTreeMap, sync::Arc};

pub(crate) type Outcome = Result<Value, EvalError>;

/// Variables in scope: those of the program and of enclosing comprehensions.
pub(crate) struct Scope<'a> {
    pub(crate) variables: &'a [(&'a str, Value)],
    pub(crate) outer: Option<&'a Scope<'a>>,
    pub(crate) name: &'a str,
    pub(crate) value: Option<&'a Value>,
}

impl<'a> Scope<'a> {
    /// Returns a scope with an additional variable.
    pub(crate) fn with(&'a self, name: &'a str, value: &'a Value) -> Scope<'a> {
        Scope { variables: self.variables, outer: Some(self), name, value: Some(value) }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let local = self.value.filter(|_| self.name == name);
        local.or_else(|| match self.outer {
            Some(outer) => outer.get(name),
            None => self.variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value),
        })
    }
}

/// Evaluates expressions and counts their cost.
pub(crate) struct Evaluator {
    pub(crate) left: u64,
}

impl Evaluator {
    /// Charges a cost, or fails if the limit is exceeded.
    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        let left = self.left.checked_sub(cost);
        self.left = left.unwrap_or(0);
        left.map(drop).ok_or(EvalError::CostLimitExceeded)
    }

    pub(crate) fn eval(&mut self, expr: &IdedExpr, scope: &Scope<'_>) -> Outcome {
        self.charge(1)?;
        match &expr.expr {
            Expr::Literal(literal) => Ok(self::literal(literal)),
            Expr::Ident(name) => ident(name, scope),
            Expr::Select(select) => self.eval_select(select, scope),
            Expr::Call(call) => self.eval_call(call, scope),
            Expr::Comprehension(comprehension) => comprehension::eval(self, comprehension, scope),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (i, element) in list.elements.iter().enumerate() {
                    let value = self.eval(element, scope)?;
                    match value {
                        Value::Optional(inner_value) if list.optional_indices.contains(&i) => {
                            items.extend(inner_value.map(|v| (*v).clone()));
                        }
                        value => items.push(value),
                    }
                }
                Ok(Value::list(items))
            }
            Expr::Map(map) => {
                let mut entries = BTreeMap::new();
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(EvalError::overload()) };
                    let key = self.eval(&entry.key, scope)?.key()?;
                    match self.eval(&entry.value, scope)? {
                        Value::Optional(inner_value) if entry.optional => {
                            entries.extend(inner_value.map(|v| (key, (*v).clone())));
                        }
                        value => drop(entries.insert(key, value)),
                    }
                }
                Ok(Value::Map(Arc::new(entries)))
            }
            Expr::Struct(struct_expr) => {
                let mut fields = BTreeMap::new();
                for entry in &struct_expr.entries {
                    let EntryExpr::StructField(entry) = &entry.expr else { return Err(EvalError::overload()) };
                    let key = Key::String(entry.field.as_str().into());
                    match self.eval(&entry.value, scope)? {
                        Value::Optional(inner_value) if entry.optional => {
                            fields.extend(inner_value.map(|v| (key, (*v).clone())));
                        }
                        value => drop(fields.insert(key, value)),
                    }
                }
                Ok(Value::Map(Arc::new(fields)))
            }
            Expr::Unspecified => Err(EvalError::overload()),
        }
    }

    fn eval_select(&mut self, select: &SelectExpr, scope: &Scope<'_>) -> Outcome {
        let operand = self.eval(&select.operand, scope)?;
        let key = Key::String(select.field.as_str().into());
        if let Value::Optional(inner_value) = &operand {
            let found = inner_value.as_ref().and_then(|v| field(v, &key));
            return Ok(if select.test { Value::Bool(found.is_some()) } else { optional(found) });
        }
        if let Value::Authorizer(asking) = &operand
            && asking.stage == "authorizer"
            && select.field == "requestResource"
        {
            return Ok(asking.request_resource());
        }
        // Values without fields do not have this one.
        let found = if let Value::Map(map) = &operand { map.get(&key) } else { None };
        match found {
            found if select.test => Ok(Value::Bool(found.is_some_and(|v| !matches!(v, Value::Null)))),
            Some(value) => Ok(value.clone()),
            None => Err(EvalError::new(format!("no such key: {}", select.field))),
        }
    }

    fn eval_call(&mut self, call: &CallExpr, scope: &Scope<'_>) -> Outcome {
        let args = call.args.as_slice();
        match (call.func_name.as_str(), args) {
            (op::LOGICAL_AND, _) => self.eval_logical(args, scope, false),
            (op::LOGICAL_OR, _) => self.eval_logical(args, scope, true),
            (op::CONDITIONAL, [condition, yes, no]) => match self.eval(condition, scope)? {
                Value::Bool(true) => self.eval(yes, scope),
                Value::Bool(false) => self.eval(no, scope),
                _ => Err(EvalError::overload()),
            },
            (op::NOT_STRICTLY_FALSE, [one]) => match self.eval(one, scope) {
                Err(EvalError::CostLimitExceeded) => Err(EvalError::CostLimitExceeded),
                value => Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false))))),
            },
            (op::OPT_SELECT | op::OPT_INDEX, [operand, key]) => {
                let (operand, key) = (self.eval(operand, scope)?, self.eval(key, scope)?);
                self.optional_index(&operand, &key)
            }
            (op::INDEX, [operand, key]) => {
                let (operand, key) = (self.eval(operand, scope)?, self.eval(key, scope)?);
                match &operand {
                    Value::Optional(_) => self.optional_index(&operand, &key),
                    _ => index(&operand, &key),
                }
            }
            (name, _) if operators::is_operator(name) => {
                let values = self.eval_all(args, scope)?;
                let cost = values.iter().map(Value::cost).sum();
                self.charge(cost)?;
                operators::apply(name, &values)
            }
            (name, _) => self.eval_function(name, call, scope),
        }
    }

    fn eval_function(&mut self, name: &str, call: &CallExpr, scope: &Scope<'_>) -> Outcome {
        let target = match call.target.as_deref() {
            Some(target) => {
                if let Some(namespace) = functions::namespace(target).filter(|n| scope.get(n).is_none()) {
                    let args = self.eval_all(&call.args, scope)?;
                    return functions::call_in_namespace(self, namespace, name, &args);
                }
                if let Some(macros) = comprehension::as_macro(name, call) {
                    return macros.eval(self, target, scope);
                }
                Some(self.eval(target, scope)?)
            }
            None => None,
        };
        let args = self.eval_all(&call.args, scope)?;
        let cost = args.iter().chain(&target).map(Value::cost).sum();
        self.charge(cost)?;
        functions::apply(self, name, target.as_ref(), &args)
    }

    pub(crate) fn eval_all(&mut self, exprs: &[IdedExpr], scope: &Scope<'_>) -> Result<Vec<Value>, EvalError> {
        exprs.iter().map(|e| self.eval(e, scope)).collect()
    }

    /// Evaluates `&&` or `||`; an operand that decides the result hides errors of the others.
    fn eval_logical(&mut self, args: &[IdedExpr], scope: &Scope<'_>, deciding: bool) -> Outcome {
        let mut first_error = None;
        for arg in args {
            match self.eval(arg, scope) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => first_error = first_error.or(Some(EvalError::overload())),
                Err(EvalError::CostLimitExceeded) => return Err(EvalError::CostLimitExceeded),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn optional_index(&mut self, operand: &Value, key: &Value) -> Outcome {
        self.charge(1)?;
        let inner = match operand {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner_value)) => inner_value,
            value => value,
        };
        Ok(optional(index(inner, key).ok()))
    }
}

fn optional(found: Option<Value>) -> Value {
    Value::Optional(found.map(Arc::new))
}

fn field(value: &Value, key: &Key) -> Option<Value> {
    match value {
        Value::Map(map) => map.get(key).cloned(),
        _ => None,
    }
}

fn literal(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(b) => Value::Bool(*b.inner()),
        LiteralValue::Bytes(b) => Value::Bytes(b.inner().into()),
        LiteralValue::Double(d) => Value::Double(*d.inner()),
        LiteralValue::Int(i) => Value::Int(*i.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(s) => Value::string(s.inner()),
        LiteralValue::UInt(u) => Value::Uint(*u.inner()),
    }
}

fn ident(name: &str, scope: &Scope<'_>) -> Outcome {
    match scope.get(name) {
        Some(value) => Ok(value.clone()),
        None if functions::TYPES.contains(&name) => Ok(Value::Type(name.into())),
        None => Err(EvalError::new(format!("no such attribute(s): {name}"))),
    }
}

pub(crate) fn index(operand: &Value, key: &Value) -> Outcome {
    match operand {
        Value::List(items) => {
            let Key::Int(i) = key.key()? else { return Err(EvalError::overload()) };
            let found = usize::try_from(i).ok().and_then(|i| items.get(i));
            found.cloned().ok_or_else(|| EvalError::new(format!("index out of bounds: {i}")))
        }
        Value::Map(map) => {
            let key = key.key()?;
            let shown = || match &key {
                Key::Bool(b) => b.to_string(),
                Key::Int(i) => i.to_string(),
                Key::String(s) => s.to_string(),
            };
            map.get(&key).cloned().ok_or_else(|| EvalError::new(format!("no such key: {}", shown())))
        }
        _ => Err(EvalError::overload()),
    }
}
