//! The functions that expressions can call, and for what each is. What is not here is refused where it is written.

mod amounts;
mod authorizer;
mod convert;
mod formats;
pub(crate) mod lists;
mod net;
mod optional;
mod strings;
mod times;
mod urls;
mod versions;

pub use authorizer::{Asking, Authorize, Question, Verdict};
pub(crate) use times::duration;

use crate::{
    EvalError, Value, changes,
    eval::{Evaluator, Outcome},
};
use cel::common::ast::{Expr, IdedExpr};

/// A function, or one of its forms.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// What it is called on, with `|` between; empty for one that is called on nothing.
    pub(crate) on: &'static str,
    /// What it takes, with commas between; a question mark is for what may be left out.
    pub(crate) takes: &'static str,
    pub(crate) gives: &'static str,
}

const fn f(name: &'static str, on: &'static str, takes: &'static str, gives: &'static str) -> Function {
    Function { name, on, takes, gives }
}

/// Names that stand for types.
pub(crate) const TYPES: [&str; 12] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type", "dyn"];
/// What stands before the names of some functions.
pub(crate) const NAMESPACES: [&str; 7] = ["optional", "sets", "lists", "format", "strings", "ip", "jsonpatch"];

const TIME: &str = "timestamp";
const EITHER: &str = "timestamp|duration";
const NUMBERS: &str = "semver";

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
    f("getHours", EITHER, "?string", "int"),
    f("getMinutes", EITHER, "?string", "int"),
    f("getSeconds", EITHER, "?string", "int"),
    f("getMilliseconds", EITHER, "?string", "int"),
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
    f("isLessThan", NUMBERS, "semver", "bool"),
    f("isGreaterThan", NUMBERS, "semver", "bool"),
    f("compareTo", NUMBERS, "semver", "int"),
    f("major", NUMBERS, "", "int"),
    f("minor", NUMBERS, "", "int"),
    f("patch", NUMBERS, "", "int"),
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

/// The namespace that an expression is, if it is one: `sets` in `sets.contains(a, b)`.
pub(crate) fn namespace(target: &IdedExpr) -> Option<&'static str> {
    let Expr::Ident(name) = &target.expr else { return None };
    NAMESPACES.iter().find(|n| *n == name).copied()
}

pub(crate) fn of_namespace(evaluator: &mut Evaluator, namespace: &str, name: &str, args: &[Value]) -> Outcome {
    evaluator.pay(args.iter().map(Value::cost).sum())?;
    match (namespace, name) {
        ("optional", _) => optional::make(name, args),
        ("sets", _) => lists::sets(evaluator, name, args),
        ("lists", "range") => lists::range(evaluator, args),
        ("strings", "quote") => strings::quote(args),
        ("jsonpatch", "escapeKey") => changes::escape_key(args),
        ("format", _) => formats::make(name, args),
        ("ip", "isCanonical") => net::is_canonical(args),
        _ => Err(EvalError::overload()),
    }
}

/// Calls a function, which may be called on something.
pub(crate) fn apply(evaluator: &mut Evaluator, name: &str, target: Option<&Value>, args: &[Value]) -> Outcome {
    match target {
        None => convert::apply(name, args)
            .or_else(|| times::make(name, args))
            .or_else(|| net::make(name, args))
            .or_else(|| amounts::make(name, args))
            .or_else(|| versions::make(name, args))
            .or_else(|| strings::global(evaluator, name, args))
            .unwrap_or_else(|| Err(EvalError::overload())),
        Some(Value::String(text)) => strings::on(evaluator, name, text, args),
        Some(Value::List(items)) => lists::on(evaluator, name, items, args),
        Some(Value::Optional(held)) => optional::on(name, held.as_deref(), args),
        Some(target @ (Value::Time(_) | Value::Duration(_))) => times::on(name, target, args),
        Some(Value::Quantity(amount)) => amounts::on(name, *amount, args),
        Some(Value::Semver(version)) => versions::on(name, version, args),
        Some(Value::Asking(asking)) => authorizer::on(evaluator, name, asking, args),
        Some(Value::Verdict(verdict)) => authorizer::of_verdict(name, verdict, args),
        Some(Value::Format(format)) => formats::validate(name, format, args),
        Some(target @ (Value::Url(_) | Value::Ip(_) | Value::Cidr(..))) => net::on(name, target, args),
        Some(target) => {
            convert::apply(name, std::slice::from_ref(target)).unwrap_or_else(|| Err(EvalError::overload()))
        }
    }
}
