//! What makes no sense whatever the values are: names that do not exist, fields that objects do not have, operators and
//! functions that are not for such values.

use crate::{
    Type, changes, comprehension,
    functions::{self, FUNCTIONS, NAMESPACES},
};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators as op};

/// The types of variables: those of the program, and those of comprehensions around.
struct Names<'a> {
    own: Vec<(&'a str, Type)>,
    outer: Option<&'a Names<'a>>,
}

impl Names<'_> {
    fn get(&self, name: &str) -> Option<&Type> {
        let own = self.own.iter().find(|(n, _)| *n == name).map(|(_, of)| of);
        own.or_else(|| self.outer.and_then(|outer| outer.get(name)))
    }
}

type Found = Result<Type, String>;

/// The type of what the expression gives.
pub(crate) fn check(expr: &IdedExpr, variables: &[(&str, Type)]) -> Found {
    type_of(expr, &Names { own: variables.to_vec(), outer: None })
}

fn type_of(expr: &IdedExpr, names: &Names<'_>) -> Found {
    match &expr.expr {
        Expr::Literal(literal) => Ok(Type::Named(match literal {
            LiteralValue::Boolean(_) => "bool",
            LiteralValue::Bytes(_) => "bytes",
            LiteralValue::Double(_) => "double",
            LiteralValue::Int(_) => "int",
            LiteralValue::Null => "null_type",
            LiteralValue::String(_) => "string",
            LiteralValue::UInt(_) => "uint",
        })),
        Expr::Ident(name) => match names.get(name) {
            Some(of) => Ok(of.clone()),
            None if functions::TYPES.contains(&name.as_str()) => Ok(Type::Named("type")),
            None => Err(format!("undeclared reference to '{name}' (in container '')")),
        },
        Expr::Select(select) => self::select(select, names),
        Expr::Call(call) => self::call(call, names),
        Expr::Comprehension(c) => {
            let range = type_of(&c.iter_range, names)?;
            let (key, value) = elements(&range)?;
            let accumulated = type_of(&c.accu_init, names)?;
            let first = match (&c.iter_var2, &range) {
                (None, Type::List(_)) => value.clone(),
                _ => key,
            };
            let mut own = vec![(c.iter_var.as_str(), first)];
            own.extend(c.iter_var2.as_deref().map(|name| (name, value)));
            // What is collected is known when it is: a list begins empty.
            let collected = if matches!(accumulated, Type::List(_)) { Type::list(Type::Dyn) } else { accumulated };
            own.push((c.accu_var.as_str(), collected.clone()));
            let inner = Names { own, outer: Some(names) };
            type_of(&c.loop_cond, &inner)?;
            type_of(&c.loop_step, &inner)?;
            let last = Names { own: vec![(c.accu_var.as_str(), collected)], outer: Some(names) };
            type_of(&c.result, &last)
        }
        Expr::List(list) => {
            let all = list.elements.iter().map(|e| type_of(e, names)).collect::<Result<Vec<_>, _>>()?;
            Ok(Type::list(all.into_iter().reduce(Type::or).unwrap_or(Type::Dyn)))
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    type_of(&entry.key, names)?;
                    type_of(&entry.value, names)?;
                }
            }
            Ok(Type::Map(Box::new(Type::Dyn)))
        }
        Expr::Struct(of) if names.get(Type::CHANGES.0).is_some() && changes::is_type(&of.type_name) => {
            for entry in &of.entries {
                if let EntryExpr::StructField(entry) = &entry.expr {
                    let held = type_of(&entry.value, names)?;
                    changes::check(&of.type_name, &entry.field, entry.optional, &held)?;
                }
            }
            Ok(Type::Struct(of.type_name.as_str().into()))
        }
        Expr::Struct(of) => Err(format!("undeclared reference to '{}' (in container '')", of.type_name)),
        Expr::Unspecified => Err("Syntax error".to_owned()),
    }
}

/// What one goes through: the types of keys and of values.
fn elements(range: &Type) -> Result<(Type, Type), String> {
    match range {
        Type::Dyn => Ok((Type::Dyn, Type::Dyn)),
        Type::List(of) => Ok((Type::INT, (**of).clone())),
        Type::Map(of) => Ok((Type::STRING, (**of).clone())),
        other => Err(format!(
            "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
        )),
    }
}

fn select(select: &SelectExpr, names: &Names<'_>) -> Found {
    let operand = type_of(&select.operand, names)?;
    let of = field(&operand, &select.field)?;
    Ok(if select.test { Type::BOOL } else { of })
}

fn field(operand: &Type, name: &str) -> Found {
    match operand {
        Type::Dyn => Ok(Type::Dyn),
        Type::Map(of) => Ok((**of).clone()),
        Type::Object(fields) => fields.get(name).cloned().ok_or_else(|| format!("undefined field '{name}'")),
        Type::Optional(of) => Ok(Type::Optional(Box::new(field(of, name)?))),
        Type::Struct(of) => changes::field(of, name),
        Type::Named("authorizer") if name == "requestResource" => Ok(Type::Named("resourcecheck")),
        other => Err(format!("type '{other}' does not support field selection")),
    }
}

fn call(call: &CallExpr, names: &Names<'_>) -> Found {
    if let Some(target) = call.target.as_deref() {
        if let Some(namespace) = functions::namespace(target).filter(|n| names.get(n).is_none()) {
            let args = all(&call.args, names)?;
            return function(&format!("{namespace}.{}", call.func_name), None, &args);
        }
        if let Some(late) = comprehension::late(&call.func_name, call) {
            let target = type_of(target, names)?;
            let types = match &target {
                Type::Optional(of) if late.is_of_optional() => vec![(**of).clone()],
                _ if late.is_of_optional() => vec![Type::Dyn],
                range => elements(range).map(|(key, value)| late.types([key, value]))?,
            };
            let own = late.variables().iter().copied().zip(types).collect();
            let inner = Names { own, outer: Some(names) };
            late.bodies().iter().try_for_each(|body| type_of(body, &inner).map(drop))?;
            return Ok(if late.is_question() { Type::BOOL } else { Type::Dyn });
        }
        let (target, args) = (type_of(target, names)?, all(&call.args, names)?);
        return function(&call.func_name, Some(&target), &args);
    }
    let args = all(&call.args, names)?;
    operator(&call.func_name, call, &args).unwrap_or_else(|| function(&call.func_name, None, &args))
}

fn all(exprs: &[IdedExpr], names: &Names<'_>) -> Result<Vec<Type>, String> {
    exprs.iter().map(|e| type_of(e, names)).collect()
}

fn no_overload(name: &str, target: Option<&Type>, args: &[Type]) -> String {
    let args: Vec<String> = args.iter().map(Type::told).collect();
    let target = target.map(|t| format!("{}.", t.told())).unwrap_or_default();
    format!("found no matching overload for '{name}' applied to '{target}({})'", args.join(", "))
}

/// What an operator gives; `None` when this is none.
fn operator(name: &str, call: &CallExpr, args: &[Type]) -> Option<Found> {
    let wrong = || Err(no_overload(name, None, args));
    let is_bool = |t: &Type| t.meets(&Type::BOOL);
    Some(match (name, args) {
        (op::LOGICAL_AND | op::LOGICAL_OR | op::LOGICAL_NOT, args) => {
            if args.iter().all(is_bool) {
                Ok(Type::BOOL)
            } else {
                wrong()
            }
        }
        (op::NOT_STRICTLY_FALSE, _) => Ok(Type::BOOL),
        (op::CONDITIONAL, [condition, yes, no]) => {
            if is_bool(condition) && yes.meets(no) {
                Ok(yes.clone().or(no.clone()))
            } else {
                wrong()
            }
        }
        (op::EQUALS | op::NOT_EQUALS, [l, r]) => {
            if l.meets(r) {
                Ok(Type::BOOL)
            } else {
                wrong()
            }
        }
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [l, r]) => {
            let ordered = |t: &Type| matches!(t, Type::Dyn | Type::Named(_));
            let numbers = |t: &Type| ["int", "uint", "double"].contains(&t.word());
            if ordered(l) && (l.meets(r) || numbers(l) && numbers(r)) { Ok(Type::BOOL) } else { wrong() }
        }
        (op::IN, [value, Type::List(of)]) => {
            if value.meets(of) {
                Ok(Type::BOOL)
            } else {
                wrong()
            }
        }
        (op::IN, [_, Type::Map(_) | Type::Object(_) | Type::Struct(_) | Type::Dyn]) => Ok(Type::BOOL),
        (op::NEGATE, [one]) => Ok(one.clone()),
        (op::ADD | op::SUBSTRACT, [l, r]) => arithmetic(name, l, r).map_or_else(wrong, Ok),
        (op::MULTIPLY | op::DIVIDE | op::MODULO, [l, r]) => {
            let number = |t: &Type| ["int", "uint", "double", "dyn"].contains(&t.word());
            if number(l) && l.meets(r) { Ok(l.clone().or(r.clone())) } else { wrong() }
        }
        (op::INDEX, [operand, _]) => match operand {
            Type::List(of) | Type::Map(of) => Ok((**of).clone()),
            Type::Dyn | Type::Object(_) | Type::Struct(_) => Ok(Type::Dyn),
            Type::Optional(_) => Ok(Type::Optional(Box::new(Type::Dyn))),
            Type::Named(_) => wrong(),
        },
        (op::OPT_SELECT, [operand, _]) => {
            let inner = if let Type::Optional(of) = operand { of } else { operand };
            let name = match call.args.get(1).map(|a| &a.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => name.inner(),
                _ => "",
            };
            field(inner, name).map(|of| Type::Optional(Box::new(of)))
        }
        (op::OPT_INDEX, _) => Ok(Type::Optional(Box::new(Type::Dyn))),
        _ => return None,
    })
}

fn arithmetic(name: &str, l: &Type, r: &Type) -> Option<Type> {
    let time = |l: &str, r: &str| match (name, l, r) {
        (_, "timestamp", "duration") | (op::ADD, "duration", "timestamp") => Some(Type::TIMESTAMP),
        (op::SUBSTRACT, "timestamp", "timestamp") => Some(Type::DURATION),
        _ => None,
    };
    let taken: &[&str] = if name == op::ADD {
        &["int", "uint", "double", "string", "bytes", "list", "duration", "dyn"]
    } else {
        &["int", "uint", "double", "duration", "timestamp", "dyn"]
    };
    time(l.word(), r.word()).or_else(|| {
        let fits = taken.contains(&l.word()) && taken.contains(&r.word()) && l.meets(r);
        fits.then(|| l.clone().or(r.clone()))
    })
}

fn function(name: &str, target: Option<&Type>, args: &[Type]) -> Found {
    let own = FUNCTIONS.iter().filter(|f| f.name == name).collect::<Vec<_>>();
    if own.is_empty() {
        let named =
            if NAMESPACES.iter().any(|n| name.starts_with(n)) { name } else { name.rsplit('.').next().unwrap_or(name) };
        return Err(format!("undeclared reference to '{named}' (in container '')"));
    }
    let fits = |f: &&&functions::Function| {
        let on = match (target, f.on) {
            (None, "") => true,
            (Some(Type::Dyn), on) => !on.is_empty(),
            (Some(of), on) => on.split('|').any(|word| word == of.word() || word == "dyn"),
            (None, _) => false,
        };
        let takes: Vec<&str> = f.takes.split(',').filter(|t| !t.is_empty()).collect();
        let required = takes.iter().filter(|t| !t.starts_with('?')).count();
        let one = |(arg, word): (&Type, &&str)| {
            let word = word.trim_start_matches('?');
            word == "dyn" || arg.word() == "dyn" || word.split('|').any(|w| w == arg.word())
        };
        on && (required..=takes.len()).contains(&args.len()) && args.iter().zip(&takes).all(one)
    };
    match own.iter().find(fits) {
        Some(found) => Ok(Type::of_word(found.gives)),
        None => Err(no_overload(name, target, args)),
    }
}
