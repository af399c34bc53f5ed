//! CEL (Common Expression Language) with Kubernetes' function libraries, for validation rules, admission policies and match
//! conditions.
//!
//! A [`Program`] is parsed and type-checked once ([`Program::compile`]) and evaluated often, each time within a [`Budget`],
//! so that every evaluation ends. The parser is that of the `cel` crate; the evaluator is our own, because it needs cost
//! limits and Kubernetes' extensions of the language.
//!
//! Pure: no I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod comprehension;
mod eval;
mod functions;
pub mod go_regexp;
mod json;
mod mutation;
mod operators;
mod type_check;
mod types;
mod value;

pub use functions::{AuthorizationAttributes, AuthorizationDecision, Authorizer, AuthorizerBuilder};
pub use type_check::TypeError;
pub use types::Type;
pub use value::{Key, Value};

use cel::{
    common::ast::{EntryExpr, Expr, IdedExpr},
    parser::PrattParser,
};
use eval::{Evaluator, Scope};
use std::sync::Arc;

/// Reserved words of CEL.
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

/// Maximum nesting depth of an expression.
const MAX_DEPTH: usize = 150;
/// Maximum number of nodes of an expression.
const MAX_NODES: usize = 20_000;
/// Maximum size of an expression, in bytes.
const MAX_SOURCE_BYTES: usize = 100_000;
/// Size up to which an expression cannot exceed the stack, in bytes.
const SHORT_SOURCE_BYTES: usize = 300;
/// Stack size for parsing deeply nested expressions before their depth is known, in bytes.
const PARSER_STACK_BYTES: usize = 128 << 20;

/// Remaining cost of evaluations. The default is upstream's `RuntimeCELCostBudget`; cost units are similar.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// Returns the budget of match conditions (`RuntimeCELCostBudgetMatchConditions`).
    #[must_use]
    pub fn for_match_conditions() -> Self {
        Self { left: 2_500_000 }
    }
}

/// Cost limit of one evaluation (`PerCallLimit`).
const PER_CALL_LIMIT: u64 = 1_000_000;

impl Default for Budget {
    fn default() -> Self {
        Self { left: 10_000_000 }
    }
}

/// Error of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// Evaluation error. Each function has errors of its own, and clients get only the text, so this is the message of
    /// `cel-go` or of upstream's library.
    #[error("{message}")]
    Failed {
        /// The message.
        message: String,
    },
    /// The cost limit of one evaluation is exceeded.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// The budget is exhausted.
    #[error("operation cancelled: actual cost limit exceeded")]
    BudgetExhausted,
}

impl EvalError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into() }
    }

    pub(crate) fn overload() -> Self {
        Self::new("no such overload")
    }
}

/// Error of the compilation of an expression, with the message of upstream's compiler.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CompileError {
    /// The expression is too long.
    #[error("compilation failed: expression code point size exceeds limit: size: {0}, limit {MAX_SOURCE_BYTES}")]
    TooLong(usize),
    /// The thread for the parser failed to start.
    #[error("compilation failed: {0}")]
    StartParser(#[source] Arc<std::io::Error>),
    /// The parser panicked.
    #[error("compilation failed: the expression cannot be read")]
    ParserPanicked,
    /// Syntax errors, as formatted by the parser.
    #[error("compilation failed: {0}")]
    Syntax(String),
    /// The expression is nested too deeply.
    #[error("compilation failed: ERROR: <input>: expression recursion limit exceeded: {MAX_DEPTH}")]
    TooDeep,
    /// The expression has a type error.
    #[error("compilation failed: ERROR: <input>: {source}\n | {expression}")]
    Type {
        /// The expression.
        expression: String,
        /// The type error.
        source: TypeError,
    },
}

/// A compiled expression.
#[derive(Debug, Clone)]
pub struct Program {
    expr: IdedExpr,
    /// The static result type.
    result: Type,
}

impl Program {
    /// Compiles an expression with variables of these types.
    ///
    /// # Errors
    /// The errors of the expression, with the format of upstream's compiler.
    pub fn compile(source: &str, variables: &[(&str, Type)]) -> Result<Self, CompileError> {
        let expr = parse_on_large_stack(source)?;
        let result = type_check::check(&expr, variables)
            .map_err(|error| CompileError::Type { expression: source.trim().to_owned(), source: error })?;
        Ok(Self { expr, result })
    }

    /// Returns the static result type.
    #[must_use]
    pub fn result(&self) -> &Type {
        &self.result
    }

    /// Returns whether the expression refers to a variable.
    #[must_use]
    pub fn uses_variable(&self, name: &str) -> bool {
        mentions(&self.expr, name)
    }

    /// Evaluates the expression and subtracts the cost from the budget.
    ///
    /// # Errors
    /// When the evaluation fails or exceeds a cost limit.
    pub fn evaluate(&self, variables: &[(&str, Value)], budget: &mut Budget) -> Result<Value, EvalError> {
        let mut evaluator = Evaluator { left: budget.left.min(PER_CALL_LIMIT) };
        let before = evaluator.left;
        let scope = Scope { variables, outer: None, name: "", value: None };
        let value = evaluator.eval(&self.expr, &scope);
        budget.left -= before - evaluator.left;
        match value {
            Err(EvalError::CostLimitExceeded) if before < PER_CALL_LIMIT => Err(EvalError::BudgetExhausted),
            value => value,
        }
    }
}

/// Parses an expression. Long expressions are parsed and dropped on a thread with a large stack.
fn parse_on_large_stack(source: &str) -> Result<IdedExpr, CompileError> {
    if source.len() <= SHORT_SOURCE_BYTES {
        return parse(source);
    }
    if source.len() > MAX_SOURCE_BYTES {
        return Err(CompileError::TooLong(source.len()));
    }
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES).spawn_scoped(scope, || parse(source));
        let parser = parser.map_err(|error| CompileError::StartParser(Arc::new(error)))?;
        parser.join().unwrap_or(Err(CompileError::ParserPanicked))
    })
}

fn parse(source: &str) -> Result<IdedExpr, CompileError> {
    let parser = PrattParser::default().max_recursion_depth(64).max_expression_node_count(MAX_NODES);
    let parsed = parser.enable_optional_syntax(true).enable_ident_escape_syntax(true).parse(source);
    let expr = parsed.map_err(|errors| CompileError::Syntax(errors.to_string()))?;
    // Depth-first search with an explicit stack.
    let mut rest = vec![(&expr, 1)];
    while let Some((expr, depth)) = rest.pop() {
        if depth > MAX_DEPTH {
            return Err(CompileError::TooDeep);
        }
        rest.extend(subexpressions(expr).into_iter().map(|subexpression| (subexpression, depth + 1)));
    }
    Ok(expr)
}

/// Returns the direct subexpressions of an expression.
fn subexpressions(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_subexpressions(&entry.expr)).collect(),
        Expr::Struct(struct_expr) => {
            struct_expr.entries.iter().flat_map(|entry| entry_subexpressions(&entry.expr)).collect()
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
    }
}

fn entry_subexpressions(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

fn mentions(expr: &IdedExpr, name: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(ident) if ident == name)
        || subexpressions(expr).into_iter().any(|subexpression| mentions(subexpression, name))
}

#[cfg(test)]
mod tests;
