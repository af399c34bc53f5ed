//! Expressions in CEL, the Common Expression Language, with Kubernetes' functions: the rules of custom kinds.
//!
//! A [`Program`] is parsed and checked once ([`Program::compile`]), so that what makes no sense is told to whoever wrote it,
//! and evaluated often, each time within a [`Budget`]: whatever it says, it ends. The parser is that of the `cel` crate;
//! evaluation is our own, for it has to count, and to know what Kubernetes adds to the language.
//!
//! Pure: no I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod changes;
mod check;
mod comprehension;
mod eval;
mod functions;
mod json;
mod operators;
pub mod pattern;
mod types;
mod value;

pub use functions::{Asking, Authorize, Question, Verdict};
pub use types::Type;
pub use value::{Key, Value};

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::parser::PrattParser;
use eval::{Evaluator, Scope};

/// Words of the language, which are no names in it.
pub const RESERVED: [&str; 18] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
];

/// A span of time as Go writes it: `1h30m`.
#[must_use]
pub fn duration(text: &str) -> Option<jiff::SignedDuration> {
    functions::duration(text)
}

/// How deep expressions may stand in each other, of how many parts one may be, and how long.
const DEEPEST: usize = 150;
const LARGEST: usize = 20_000;
const LONGEST: usize = 100_000;
/// What is shorter cannot be deep.
const SHORT: usize = 300;
/// Room for reading an expression that is as deep as it is long, before it is known to be too deep.
const STACK: usize = 128 << 20;

/// How much more may be done. Upstream has these two bounds, in units of about the same size.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// What conditions may cost that say whether somebody is asked at all.
    #[must_use]
    pub fn of_conditions() -> Self {
        Self { left: 2_500_000 }
    }
}

/// What one expression may cost.
const PER_CALL: u64 = 1_000_000;

impl Default for Budget {
    fn default() -> Self {
        Self { left: 10_000_000 }
    }
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// In the words of upstream's implementation of CEL.
    #[error("{0}")]
    Wrong(String),
    /// It would take longer than one expression may.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
    /// Nothing is left of the budget.
    #[error("operation cancelled: actual cost limit exceeded")]
    Spent,
}

impl EvalError {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self::Wrong(why.into())
    }

    pub(crate) fn overload() -> Self {
        Self::new("no such overload")
    }
}

/// An expression that was understood.
#[derive(Debug, Clone)]
pub struct Program {
    expr: IdedExpr,
    /// What it gives, as far as that is known.
    result: Type,
}

impl Program {
    /// Reads an expression over variables of these types.
    ///
    /// # Errors
    /// What is wrong with it, in the form of upstream's compiler.
    pub fn compile(source: &str, variables: &[(&str, Type)]) -> Result<Self, String> {
        let expr = read(source).map_err(|why| format!("compilation failed: {why}"))?;
        let result = check::check(&expr, variables)
            .map_err(|why| format!("compilation failed: ERROR: <input>: {why}\n | {}", source.trim()))?;
        Ok(Self { expr, result })
    }

    /// What it gives, as far as that is known before.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// Whether it speaks of a variable.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        mentions(&self.expr, name)
    }

    /// The value, for these values of the variables. The budget is what is left of it then.
    ///
    /// # Errors
    /// When there is none.
    pub fn evaluate(&self, variables: &[(&str, Value)], budget: &mut Budget) -> Result<Value, EvalError> {
        let mut evaluator = Evaluator { left: budget.left.min(PER_CALL) };
        let before = evaluator.left;
        let scope = Scope { variables, outer: None, name: "", value: None };
        let value = evaluator.eval(&self.expr, &scope);
        budget.left -= before - evaluator.left;
        match value {
            Err(EvalError::TooExpensive) if before < PER_CALL => Err(EvalError::Spent),
            value => value,
        }
    }
}

/// Reads an expression, and lets go of one that is too deep where there is room for that.
fn read(source: &str) -> Result<IdedExpr, String> {
    if source.len() <= SHORT {
        return parse(source);
    }
    if source.len() > LONGEST {
        return Err(format!("expression code point size exceeds limit: size: {}, limit {LONGEST}", source.len()));
    }
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || parse(source));
        let read = reader.map_err(|error| error.to_string())?;
        read.join().unwrap_or_else(|_| Err("the expression cannot be read".to_owned()))
    })
}

fn parse(source: &str) -> Result<IdedExpr, String> {
    let parser = PrattParser::default().max_recursion_depth(64).max_expression_node_count(LARGEST);
    let parsed = parser.enable_optional_syntax(true).enable_ident_escape_syntax(true).parse(source);
    let expr = parsed.map_err(|errors| errors.to_string())?;
    // Depth first, on a list of our own.
    let mut rest = vec![(&expr, 1)];
    while let Some((expr, depth)) = rest.pop() {
        if depth > DEEPEST {
            return Err(format!("ERROR: <input>: expression recursion limit exceeded: {DEEPEST}"));
        }
        rest.extend(parts(expr).into_iter().map(|part| (part, depth + 1)));
    }
    Ok(expr)
}

/// The expressions in an expression.
fn parts(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(of) => of.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
    }
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

fn mentions(expr: &IdedExpr, name: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(ident) if ident == name)
        || parts(expr).into_iter().any(|part| mentions(part, name))
}

#[cfg(test)]
mod tests;
