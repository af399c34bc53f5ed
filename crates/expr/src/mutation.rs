//! Types for mutations: apply configurations (`Object{spec: Object.spec{...}}`) and JSON patch operations
//! (`apiserver/pkg/cel/mutation`).

use crate::{EvalError, Type, TypeError, Value, eval::Outcome};

const OBJECT: &str = "Object";
const PATCH: &str = "JSONPatch";

/// Returns whether a name is a mutation type: `Object`, `Object.<path>` or `JSONPatch`.
pub(crate) fn is_mutation_type(name: &str) -> bool {
    let path = || name.strip_prefix(OBJECT).and_then(|rest| rest.strip_prefix('.'));
    name == OBJECT || name == PATCH || path().is_some_and(|path| path.split('.').all(|field| !field.is_empty()))
}

/// Returns the type of a field.
pub(crate) fn field_type(type_name: &str, name: &str) -> Result<Type, TypeError> {
    match (type_name, name) {
        (PATCH, "op" | "path" | "from") => Ok(Type::STRING),
        (PATCH, "value") => Ok(Type::Dyn),
        (PATCH, _) => Err(TypeError::UndefinedField(name.to_owned())),
        _ => Ok(Type::Dyn),
    }
}

/// Checks the type of a field's value. The name of an object type must match the path of the field.
pub(crate) fn check_field(type_name: &str, name: &str, optional: bool, value_type: &Type) -> Result<(), TypeError> {
    let value_type = match value_type {
        Type::Optional(value_type) if optional => value_type,
        value_type => value_type,
    };
    let expected = field_type(type_name, name)?;
    if !value_type.is_assignable(&expected) {
        return Err(TypeError::FieldType { field: name.to_owned(), expected, provided: value_type.clone() });
    }
    match value_type {
        _ if type_name == PATCH => Ok(()),
        Type::List(items) => check_type_path(&format!("{type_name}.{name}"), items),
        value_type => check_type_path(&format!("{type_name}.{name}"), value_type),
    }
}

fn check_type_path(path: &str, value_type: &Type) -> Result<(), TypeError> {
    match value_type {
        Type::Struct(name) if **name != *path => {
            Err(TypeError::TypeName { name: name.as_ref().to_owned(), expected: path.to_owned() })
        }
        _ => Ok(()),
    }
}

/// Escapes a key for a JSON pointer (`jsonpatch.escapeKey`).
pub(crate) fn escape_key(args: &[Value]) -> Outcome {
    match args {
        [Value::String(key)] => Ok(Value::string(&key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(EvalError::overload()),
    }
}
