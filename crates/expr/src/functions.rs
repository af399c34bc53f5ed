//! Function libraries and their declarations. Calls of undeclared functions are compilation errors.

mod authorizer;
mod conversions;
mod format;
pub(crate) mod lists;
mod net;
mod optional;
mod quantity;
mod semver;
mod strings;
mod timestamp;
mod url;

pub use authorizer::{AuthorizationAttributes, AuthorizationDecision, Authorizer, AuthorizerBuilder};

use crate::{
    EvalError, Value,
    eval::{Evaluator, Outcome},
    mutation,
};
use cel::common::ast::{Expr, IdedExpr};

/// Declaration of a function overload.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Receiver types, separated by `|`; empty for a global function.
    pub(crate) receiver: &'static str,
    /// Parameter types, separated by commas; `?` marks optional parameters.
    pub(crate) parameters: &'static str,
    /// Result type.
    pub(crate) result: &'static str,
}

const fn f(name: &'static str, receiver: &'static str, parameters: &'static str, result: &'static str) -> Function {
    Function { name, receiver, parameters, result }
}

/// Names of types.
pub(crate) const TYPES: [&str; 12] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type", "dyn"];
/// Namespaces of functions.
pub(crate) const NAMESPACES: [&str; 7] = ["optional", "sets", "lists", "format", "strings", "ip", "jsonpatch"];

const TIME: &str = "timestamp";
const TIME_OR_DURATION: &str = "timestamp|duration";
const SEMVER: &str = "semver";

pub(crate) const FUNCTIONS: &[Function] = &[
    f("size", "string|list|map|bytes", "", "int"),
    f("size", "", "string|list|map|bytes", "int"),
    f("type", "", "dyn", "type"),
    f("dyn", "", "dyn", "dyn"),
    f("bool", "", "bool|string", "bool"),
    f("int", "", "int|uint|double|string|timestamp|duration", "int"),
    f("uint", "", "int|uint|double|string", "uint"),
    f("double", "", "int|uint|double|string", "double"),
    f("string", "", "dyn", "string"),
    f("bytes", "", "string|bytes", "bytes"),
    f("timestamp", "", "string|timestamp|int", "timestamp"),
    f("duration", "", "string|duration", "duration"),
    f("contains", "string", "string", "bool"),
    f("startsWith", "string", "string", "bool"),
    f("endsWith", "string", "string", "bool"),
    f("matches", "string", "string", "bool"),
    f("matches", "", "string,string", "bool"),
    f("charAt", "string", "int", "string"),
    f("indexOf", "string", "string,?int", "int"),
    f("lastIndexOf", "string", "string,?int", "int"),
    f("indexOf", "list", "dyn", "int"),
    f("lastIndexOf", "list", "dyn", "int"),
    f("lowerAscii", "string", "", "string"),
    f("upperAscii", "string", "", "string"),
    f("replace", "string", "string,string,?int", "string"),
    f("split", "string", "string,?int", "strings"),
    f("substring", "string", "int,?int", "string"),
    f("trim", "string", "", "string"),
    f("join", "list", "?string", "string"),
    f("format", "string", "list", "string"),
    f("strings.quote", "", "string", "string"),
    f("jsonpatch.escapeKey", "", "string", "string"),
    f("find", "string", "string", "string"),
    f("findAll", "string", "string,?int", "strings"),
    f("isSorted", "list", "", "bool"),
    f("sum", "list", "", "dyn"),
    f("min", "list", "", "dyn"),
    f("max", "list", "", "dyn"),
    f("slice", "list", "int,int", "list"),
    f("flatten", "list", "?int", "list"),
    f("distinct", "list", "", "list"),
    f("reverse", "list", "", "list"),
    f("sort", "list", "", "list"),
    f("first", "list", "", "optional"),
    f("last", "list", "", "optional"),
    f("lists.range", "", "int", "list"),
    f("sets.contains", "", "list,list", "bool"),
    f("sets.intersects", "", "list,list", "bool"),
    f("sets.equivalent", "", "list,list", "bool"),
    f("optional.none", "", "", "optional"),
    f("optional.of", "", "dyn", "optional"),
    f("optional.ofNonZeroValue", "", "dyn", "optional"),
    f("hasValue", "optional", "", "bool"),
    f("value", "optional", "", "dyn"),
    f("or", "optional", "optional", "optional"),
    f("orValue", "optional", "dyn", "dyn"),
    f("getFullYear", TIME, "?string", "int"),
    f("getMonth", TIME, "?string", "int"),
    f("getDate", TIME, "?string", "int"),
    f("getDayOfMonth", TIME, "?string", "int"),
    f("getDayOfWeek", TIME, "?string", "int"),
    f("getDayOfYear", TIME, "?string", "int"),
    f("getHours", TIME_OR_DURATION, "?string", "int"),
    f("getMinutes", TIME_OR_DURATION, "?string", "int"),
    f("getSeconds", TIME_OR_DURATION, "?string", "int"),
    f("getMilliseconds", TIME_OR_DURATION, "?string", "int"),
    f("quantity", "", "string", "quantity"),
    f("isQuantity", "", "string", "bool"),
    f("isInteger", "quantity", "", "bool"),
    f("asInteger", "quantity", "", "int"),
    f("asApproximateFloat", "quantity", "", "double"),
    f("sign", "quantity", "", "int"),
    f("add", "quantity", "quantity|int", "quantity"),
    f("sub", "quantity", "quantity|int", "quantity"),
    f("isLessThan", "quantity", "quantity", "bool"),
    f("isGreaterThan", "quantity", "quantity", "bool"),
    f("compareTo", "quantity", "quantity", "int"),
    f("semver", "", "string,?bool", "semver"),
    f("isSemver", "", "string,?bool", "bool"),
    f("isLessThan", SEMVER, "semver", "bool"),
    f("isGreaterThan", SEMVER, "semver", "bool"),
    f("compareTo", SEMVER, "semver", "int"),
    f("major", SEMVER, "", "int"),
    f("minor", SEMVER, "", "int"),
    f("patch", SEMVER, "", "int"),
    f("url", "", "string", "url"),
    f("isURL", "", "string", "bool"),
    f("getScheme", "url", "", "string"),
    f("getHost", "url", "", "string"),
    f("getHostname", "url", "", "string"),
    f("getPort", "url", "", "string"),
    f("getEscapedPath", "url", "", "string"),
    f("getQuery", "url", "", "map"),
    f("ip", "", "string", "ip"),
    f("isIP", "", "string", "bool"),
    f("ip.isCanonical", "", "string", "bool"),
    f("family", "ip", "", "int"),
    f("isUnspecified", "ip", "", "bool"),
    f("isLoopback", "ip", "", "bool"),
    f("isLinkLocalMulticast", "ip", "", "bool"),
    f("isLinkLocalUnicast", "ip", "", "bool"),
    f("isGlobalUnicast", "ip", "", "bool"),
    f("cidr", "", "string", "cidr"),
    f("isCIDR", "", "string", "bool"),
    f("containsIP", "cidr", "ip|string", "bool"),
    f("containsCIDR", "cidr", "cidr|string", "bool"),
    f("ip", "cidr", "", "ip"),
    f("masked", "cidr", "", "cidr"),
    f("prefixLength", "cidr", "", "int"),
    f("format.named", "", "string", "optional"),
    f("format.dns1123Label", "", "", "format"),
    f("format.dns1123Subdomain", "", "", "format"),
    f("format.dns1035Label", "", "", "format"),
    f("format.qualifiedName", "", "", "format"),
    f("format.dns1123LabelPrefix", "", "", "format"),
    f("format.dns1123SubdomainPrefix", "", "", "format"),
    f("format.dns1035LabelPrefix", "", "", "format"),
    f("format.labelValue", "", "", "format"),
    f("format.uri", "", "", "format"),
    f("format.uuid", "", "", "format"),
    f("format.byte", "", "", "format"),
    f("format.date", "", "", "format"),
    f("format.datetime", "", "", "format"),
    f("validate", "format", "string", "optional"),
    f("serviceAccount", "authorizer", "string,string", "authorizer"),
    f("path", "authorizer", "string", "pathcheck"),
    f("group", "authorizer", "string", "groupcheck"),
    f("resource", "groupcheck", "string", "resourcecheck"),
    f("subresource", "resourcecheck", "string", "resourcecheck"),
    f("namespace", "resourcecheck", "string", "resourcecheck"),
    f("name", "resourcecheck", "string", "resourcecheck"),
    f("fieldSelector", "resourcecheck", "string", "resourcecheck"),
    f("labelSelector", "resourcecheck", "string", "resourcecheck"),
    f("check", "resourcecheck|pathcheck", "string", "verdict"),
    f("allowed", "verdict", "", "bool"),
    f("reason", "verdict", "", "string"),
    f("errored", "verdict", "", "bool"),
    f("error", "verdict", "", "string"),
];

/// Returns the namespace that an expression names: `sets` in `sets.contains(a, b)`.
pub(crate) fn namespace(target: &IdedExpr) -> Option<&'static str> {
    let Expr::Ident(name) = &target.expr else { return None };
    NAMESPACES.iter().find(|n| *n == name).copied()
}

/// Calls a function of a namespace.
pub(crate) fn call_in_namespace(evaluator: &mut Evaluator, namespace: &str, name: &str, args: &[Value]) -> Outcome {
    evaluator.charge(args.iter().map(Value::cost).sum())?;
    match (namespace, name) {
        ("optional", _) => optional::create(name, args),
        ("sets", _) => lists::sets(evaluator, name, args),
        ("lists", "range") => lists::range(evaluator, args),
        ("strings", "quote") => strings::quote(args),
        ("jsonpatch", "escapeKey") => mutation::escape_key(args),
        ("format", _) => format::create(name, args),
        ("ip", "isCanonical") => net::is_canonical(args),
        _ => Err(EvalError::overload()),
    }
}

/// Calls a global function or a function of a receiver.
pub(crate) fn apply(evaluator: &mut Evaluator, name: &str, target: Option<&Value>, args: &[Value]) -> Outcome {
    match target {
        None => conversions::apply(name, args)
            .or_else(|| timestamp::create(name, args))
            .or_else(|| net::create(name, args))
            .or_else(|| quantity::create(name, args))
            .or_else(|| semver::create(name, args))
            .or_else(|| strings::call_global(evaluator, name, args))
            .unwrap_or_else(|| Err(EvalError::overload())),
        Some(Value::String(text)) => strings::call_method(evaluator, name, text, args),
        Some(Value::List(items)) => lists::call_method(evaluator, name, items, args),
        Some(Value::Optional(inner_value)) => optional::call_method(name, inner_value.as_deref(), args),
        Some(target @ (Value::Time(_) | Value::Duration(_))) => timestamp::call_method(name, target, args),
        Some(Value::Quantity(amount)) => quantity::call_method(name, *amount, args),
        Some(Value::Semver(version)) => semver::call_method(name, version, args),
        Some(Value::Authorizer(asking)) => authorizer::call_method(evaluator, name, asking, args),
        Some(Value::Verdict(verdict)) => authorizer::call_decision_method(name, verdict, args),
        Some(Value::Format(format)) => format::validate(name, format, args),
        Some(target @ (Value::Url(_) | Value::Ip(_) | Value::Cidr(..))) => net::call_method(name, target, args),
        Some(target) => {
            conversions::apply(name, std::slice::from_ref(target)).unwrap_or_else(|| Err(EvalError::overload()))
        }
    }
}
