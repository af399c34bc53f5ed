//! Comprehensions: expanded macros such as `all` and `map`, and macros that the parser does not expand.

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome, Scope},
    functions::lists,
    value::Key,
};
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, operators as op};
use std::{collections::BTreeMap, sync::Arc};

/// Returns the elements of a range as pairs of index or key, and value.
fn elements(range: &Value) -> Result<Vec<(Value, Value)>, EvalError> {
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

/// Evaluates a comprehension that the parser has expanded from a macro.
pub(crate) fn eval(evaluator: &mut Evaluator, comprehension: &ComprehensionExpr, scope: &Scope<'_>) -> Outcome {
    let range = evaluator.eval(&comprehension.iter_range, scope)?;
    let is_list = matches!(range, Value::List(_));
    let mut accumulated = evaluator.eval(&comprehension.accu_init, scope)?;
    for (key, value) in elements(&range)? {
        evaluator.charge(1)?;
        let first = if comprehension.iter_var2.is_some() || !is_list { &key } else { &value };
        let inner = scope.with(&comprehension.iter_var, first);
        let second = comprehension.iter_var2.as_deref().unwrap_or("");
        let inner = inner.with(second, &value);
        {
            let conditional = inner.with(&comprehension.accu_var, &accumulated);
            if !matches!(evaluator.eval(&comprehension.loop_cond, &conditional)?, Value::Bool(true)) {
                break;
            }
        }
        accumulated = eval_step(evaluator, &comprehension.loop_step, &comprehension.accu_var, accumulated, &inner)?;
    }
    let last = scope.with(&comprehension.accu_var, &accumulated);
    evaluator.eval(&comprehension.result, &last)
}

/// Evaluates the loop step; appending to the accumulated list does not copy it.
fn eval_step(evaluator: &mut Evaluator, expr: &IdedExpr, name: &str, accumulated: Value, scope: &Scope<'_>) -> Outcome {
    let is_accumulated = |e: &IdedExpr| matches!(&e.expr, Expr::Ident(ident) if ident == name);
    if is_accumulated(expr) {
        return Ok(accumulated);
    }
    if let Expr::Call(call) = &expr.expr {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, yes, no]) => {
                let branch = match evaluator.eval(condition, &scope.with(name, &accumulated))? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    _ => return Err(EvalError::overload()),
                };
                return eval_step(evaluator, branch, name, accumulated, scope);
            }
            (op::ADD, [left, right]) if is_accumulated(left) && matches!(accumulated, Value::List(_)) => {
                let (Value::List(added), Value::List(mut items)) = (evaluator.eval(right, scope)?, accumulated) else {
                    return Err(EvalError::overload());
                };
                Arc::make_mut(&mut items).extend(added.iter().cloned());
                return Ok(Value::List(items));
            }
            _ => {}
        }
    }
    evaluator.eval(expr, &scope.with(name, &accumulated))
}

/// A macro that the parser leaves as a call: macros with two variables and macros of optional values.
pub(crate) struct Macro<'a> {
    name: &'a str,
    variables: Vec<&'a str>,
    bodies: &'a [IdedExpr],
}

/// Macros that the parser does not expand: name, number of variables, and number of expressions.
pub(crate) const MACROS: [(&str, usize, usize); 12] = [
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

/// Returns the macro of a call.
pub(crate) fn as_macro<'a>(name: &'a str, call: &'a CallExpr) -> Option<Macro<'a>> {
    let idents = |args: &'a [IdedExpr]| -> Option<Vec<&'a str>> {
        args.iter().map(|a| if let Expr::Ident(name) = &a.expr { Some(name.as_str()) } else { None }).collect()
    };
    let mut found = MACROS.iter().filter(|(n, v, b)| *n == name && v + b == call.args.len());
    let (_, variables, _) = found.next()?;
    let (variables, bodies) = call.args.split_at(*variables);
    Some(Macro { name, variables: idents(variables)?, bodies })
}

impl Macro<'_> {
    pub(crate) fn variables(&self) -> &[&str] {
        &self.variables
    }

    pub(crate) fn bodies(&self) -> &[IdedExpr] {
        self.bodies
    }

    pub(crate) fn is_optional_macro(&self) -> bool {
        self.name.starts_with("opt")
    }

    fn is_sort(&self) -> bool {
        self.name == "sortBy"
    }

    /// Returns the types of the macro's variables, given the types of key and value.
    pub(crate) fn variable_types<T>(&self, [key, value]: [T; 2]) -> Vec<T> {
        if self.is_sort() { vec![value] } else { vec![key, value] }
    }

    /// Returns whether the macro returns a bool.
    pub(crate) fn is_predicate(&self) -> bool {
        !self.is_optional_macro() && !self.is_sort() && !self.name.starts_with("transform")
    }

    pub(crate) fn eval(&self, evaluator: &mut Evaluator, target: &IdedExpr, scope: &Scope<'_>) -> Outcome {
        let target = evaluator.eval(target, scope)?;
        let [.., body] = self.bodies else { return Err(EvalError::overload()) };
        if self.is_optional_macro() {
            let Value::Optional(inner_value) = &target else { return Err(EvalError::overload()) };
            let Some(inner_value) = inner_value else { return Ok(Value::Optional(None)) };
            let value = evaluator.eval(body, &scope.with(self.variables[0], inner_value))?;
            return Ok(if self.name == "optMap" { Value::some(value) } else { value });
        }
        if self.is_sort() {
            return self.sort(evaluator, body, &target, scope);
        }
        let filter = self.bodies.first().filter(|_| self.bodies.len() == 2);
        let (mut results, mut first_error) = (Vec::new(), None);
        for (key, value) in elements(&target)? {
            evaluator.charge(1)?;
            let outer = scope.with(self.variables[0], &key);
            let inner = outer.with(self.variables[1], &value);
            if let Some(filter) = filter
                && !matches!(evaluator.eval(filter, &inner)?, Value::Bool(true))
            {
                continue;
            }
            match evaluator.eval(body, &inner) {
                Err(EvalError::CostLimitExceeded) => return Err(EvalError::CostLimitExceeded),
                Err(error) => first_error = first_error.or(Some(error)),
                Ok(result) => results.push((key, result)),
            }
        }
        self.result(results, first_error)
    }

    /// Sorts a list by the results of the expression.
    fn sort(&self, evaluator: &mut Evaluator, body: &IdedExpr, target: &Value, scope: &Scope<'_>) -> Outcome {
        let Value::List(items) = target else { return Err(EvalError::overload()) };
        let mut keyed = Vec::with_capacity(items.len());
        for item in items.iter() {
            evaluator.charge(1)?;
            keyed.push((evaluator.eval(body, &scope.with(self.variables[0], item))?, item.clone()));
        }
        lists::sort(keyed)
    }

    fn result(&self, results: Vec<(Value, Value)>, first_error: Option<EvalError>) -> Outcome {
        let count =
            |expected: bool| results.iter().filter(|(_, v)| matches!(v, Value::Bool(b) if *b == expected)).count();
        match (self.name, first_error) {
            ("all", _) if count(false) > 0 => Ok(Value::Bool(false)),
            ("exists", _) if count(true) > 0 => Ok(Value::Bool(true)),
            (_, Some(error)) => Err(error),
            ("all", None) => Ok(Value::Bool(true)),
            ("exists", None) => Ok(Value::Bool(false)),
            ("existsOne", None) => Ok(Value::Bool(count(true) == 1)),
            ("transformList", None) => Ok(Value::list(results.into_iter().map(|(_, v)| v).collect())),
            ("transformMapEntry", None) => merge_maps(results.into_iter().map(|(_, v)| v)),
            (_, None) => {
                let entries = results.into_iter().map(|(k, v)| Ok((k.key()?, v)));
                Ok(Value::Map(Arc::new(entries.collect::<Result<BTreeMap<_, _>, EvalError>>()?)))
            }
        }
    }
}

/// Merges maps; duplicate keys are an error.
fn merge_maps(maps: impl Iterator<Item = Value>) -> Outcome {
    let mut all = BTreeMap::new();
    for map in maps {
        let Value::Map(map) = map else { return Err(EvalError::overload()) };
        for (key, value) in map.iter() {
            if all.insert(key.clone(), value.clone()).is_some() {
                return Err(EvalError::new(format!("insert failed: key {} already exists", format_key(key))));
            }
        }
    }
    Ok(Value::Map(Arc::new(all)))
}

fn format_key(key: &Key) -> String {
    match key {
        Key::Bool(b) => b.to_string(),
        Key::Int(i) => i.to_string(),
        Key::String(s) => s.to_string(),
    }
}
