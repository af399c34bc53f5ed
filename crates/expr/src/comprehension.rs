//! `all`, `exists`, `map` and their like: what the parser makes of them, and those that it leaves to us.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome, Scope},
    functions::lists,
    value::Key,
};
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, operators as op};
use std::{collections::BTreeMap, sync::Arc};

/// What is gone through: pairs of an index or key, and a value.
fn pairs(range: &Value) -> Result<Vec<(Value, Value)>, EvalError> {
    let key = |key: &Key| match key {
        Key::Bool(b) => Value::Bool(*b),
        Key::Int(i) => Value::Int(*i),
        Key::String(s) => Value::String(Arc::clone(s)),
    };
    match range {
        Value::List(items) => Ok(items
            .iter()
            .enumerate()
            .map(|(i, v)| (Value::Int(i64::try_from(i).unwrap_or(i64::MAX)), v.clone()))
            .collect()),
        Value::Map(map) => Ok(map.iter().map(|(k, v)| (key(k), v.clone())).collect()),
        _ => Err(EvalError::overload()),
    }
}

/// A comprehension that the parser has made of a macro.
pub(crate) fn eval(evaluator: &mut Evaluator, of: &ComprehensionExpr, scope: &Scope<'_>) -> Outcome {
    let range = evaluator.eval(&of.iter_range, scope)?;
    let is_list = matches!(range, Value::List(_));
    let mut accumulated = evaluator.eval(&of.accu_init, scope)?;
    for (key, value) in pairs(&range)? {
        evaluator.pay(1)?;
        let first = if of.iter_var2.is_some() || !is_list { &key } else { &value };
        let inner = scope.with(&of.iter_var, first);
        let second = of.iter_var2.as_deref().unwrap_or("");
        let inner = inner.with(second, &value);
        {
            let conditional = inner.with(&of.accu_var, &accumulated);
            if !matches!(evaluator.eval(&of.loop_cond, &conditional)?, Value::Bool(true)) {
                break;
            }
        }
        accumulated = step(evaluator, &of.loop_step, &of.accu_var, accumulated, &inner)?;
    }
    let last = scope.with(&of.accu_var, &accumulated);
    evaluator.eval(&of.result, &last)
}

/// A step: what is appended to is not copied.
fn step(evaluator: &mut Evaluator, expr: &IdedExpr, name: &str, accumulated: Value, scope: &Scope<'_>) -> Outcome {
    let is_accumulated = |e: &IdedExpr| matches!(&e.expr, Expr::Ident(ident) if ident == name);
    if is_accumulated(expr) {
        return Ok(accumulated);
    }
    if let Expr::Call(call) = &expr.expr {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, yes, no]) => {
                let taken = match evaluator.eval(condition, &scope.with(name, &accumulated))? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    _ => return Err(EvalError::overload()),
                };
                return step(evaluator, taken, name, accumulated, scope);
            }
            (op::ADD, [left, right]) if is_accumulated(left) && matches!(accumulated, Value::List(_)) => {
                let (Value::List(more), Value::List(mut items)) = (evaluator.eval(right, scope)?, accumulated) else {
                    return Err(EvalError::overload());
                };
                Arc::make_mut(&mut items).extend(more.iter().cloned());
                return Ok(Value::List(items));
            }
            _ => {}
        }
    }
    evaluator.eval(expr, &scope.with(name, &accumulated))
}

/// A macro that the parser leaves as a call: those with two variables, and those of optional values.
pub(crate) struct Late<'a> {
    name: &'a str,
    variables: Vec<&'a str>,
    bodies: &'a [IdedExpr],
}

/// The names of those, with how many variables each has, and how many expressions.
pub(crate) const LATE: [(&str, usize, usize); 12] = [
    ("optMap", 1, 1),
    ("optFlatMap", 1, 1),
    ("all", 2, 1),
    ("exists", 2, 1),
    ("existsOne", 2, 1),
    ("transformList", 2, 1),
    ("transformList", 2, 2),
    ("transformMap", 2, 1),
    ("transformMap", 2, 2),
    ("transformMapEntry", 2, 1),
    ("transformMapEntry", 2, 2),
    ("sortBy", 1, 1),
];

/// The macro that a call is.
pub(crate) fn late<'a>(name: &'a str, call: &'a CallExpr) -> Option<Late<'a>> {
    let idents = |args: &'a [IdedExpr]| -> Option<Vec<&'a str>> {
        args.iter().map(|a| if let Expr::Ident(name) = &a.expr { Some(name.as_str()) } else { None }).collect()
    };
    let mut found = LATE.iter().filter(|(n, v, b)| *n == name && v + b == call.args.len());
    let (_, variables, _) = found.next()?;
    let (variables, bodies) = call.args.split_at(*variables);
    Some(Late { name, variables: idents(variables)?, bodies })
}

impl Late<'_> {
    pub(crate) fn variables(&self) -> &[&str] {
        &self.variables
    }

    pub(crate) fn bodies(&self) -> &[IdedExpr] {
        self.bodies
    }

    pub(crate) fn is_of_optional(&self) -> bool {
        self.name.starts_with("opt")
    }

    fn sorts(&self) -> bool {
        self.name == "sortBy"
    }

    /// The types of its variables, for those of an index or key and of a value.
    pub(crate) fn types<T>(&self, [key, value]: [T; 2]) -> Vec<T> {
        if self.sorts() { vec![value] } else { vec![key, value] }
    }

    /// What it gives is `true` or `false`.
    pub(crate) fn is_question(&self) -> bool {
        !self.is_of_optional() && !self.sorts() && !self.name.starts_with("transform")
    }

    pub(crate) fn eval(&self, evaluator: &mut Evaluator, target: &IdedExpr, scope: &Scope<'_>) -> Outcome {
        let target = evaluator.eval(target, scope)?;
        let [.., body] = self.bodies else { return Err(EvalError::overload()) };
        if self.is_of_optional() {
            let Value::Optional(held) = &target else { return Err(EvalError::overload()) };
            let Some(held) = held else { return Ok(Value::Optional(None)) };
            let value = evaluator.eval(body, &scope.with(self.variables[0], held))?;
            return Ok(if self.name == "optMap" { Value::some(value) } else { value });
        }
        if self.sorts() {
            return self.sort(evaluator, body, &target, scope);
        }
        let filter = self.bodies.first().filter(|_| self.bodies.len() == 2);
        let (mut taken, mut failed) = (Vec::new(), None);
        for (key, value) in pairs(&target)? {
            evaluator.pay(1)?;
            let outer = scope.with(self.variables[0], &key);
            let inner = outer.with(self.variables[1], &value);
            if let Some(filter) = filter
                && !matches!(evaluator.eval(filter, &inner)?, Value::Bool(true))
            {
                continue;
            }
            match evaluator.eval(body, &inner) {
                Err(EvalError::TooExpensive) => return Err(EvalError::TooExpensive),
                Err(error) => failed = failed.or(Some(error)),
                Ok(result) => taken.push((key, result)),
            }
        }
        self.settle(taken, failed)
    }

    /// The items of a list, in the order of what the expression makes of each.
    fn sort(&self, evaluator: &mut Evaluator, body: &IdedExpr, target: &Value, scope: &Scope<'_>) -> Outcome {
        let Value::List(items) = target else { return Err(EvalError::overload()) };
        let mut keyed = Vec::with_capacity(items.len());
        for item in items.iter() {
            evaluator.pay(1)?;
            keyed.push((evaluator.eval(body, &scope.with(self.variables[0], item))?, item.clone()));
        }
        lists::sort(keyed)
    }

    fn settle(&self, taken: Vec<(Value, Value)>, failed: Option<EvalError>) -> Outcome {
        let count = |wanted: bool| taken.iter().filter(|(_, v)| matches!(v, Value::Bool(b) if *b == wanted)).count();
        match (self.name, failed) {
            ("all", _) if count(false) > 0 => Ok(Value::Bool(false)),
            ("exists", _) if count(true) > 0 => Ok(Value::Bool(true)),
            (_, Some(error)) => Err(error),
            ("all", None) => Ok(Value::Bool(true)),
            ("exists", None) => Ok(Value::Bool(false)),
            ("existsOne", None) => Ok(Value::Bool(count(true) == 1)),
            ("transformList", None) => Ok(Value::list(taken.into_iter().map(|(_, v)| v).collect())),
            ("transformMapEntry", None) => merged(taken.into_iter().map(|(_, v)| v)),
            (_, None) => {
                let entries = taken.into_iter().map(|(k, v)| Ok((k.key()?, v)));
                Ok(Value::Map(Arc::new(entries.collect::<Result<BTreeMap<_, _>, EvalError>>()?)))
            }
        }
    }
}

/// One map of many, in which each key is once.
fn merged(maps: impl Iterator<Item = Value>) -> Outcome {
    let mut all = BTreeMap::new();
    for map in maps {
        let Value::Map(map) = map else { return Err(EvalError::overload()) };
        for (key, value) in map.iter() {
            if all.insert(key.clone(), value.clone()).is_some() {
                return Err(EvalError::new(format!("insert failed: key {} already exists", shown(key))));
            }
        }
    }
    Ok(Value::Map(Arc::new(all)))
}

fn shown(key: &Key) -> String {
    match key {
        Key::Bool(b) => b.to_string(),
        Key::Int(i) => i.to_string(),
        Key::String(s) => s.to_string(),
    }
}
