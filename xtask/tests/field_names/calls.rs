//! Calls of functions, methods and macros.

use crate::{
    evaluate::Evaluator,
    macros::Fragment,
    schema::Access,
    value::{Abstract, Literal},
};
use syn::{Expr, ExprCall, ExprMethodCall, Macro};

/// Methods that return their receiver, an iterator of it, or a part of it that has the same type here.
const SAME: [&str; 55] = [
    "as_array",
    "as_array_mut",
    "as_deref",
    "as_deref_mut",
    "as_mut",
    "as_object",
    "as_object_mut",
    "as_ref",
    "as_slice",
    "as_str",
    "borrow",
    "by_ref",
    "clone",
    "cloned",
    "collect",
    "copied",
    "cycle",
    "duplicates",
    "entries",
    "expect",
    "filter",
    "flatten",
    "fuse",
    "inspect",
    "into",
    "into_boxed_slice",
    "into_iter",
    "into_owned",
    "items",
    "iter",
    "iter_mut",
    "map_err",
    "map_while",
    "ok",
    "ok_or",
    "ok_or_else",
    "or_default",
    "peekable",
    "rev",
    "shown_as",
    "skip",
    "skip_while",
    "sort_by_key",
    "step_by",
    "take",
    "take_if",
    "take_while",
    "to_owned",
    "to_string",
    "to_vec",
    "unwrap",
    "unwrap_or_default",
    "partition",
    "path",
    "value",
];

/// Methods that return an element of their receiver.
const ELEMENT: [&str; 17] = [
    "drain",
    "find",
    "first",
    "first_mut",
    "last",
    "last_mut",
    "max",
    "max_by",
    "max_by_key",
    "min",
    "min_by",
    "min_by_key",
    "next",
    "next_back",
    "nth",
    "pop",
    "reduce",
];

/// Methods that return the result of the function that they call for each element.
const MAP: [&str; 5] = ["filter_map", "find_map", "flat_map", "map", "scan"];

/// Methods of an `Option` that return the result of the function that they call.
const MAP_OPTION: [&str; 6] = ["and_then", "is_none_or", "is_some_and", "map_or", "map_or_else", "then"];

/// Methods whose first argument is the name of a field or the key of a map.
const FIELD: [&str; 10] =
    ["at", "child", "contains_key", "entry", "get", "get_mut", "insert", "remove", "remove_entry", "swap_remove"];

/// Methods that return their receiver, or else their argument.
const OR: [&str; 7] = ["chain", "or", "or_else", "or_insert", "or_insert_with", "unwrap_or", "unwrap_or_else"];

impl Evaluator<'_> {
    pub(crate) fn function_call(&mut self, call: &'static ExprCall) -> Abstract {
        let path: Vec<String> = match &*call.func {
            Expr::Path(p) => p.path.segments.iter().map(|s| s.ident.to_string()).collect(),
            _ => Vec::new(),
        };
        let callee = self.expression(&call.func);
        let arguments: Vec<Abstract> = call.args.iter().map(|argument| self.expression(argument)).collect();
        if matches!(callee, Abstract::Closure(_) | Abstract::Function(_)) && !is_path_builder(&path) {
            return self.call_value(&callee, arguments);
        }
        let first = arguments.first().cloned().unwrap_or(Abstract::Unknown);
        match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["FieldPath", "new"] => {
                let root = self.root.clone();
                self.reads.field(&root, &first)
            }
            ["FieldCursor", "object" | "new"] => first,
            ["FieldPath", "default"] => self.root.clone(),
            ["Cell", "Pointer" | "OrNone" | "Count"] => {
                let root = self.root.clone();
                self.reads.path(&root, &first, '/')
            }
            ["Cell", "Computed"] => {
                let root = self.root.clone();
                self.call_value(&first, vec![root])
            }
            ["Some" | "Ok"] | [.., "Box" | "Arc" | "Rc" | "String" | "Cow", _] => first,
            [.., "Value", "Object" | "Array" | "String" | "from"] => first,
            [.., "once" | "repeat" | "repeat_n" | "replace"] => first,
            [.., "take"] => first,
            // A method with its type: `Value::as_array(x)`.
            [.., name] if !arguments.is_empty() => self.method(name, &first, &arguments[1..], &[]),
            _ => Abstract::Unknown,
        }
    }

    pub(crate) fn method_call(&mut self, call: &'static ExprMethodCall) -> Abstract {
        let receiver = self.expression(&call.receiver);
        let arguments: Vec<Abstract> = call.args.iter().map(|argument| self.expression(argument)).collect();
        let names: Vec<Option<String>> = call.args.iter().map(path_end).collect();
        let name = call.method.to_string();
        let value = self.method(&name, &receiver, &arguments, &names);
        // A method of the project.
        let is_json = matches!(receiver, Abstract::Json(_) | Abstract::Text(_));
        match self.program.method(&self.place.module, &name) {
            Some(index) if value == Abstract::Unknown && !is_json => self.call(index, arguments),
            _ => value,
        }
    }

    /// Returns the result of a method of the standard library, of `serde_json` or of `FieldPath`. `names` has the last part
    /// of each argument that is a path.
    fn method(
        &mut self,
        name: &str,
        receiver: &Abstract,
        arguments: &[Abstract],
        names: &[Option<String>],
    ) -> Abstract {
        let first = arguments.first().cloned().unwrap_or(Abstract::Unknown);
        if let Some(access) = Access::of_method(name) {
            self.reads.access(receiver, access);
        }
        match name {
            "with_value" => first,
            "retain" => {
                // The closure of a map has the key and the value.
                let is_map = matches!(&first, Abstract::Closure(closure) if closure.code.inputs.len() == 2);
                let arguments =
                    if is_map { vec![Abstract::Unknown, receiver.entry_value()] } else { vec![receiver.element()] };
                self.call_value(&first, arguments);
                receiver.clone()
            }
            "to_string" => receiver.clone().unnamed(),
            _ if FIELD.contains(&name) && !arguments.is_empty() => self.reads.field(receiver, &first),
            "pointer" | "pointer_mut" => self.reads.path(receiver, &first, '/'),
            "index" | "key" if matches!(receiver, Abstract::Json(_)) => receiver.element().entry(),
            "enumerate" => Abstract::Tuple(vec![Abstract::Unknown, receiver.element()]),
            "zip" => Abstract::Tuple(vec![receiver.element(), first.element()]),
            // A function of the value, its path and the errors.
            "validate" if matches!(receiver, Abstract::Json(_)) => {
                self.call_value(&first, vec![receiver.clone(), receiver.clone()])
            }
            "values" | "values_mut" | "into_values" => receiver.entry(),
            _ if OR.contains(&name) => {
                let other = match first {
                    Abstract::Closure(_) | Abstract::Function(_) => self.call_value(&first, Vec::new()),
                    other => other,
                };
                let is_known = matches!(receiver, Abstract::Json(_)) && !receiver.is_nothing();
                if is_known && other == Abstract::Unknown { receiver.clone() } else { receiver.clone().or(other) }
            }
            _ if MAP.contains(&name) => self.apply(&receiver.element(), arguments, names),
            _ if MAP_OPTION.contains(&name) => self.apply(receiver, arguments, names),
            _ if SAME.contains(&name) => {
                self.apply(&receiver.element(), arguments, names);
                receiver.clone()
            }
            _ if ELEMENT.contains(&name) => {
                self.apply(&receiver.element(), arguments, names);
                receiver.element()
            }
            _ => {
                self.apply(&receiver.element(), arguments, names);
                Abstract::Unknown
            }
        }
    }

    /// Calls the functions of a method's arguments with an element, and returns the results.
    fn apply(&mut self, element: &Abstract, arguments: &[Abstract], names: &[Option<String>]) -> Abstract {
        let mut result = Abstract::nothing();
        for (i, argument) in arguments.iter().enumerate() {
            let name = names.get(i).and_then(Option::as_deref);
            // `Value::as_str`; a variable can have the name of another method.
            let access = name.filter(|name| name.starts_with("as_")).and_then(Access::of_method);
            access.into_iter().for_each(|access| self.reads.access(element, access));
            result = result.or(match argument {
                Abstract::Closure(closure) if closure.code.inputs.len() == 2 => {
                    self.call_value(argument, vec![Abstract::Unknown, element.clone()])
                }
                Abstract::Closure(_) | Abstract::Function(_) => self.call_value(argument, vec![element.clone()]),
                _ if name.is_some_and(|name| SAME.contains(&name)) => element.clone(),
                _ => Abstract::Unknown,
            });
        }
        result
    }

    pub(crate) fn macro_call(&mut self, code: &'static Macro) -> Abstract {
        let fragments = self.macros.fragments(code);
        let name = code.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let mut values = Vec::new();
        for fragment in fragments {
            match fragment {
                Fragment::Expression(e) => values.push(self.expression(e)),
                Fragment::Key(text, place) => {
                    let key = self.text(text.clone(), *place);
                    self.reads.field(&Abstract::Unknown, &key);
                }
            }
        }
        match (name.as_str(), values.into_iter().next()) {
            ("format", Some(Abstract::Text(formats))) => self.format(formats.into_iter().next()),
            ("vec", Some(value)) => value,
            _ => Abstract::Unknown,
        }
    }

    /// Returns a formatted JSON pointer, with the literals of its variables. Other variables stay in braces.
    fn format(&self, format: Option<Literal>) -> Abstract {
        let Some(format) = format.filter(|literal| literal.text.starts_with('/')) else { return Abstract::Unknown };
        let mut all = vec![format];
        for (name, value) in &self.variables {
            let (Abstract::Text(literals), placeholder) = (value, format!("{{{name}}}")) else { continue };
            if all[0].text.contains(&placeholder) {
                let texts = all.iter().flat_map(|format| {
                    let replaced =
                        |literal: &Literal| format.text.replace(&placeholder, literal.text.trim_matches('/'));
                    literals.iter().map(move |l| Literal { text: replaced(l), ..l.clone() }).collect::<Vec<_>>()
                });
                all = texts.collect();
            }
        }
        Abstract::Text(all.into_iter().collect())
    }
}

/// Whether a function begins a field path; its result has a type that is not that of its body.
fn is_path_builder(path: &[String]) -> bool {
    matches!(path, [name, _] if name == "FieldPath" || name == "FieldCursor")
}

fn path_end(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Path(p) => p.path.segments.last().map(|s| s.ident.to_string()),
        _ => None,
    }
}
