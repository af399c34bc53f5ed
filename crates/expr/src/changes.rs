//! How expressions say what becomes of an object: parts of it (`Object{spec: Object.spec{...}}`) and steps of a JSON patch
//! (`apiserver/pkg/cel/mutation`).

use crate::{EvalError, Type, Value, eval::Outcome};

const OBJECT: &str = "Object";
const PATCH: &str = "JSONPatch";

/// Whether there can be values of this name: an object, what stands at a path in one, or a step of a patch.
pub(crate) fn is_type(name: &str) -> bool {
    let path = || name.strip_prefix(OBJECT).and_then(|rest| rest.strip_prefix('.'));
    name == OBJECT || name == PATCH || path().is_some_and(|path| path.split('.').all(|field| !field.is_empty()))
}

/// The type of a field.
pub(crate) fn field(of: &str, name: &str) -> Result<Type, String> {
    match (of, name) {
        (PATCH, "op" | "path" | "from") => Ok(Type::STRING),
        (PATCH, "value") => Ok(Type::Dyn),
        (PATCH, _) => Err(format!("undefined field '{name}'")),
        _ => Ok(Type::Dyn),
    }
}

/// Whether a field may hold a value of this type: what is named after a path must stand at that path.
pub(crate) fn check(of: &str, name: &str, optional: bool, held: &Type) -> Result<(), String> {
    let held = match held {
        Type::Optional(held) if optional => held,
        held => held,
    };
    let wanted = field(of, name)?;
    if !held.meets(&wanted) {
        return Err(format!("expected type of field '{name}' is '{wanted}' but provided type is '{held}'"));
    }
    match held {
        _ if of == PATCH => Ok(()),
        Type::List(items) => at_path(&format!("{of}.{name}"), items),
        held => at_path(&format!("{of}.{name}"), held),
    }
}

fn at_path(path: &str, held: &Type) -> Result<(), String> {
    match held {
        Type::Struct(own) if **own != *path => Err(format!(
            "type mismatch: unexpected type name {own:?}, expected {path:?}, which matches field name path from root Object type"
        )),
        _ => Ok(()),
    }
}

/// A key as a step of a path in a patch.
pub(crate) fn escape_key(args: &[Value]) -> Outcome {
    match args {
        [Value::String(key)] => Ok(Value::text(&key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(EvalError::overload()),
    }
}
