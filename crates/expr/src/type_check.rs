//! Type checker: undeclared names, undefined fields, and operators and functions without a matching overload.

use crate::{
    Type, comprehension,
    functions::{self, FUNCTIONS, NAMESPACES},
    mutation,
};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators as op};

/// Types of the variables in scope: those of the program and of enclosing comprehensions.
struct TypeScope<'a> {
    variables: Vec<(&'a str, Type)>,
    outer: Option<&'a TypeScope<'a>>,
}

impl TypeScope<'_> {
    fn get(&self, name: &str) -> Option<&Type> {
        let variable = self.variables.iter().find(|(n, _)| *n == name).map(|(_, ty)| ty);
        variable.or_else(|| self.outer.and_then(|outer| outer.get(name)))
    }
}

/// Error of the type check of an expression, with the message of `cel-go` or of upstream's mutation types.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TypeError {
    /// Undeclared variable, type or function.
    #[error("undeclared reference to '{0}' (in container '')")]
    UndeclaredReference(String),
    /// The type has no such field.
    #[error("undefined field '{0}'")]
    UndefinedField(String),
    /// The value of a field has another type.
    #[error("expected type of field '{field}' is '{expected}' but provided type is '{provided}'")]
    FieldType {
        /// Name of the field.
        field: String,
        /// Type of the field.
        expected: Type,
        /// Type of the value.
        provided: Type,
    },
    /// The name of an object type is not the path of its field.
    #[error(
        "type mismatch: unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
    )]
    TypeName {
        /// Name of the type.
        name: String,
        /// Path of the field.
        expected: String,
    },
    /// A comprehension over a type without items.
    #[error("expression of type '{0}' cannot be range of a comprehension (must be list, map, or dynamic)")]
    NotARange(Type),
    /// Selection of a field of a type without fields.
    #[error("type '{0}' does not support field selection")]
    NoFields(Type),
    /// No overload of the function or operator accepts the arguments.
    #[error("found no matching overload for '{name}' applied to '{operands}'")]
    NoOverload {
        /// Name of the function or operator.
        name: String,
        /// Types of the target and of the arguments.
        operands: String,
    },
    /// The expression is incomplete.
    #[error("Syntax error")]
    Syntax,
}

type TypeResult = Result<Type, TypeError>;

/// Returns the result type of an expression.
pub(crate) fn check(expr: &IdedExpr, variables: &[(&str, Type)]) -> TypeResult {
    type_of(expr, &TypeScope { variables: variables.to_vec(), outer: None })
}

fn type_of(expr: &IdedExpr, scope: &TypeScope<'_>) -> TypeResult {
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
        Expr::Ident(name) => match scope.get(name) {
            Some(ty) => Ok(ty.clone()),
            None if functions::TYPES.contains(&name.as_str()) => Ok(Type::Named("type")),
            None => Err(TypeError::UndeclaredReference(name.clone())),
        },
        Expr::Select(select) => check_select(select, scope),
        Expr::Call(call) => check_call(call, scope),
        Expr::Comprehension(c) => {
            let range = type_of(&c.iter_range, scope)?;
            let (key, value) = range_types(&range)?;
            let accumulated = type_of(&c.accu_init, scope)?;
            let first = match (&c.iter_var2, &range) {
                (None, Type::List(_)) => value.clone(),
                _ => key,
            };
            let mut variables = vec![(c.iter_var.as_str(), first)];
            variables.extend(c.iter_var2.as_deref().map(|name| (name, value)));
            // The accumulated list is initially empty, so its item type is unknown.
            let collected = if matches!(accumulated, Type::List(_)) { Type::list(Type::Dyn) } else { accumulated };
            variables.push((c.accu_var.as_str(), collected.clone()));
            let inner = TypeScope { variables, outer: Some(scope) };
            type_of(&c.loop_cond, &inner)?;
            type_of(&c.loop_step, &inner)?;
            let last = TypeScope { variables: vec![(c.accu_var.as_str(), collected)], outer: Some(scope) };
            type_of(&c.result, &last)
        }
        Expr::List(list) => {
            let all = list.elements.iter().map(|e| type_of(e, scope)).collect::<Result<Vec<_>, _>>()?;
            Ok(Type::list(all.into_iter().reduce(Type::or).unwrap_or(Type::Dyn)))
        }
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    type_of(&entry.key, scope)?;
                    type_of(&entry.value, scope)?;
                }
            }
            Ok(Type::Map(Box::new(Type::Dyn)))
        }
        Expr::Struct(ty)
            if scope.get(Type::MUTATION_TYPES.0).is_some() && mutation::is_mutation_type(&ty.type_name) =>
        {
            for entry in &ty.entries {
                if let EntryExpr::StructField(entry) = &entry.expr {
                    let value_type = type_of(&entry.value, scope)?;
                    mutation::check_field(&ty.type_name, &entry.field, entry.optional, &value_type)?;
                }
            }
            Ok(Type::Struct(ty.type_name.as_str().into()))
        }
        Expr::Struct(ty) => Err(TypeError::UndeclaredReference(ty.type_name.clone())),
        Expr::Unspecified => Err(TypeError::Syntax),
    }
}

/// Returns the types of keys and values of a comprehension's range.
fn range_types(range: &Type) -> Result<(Type, Type), TypeError> {
    match range {
        Type::Dyn => Ok((Type::Dyn, Type::Dyn)),
        Type::List(ty) => Ok((Type::INT, (**ty).clone())),
        Type::Map(ty) => Ok((Type::STRING, (**ty).clone())),
        other => Err(TypeError::NotARange(other.clone())),
    }
}

fn check_select(select: &SelectExpr, scope: &TypeScope<'_>) -> TypeResult {
    let operand = type_of(&select.operand, scope)?;
    let ty = select_field(&operand, &select.field)?;
    Ok(if select.test { Type::BOOL } else { ty })
}

fn select_field(operand: &Type, name: &str) -> TypeResult {
    match operand {
        Type::Dyn => Ok(Type::Dyn),
        Type::Map(ty) => Ok((**ty).clone()),
        Type::Object(fields) => fields.get(name).cloned().ok_or_else(|| TypeError::UndefinedField(name.to_owned())),
        Type::Optional(ty) => Ok(Type::Optional(Box::new(select_field(ty, name)?))),
        Type::Struct(ty) => mutation::field_type(ty, name),
        Type::Named("authorizer") if name == "requestResource" => Ok(Type::Named("resourcecheck")),
        other => Err(TypeError::NoFields(other.clone())),
    }
}

fn check_call(call: &CallExpr, scope: &TypeScope<'_>) -> TypeResult {
    if let Some(target) = call.target.as_deref() {
        if let Some(namespace) = functions::namespace(target).filter(|n| scope.get(n).is_none()) {
            let args = check_all(&call.args, scope)?;
            return check_function(&format!("{namespace}.{}", call.func_name), None, &args);
        }
        if let Some(macro_call) = comprehension::as_macro(&call.func_name, call) {
            let target = type_of(target, scope)?;
            let types = match &target {
                Type::Optional(ty) if macro_call.is_optional_macro() => vec![(**ty).clone()],
                _ if macro_call.is_optional_macro() => vec![Type::Dyn],
                range => range_types(range).map(|(key, value)| macro_call.variable_types([key, value]))?,
            };
            let variables = macro_call.variables().iter().copied().zip(types).collect();
            let inner = TypeScope { variables, outer: Some(scope) };
            macro_call.bodies().iter().try_for_each(|body| type_of(body, &inner).map(drop))?;
            return Ok(if macro_call.is_predicate() { Type::BOOL } else { Type::Dyn });
        }
        let (target, args) = (type_of(target, scope)?, check_all(&call.args, scope)?);
        return check_function(&call.func_name, Some(&target), &args);
    }
    let args = check_all(&call.args, scope)?;
    check_operator(&call.func_name, call, &args).unwrap_or_else(|| check_function(&call.func_name, None, &args))
}

fn check_all(exprs: &[IdedExpr], scope: &TypeScope<'_>) -> Result<Vec<Type>, TypeError> {
    exprs.iter().map(|e| type_of(e, scope)).collect()
}

fn no_overload(name: &str, target: Option<&Type>, args: &[Type]) -> TypeError {
    let args: Vec<String> = args.iter().map(Type::format_cel_type).collect();
    let target = target.map(|t| format!("{}.", t.format_cel_type())).unwrap_or_default();
    TypeError::NoOverload { name: name.to_owned(), operands: format!("{target}({})", args.join(", ")) }
}

/// Returns the result type of an operator; `None` for another function.
fn check_operator(name: &str, call: &CallExpr, args: &[Type]) -> Option<TypeResult> {
    let wrong = || Err(no_overload(name, None, args));
    let is_bool = |t: &Type| t.is_assignable(&Type::BOOL);
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
            if is_bool(condition) && yes.is_assignable(no) {
                Ok(yes.clone().or(no.clone()))
            } else {
                wrong()
            }
        }
        (op::EQUALS | op::NOT_EQUALS, [l, r]) => {
            if l.is_assignable(r) {
                Ok(Type::BOOL)
            } else {
                wrong()
            }
        }
        (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [l, r]) => {
            let ordered = |t: &Type| matches!(t, Type::Dyn | Type::Named(_));
            let numbers = |t: &Type| ["int", "uint", "double"].contains(&t.word());
            if ordered(l) && (l.is_assignable(r) || numbers(l) && numbers(r)) { Ok(Type::BOOL) } else { wrong() }
        }
        (op::IN, [value, Type::List(ty)]) => {
            if value.is_assignable(ty) {
                Ok(Type::BOOL)
            } else {
                wrong()
            }
        }
        (op::IN, [_, Type::Map(_) | Type::Object(_) | Type::Struct(_) | Type::Dyn]) => Ok(Type::BOOL),
        (op::NEGATE, [one]) => Ok(one.clone()),
        (op::ADD | op::SUBSTRACT, [l, r]) => arithmetic_type(name, l, r).map_or_else(wrong, Ok),
        (op::MULTIPLY | op::DIVIDE | op::MODULO, [l, r]) => {
            let number = |t: &Type| ["int", "uint", "double", "dyn"].contains(&t.word());
            if number(l) && l.is_assignable(r) { Ok(l.clone().or(r.clone())) } else { wrong() }
        }
        (op::INDEX, [operand, _]) => match operand {
            Type::List(ty) | Type::Map(ty) => Ok((**ty).clone()),
            Type::Dyn | Type::Object(_) | Type::Struct(_) => Ok(Type::Dyn),
            Type::Optional(_) => Ok(Type::Optional(Box::new(Type::Dyn))),
            Type::Named(_) => wrong(),
        },
        (op::OPT_SELECT, [operand, _]) => {
            let inner = if let Type::Optional(ty) = operand { ty } else { operand };
            let name = match call.args.get(1).map(|a| &a.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => name.inner(),
                _ => "",
            };
            select_field(inner, name).map(|ty| Type::Optional(Box::new(ty)))
        }
        (op::OPT_INDEX, _) => Ok(Type::Optional(Box::new(Type::Dyn))),
        _ => return None,
    })
}

fn arithmetic_type(name: &str, l: &Type, r: &Type) -> Option<Type> {
    let time = |l: &str, r: &str| match (name, l, r) {
        (_, "timestamp", "duration") | (op::ADD, "duration", "timestamp") => Some(Type::TIMESTAMP),
        (op::SUBSTRACT, "timestamp", "timestamp") => Some(Type::DURATION),
        _ => None,
    };
    let operand_types: &[&str] = if name == op::ADD {
        &["int", "uint", "double", "string", "bytes", "list", "duration", "dyn"]
    } else {
        &["int", "uint", "double", "duration", "timestamp", "dyn"]
    };
    time(l.word(), r.word()).or_else(|| {
        let fits = operand_types.contains(&l.word()) && operand_types.contains(&r.word()) && l.is_assignable(r);
        fits.then(|| l.clone().or(r.clone()))
    })
}

fn check_function(name: &str, target: Option<&Type>, args: &[Type]) -> TypeResult {
    let overloads = FUNCTIONS.iter().filter(|f| f.name == name).collect::<Vec<_>>();
    if overloads.is_empty() {
        let named =
            if NAMESPACES.iter().any(|n| name.starts_with(n)) { name } else { name.rsplit('.').next().unwrap_or(name) };
        return Err(TypeError::UndeclaredReference(named.to_owned()));
    }
    let fits = |f: &&&functions::Function| {
        let is_receiver = match (target, f.receiver) {
            (None, "") => true,
            (Some(Type::Dyn), receiver) => !receiver.is_empty(),
            (Some(ty), receiver) => receiver.split('|').any(|word| word == ty.word() || word == "dyn"),
            (None, _) => false,
        };
        let parameters: Vec<&str> = f.parameters.split(',').filter(|t| !t.is_empty()).collect();
        let required = parameters.iter().filter(|t| !t.starts_with('?')).count();
        let one = |(arg, word): (&Type, &&str)| {
            let word = word.trim_start_matches('?');
            word == "dyn" || arg.word() == "dyn" || word.split('|').any(|w| w == arg.word())
        };
        is_receiver && (required..=parameters.len()).contains(&args.len()) && args.iter().zip(&parameters).all(one)
    };
    match overloads.iter().find(fits) {
        Some(found) => Ok(Type::from_word(found.result)),
        None => Err(no_overload(name, target, args)),
    }
}
