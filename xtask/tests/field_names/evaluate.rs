//! Evaluates functions with abstract values.

use crate::{
    macros::Macros,
    program::{Definition, Program},
    reads::Reads,
    schema::Access,
    value::{Abstract, Closure, Literal, Variables},
};
use proc_macro2::LineColumn;
use std::{collections::BTreeMap, rc::Rc};
use syn::{BinOp, Block, Expr, Lit, Pat, Stmt};

/// Maximum depth of calls.
const MAX_DEPTH: usize = 24;

/// The place of code that is evaluated.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) module: Rc<str>,
    /// Type of the `impl`.
    pub(crate) owner: Option<String>,
}

type Key = (usize, Vec<Abstract>, Abstract);

pub(crate) struct Evaluator<'a> {
    pub(crate) program: &'a Program,
    pub(crate) reads: Reads,
    pub(crate) macros: Macros,
    pub(crate) variables: Variables,
    pub(crate) place: Place,
    /// Type of the objects of the kind that is evaluated: field paths begin there.
    pub(crate) root: Abstract,
    returned: Abstract,
    depth: usize,
    results: BTreeMap<Key, Abstract>,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        Self {
            program,
            reads: Reads::new(),
            macros: Macros::default(),
            variables: Vec::new(),
            place: Place { file: 0, module: "".into(), owner: None },
            root: Abstract::Unknown,
            returned: Abstract::nothing(),
            depth: 0,
            results: BTreeMap::new(),
        }
    }

    /// Evaluates code at another place with variables of its own.
    pub(crate) fn within(
        &mut self,
        place: Place,
        variables: Variables,
        run: impl FnOnce(&mut Self) -> Abstract,
    ) -> Abstract {
        let outer = (
            std::mem::replace(&mut self.place, place),
            std::mem::replace(&mut self.variables, variables),
            std::mem::replace(&mut self.returned, Abstract::nothing()),
        );
        self.depth += 1;
        let value = run(self);
        self.depth -= 1;
        let value = value.or(std::mem::replace(&mut self.returned, outer.2));
        (self.place, self.variables) = (outer.0, outer.1);
        value
    }

    /// Calls a function. Missing arguments are unknown.
    pub(crate) fn call(&mut self, index: usize, arguments: Vec<Abstract>) -> Abstract {
        if self.depth >= MAX_DEPTH {
            return Abstract::Unknown;
        }
        let key = (index, arguments, self.root.clone());
        let is_cached = !key.1.iter().any(Abstract::has_closure);
        if let Some(known) = self.results.get(&key).filter(|_| is_cached) {
            return known.clone();
        }
        if is_cached {
            // The result of a recursive call.
            self.results.insert(key.clone(), Abstract::Unknown);
        }
        let function = &self.program.functions[index];
        let place =
            Place { file: function.file, module: function.module.as_str().into(), owner: function.owner.clone() };
        let value = self.within(place, Vec::new(), |this| {
            let patterns = function.signature.inputs.iter().filter_map(|input| match input {
                syn::FnArg::Typed(typed) => Some(&*typed.pat),
                syn::FnArg::Receiver(_) => None,
            });
            for (i, pattern) in patterns.enumerate() {
                this.bind(pattern, key.1.get(i).cloned().unwrap_or(Abstract::Unknown));
            }
            this.block(function.body)
        });
        if is_cached {
            self.results.insert(key, value.clone());
        }
        value
    }

    /// Calls a closure or function value.
    pub(crate) fn call_value(&mut self, callee: &Abstract, arguments: Vec<Abstract>) -> Abstract {
        match callee {
            Abstract::Function(index) => self.call(*index, arguments),
            Abstract::Closure(closure) if self.depth < MAX_DEPTH => {
                let place =
                    Place { file: closure.file, module: closure.module.clone(), owner: self.place.owner.clone() };
                self.within(place, closure.variables.to_vec(), |this| {
                    for (i, pattern) in closure.code.inputs.iter().enumerate() {
                        this.bind(pattern, arguments.get(i).cloned().unwrap_or(Abstract::Unknown));
                    }
                    this.expression(&closure.code.body)
                })
            }
            _ => Abstract::Unknown,
        }
    }

    pub(crate) fn bind(&mut self, pattern: &'static Pat, value: Abstract) {
        match pattern {
            Pat::Ident(p) => {
                if let Some((_, inner)) = &p.subpat {
                    self.bind(inner, value.clone());
                }
                self.variables.push((p.ident.to_string(), value));
            }
            Pat::Reference(p) => self.bind(&p.pat, value),
            Pat::Paren(p) => self.bind(&p.pat, value),
            Pat::Type(p) => self.bind(&p.pat, value),
            // The key and the value of a map's entry.
            Pat::Tuple(p) if matches!(value, Abstract::Json(_)) && p.elems.len() == 2 => {
                self.bind(&p.elems[0], Abstract::Unknown);
                self.bind(&p.elems[1], value.entry_value());
            }
            Pat::Tuple(p) => {
                for (i, item) in p.elems.iter().enumerate() {
                    self.bind(item, value.item(i));
                }
            }
            // `Some(x)`, `Ok(x)`, `Value::Object(x)`.
            Pat::TupleStruct(p) => {
                for item in &p.elems {
                    self.bind(item, if p.elems.len() == 1 { value.clone() } else { Abstract::Unknown });
                }
            }
            Pat::Struct(p) => p.fields.iter().for_each(|field| self.bind(&field.pat, Abstract::Unknown)),
            // The items of an array of literals are not distinguished.
            Pat::Slice(p) if matches!(value, Abstract::Text(_)) => {
                p.elems.iter().for_each(|item| self.bind(item, Abstract::Unknown));
            }
            Pat::Slice(p) => p.elems.iter().for_each(|item| self.bind(item, value.element())),
            Pat::Guard(p) => self.bind(&p.pat, value),
            Pat::Or(p) => p.cases.iter().for_each(|case| self.bind(case, value.clone())),
            _ => {}
        }
    }

    pub(crate) fn block(&mut self, block: &'static Block) -> Abstract {
        let outer = self.variables.len();
        let mut value = Abstract::Unknown;
        for statement in &block.stmts {
            value = match statement {
                Stmt::Local(local) => {
                    let init = local.init.as_ref();
                    let bound = init.map_or(Abstract::Unknown, |init| self.expression(&init.expr));
                    if let Some((_, otherwise)) = init.and_then(|init| init.diverge.as_ref()) {
                        self.expression(otherwise);
                    }
                    self.bind(&local.pat, bound);
                    Abstract::Unknown
                }
                Stmt::Expr(expression, semicolon) => {
                    let value = self.expression(expression);
                    if semicolon.is_some() && !value.is_nothing() { Abstract::Unknown } else { value }
                }
                Stmt::Macro(m) => self.macro_call(&m.mac),
                Stmt::Item(_) => Abstract::Unknown,
            };
        }
        self.variables.truncate(outer);
        value
    }

    /// Evaluates expressions whose values are not used.
    fn all<'e>(&mut self, expressions: impl IntoIterator<Item = &'e Expr>) -> Abstract
    where
        'e: 'static,
    {
        expressions.into_iter().for_each(|e| drop(self.expression(e)));
        Abstract::Unknown
    }

    pub(crate) fn expression(&mut self, expression: &'static Expr) -> Abstract {
        match expression {
            Expr::Lit(e) => self.literal(&e.lit),
            Expr::Path(e) => self.path(&e.path),
            Expr::Reference(e) => self.expression(&e.expr),
            Expr::Paren(e) => self.expression(&e.expr),
            Expr::Group(e) => self.expression(&e.expr),
            Expr::Unary(e) => self.expression(&e.expr),
            Expr::Try(e) => self.expression(&e.expr),
            Expr::Await(e) => self.expression(&e.base),
            Expr::Index(e) => {
                let (value, index) = (self.expression(&e.expr), self.expression(&e.index));
                self.reads.field(&value, &index)
            }
            Expr::Field(e) => {
                let value = self.expression(&e.base);
                match &e.member {
                    syn::Member::Unnamed(index) => value.item(index.index as usize),
                    syn::Member::Named(_) => Abstract::Unknown,
                }
            }
            Expr::Call(e) => self.function_call(e),
            Expr::MethodCall(e) => self.method_call(e),
            Expr::Macro(e) => self.macro_call(&e.mac),
            Expr::Closure(e) => self.closure(e),
            Expr::Block(e) => self.block(&e.block),
            Expr::Async(e) => self.block(&e.block),
            Expr::If(_) | Expr::Match(_) | Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) | Expr::Let(_) => {
                self.control_flow(expression)
            }
            Expr::Tuple(e) => Abstract::Tuple(e.elems.iter().map(|item| self.expression(item)).collect()),
            Expr::Array(e) => {
                let items = e.elems.iter().map(|item| self.expression(item));
                items.reduce(Abstract::or).unwrap_or(Abstract::Unknown)
            }
            Expr::Binary(e) => {
                let (left, right) = (self.expression(&e.left), self.expression(&e.right));
                if matches!(e.op, BinOp::Eq(_) | BinOp::Ne(_)) {
                    let access = literal_type(&e.right).or_else(|| right.is_nonempty_text().then_some(Access::Text));
                    access.into_iter().for_each(|access| self.reads.access(&left, access));
                }
                Abstract::Unknown
            }
            Expr::Assign(e) => self.all([&*e.left, &*e.right]),
            Expr::Range(e) => self.all(e.start.iter().chain(&e.end).map(|bound| &**bound)),
            Expr::Cast(e) => self.all([&*e.expr]),
            Expr::Repeat(e) => self.all([&*e.expr]),
            Expr::Struct(e) => self.all(e.fields.iter().map(|f| &f.expr).chain(e.rest.as_deref())),
            Expr::Return(e) => {
                let value = e.expr.as_ref().map_or(Abstract::Unknown, |e| self.expression(e));
                self.returned = std::mem::replace(&mut self.returned, Abstract::Unknown).or(value);
                Abstract::nothing()
            }
            Expr::Break(_) | Expr::Continue(_) => Abstract::nothing(),
            _ => Abstract::Unknown,
        }
    }

    fn control_flow(&mut self, expression: &'static Expr) -> Abstract {
        let outer = self.variables.len();
        let value = match expression {
            Expr::If(e) => {
                self.expression(&e.cond);
                let then = self.block(&e.then_branch);
                self.variables.truncate(outer);
                let otherwise = e.else_branch.as_ref().map(|(_, e)| self.expression(e));
                otherwise.map_or(Abstract::Unknown, |otherwise| then.or(otherwise))
            }
            Expr::Match(e) => {
                let value = self.expression(&e.expr);
                let mut result = Abstract::nothing();
                for arm in &e.arms {
                    self.bind(&arm.pat, value.clone());
                    if let Pat::Guard(guarded) = &arm.pat {
                        self.expression(&guarded.guard);
                    }
                    result = result.or(self.expression(&arm.body));
                    self.variables.truncate(outer);
                }
                result
            }
            Expr::ForLoop(e) => {
                let items = self.expression(&e.expr);
                self.bind(&e.pat, items.element());
                self.block(&e.body);
                Abstract::Unknown
            }
            Expr::While(e) => {
                self.expression(&e.cond);
                self.block(&e.body);
                Abstract::Unknown
            }
            Expr::Loop(e) => self.block(&e.body),
            // The variables of `if let` are visible until the caller ends their scope.
            Expr::Let(e) => {
                let value = self.expression(&e.expr);
                self.bind(&e.pat, value);
                return Abstract::Unknown;
            }
            _ => Abstract::Unknown,
        };
        self.variables.truncate(outer);
        value
    }

    fn literal(&self, literal: &Lit) -> Abstract {
        let Lit::Str(text) = literal else { return Abstract::Unknown };
        self.text(text.value(), text.span().start())
    }

    pub(crate) fn text(&self, text: String, LineColumn { line, column }: LineColumn) -> Abstract {
        Abstract::Text([Literal { text, file: self.place.file, line, column }].into())
    }

    fn closure(&mut self, code: &'static syn::ExprClosure) -> Abstract {
        let closure = Abstract::Closure(Closure {
            code,
            variables: Rc::new(self.variables.clone()),
            module: self.place.module.clone(),
            file: self.place.file,
        });
        // It may never be called by code that is known.
        if self.depth <= 2 {
            self.call_value(&closure, Vec::new());
        }
        closure
    }

    fn path(&mut self, path: &'static syn::Path) -> Abstract {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [name] = segments.as_slice() {
            if let Some((_, value)) = self.variables.iter().rev().find(|(variable, _)| variable == name) {
                return value.clone();
            }
            if name == "None" {
                return Abstract::nothing();
            }
        }
        if segments.ends_with(&["Value".to_owned(), "Null".to_owned()]) {
            return Abstract::nothing();
        }
        match self.definition(&segments) {
            Some(Definition::Function(index)) => Abstract::Function(index),
            // The functions of a kind are evaluated with its own type.
            Some(Definition::Constant(index)) if self.program.constants[index].is_kind => Abstract::Unknown,
            Some(Definition::Constant(index)) if self.depth < MAX_DEPTH => {
                let constant = &self.program.constants[index];
                let place = Place { file: constant.file, module: constant.module.as_str().into(), owner: None };
                self.within(place, Vec::new(), |this| this.expression(constant.value))
            }
            _ => Abstract::Unknown,
        }
    }

    pub(crate) fn definition(&self, segments: &[String]) -> Option<Definition> {
        let owner = self.place.owner.clone();
        let segments: Vec<String> = match (segments.first(), owner) {
            (Some(first), Some(owner)) if first == "Self" => {
                std::iter::once(owner).chain(segments[1..].iter().cloned()).collect()
            }
            _ => segments.to_vec(),
        };
        self.program.resolve(&self.place.module, &segments)
    }
}

/// Returns the type of a literal that a value is compared with: `1`, `true` or `json!(true)`. A comparison with the zero value
/// of Go means that a field of any type is unset.
fn literal_type(expression: &Expr) -> Option<Access> {
    let literal = match expression {
        Expr::Lit(e) => e.lit.clone(),
        Expr::Reference(e) => return literal_type(&e.expr),
        Expr::Macro(e) if e.mac.path.is_ident("json") => e.mac.parse_body::<Lit>().ok()?,
        _ => return None,
    };
    match literal {
        Lit::Str(text) if !text.value().is_empty() => Some(Access::Text),
        Lit::Int(number) if number.base10_digits() != "0" => Some(Access::Integer),
        Lit::Float(_) => Some(Access::Number),
        Lit::Bool(_) => Some(Access::Boolean),
        _ => None,
    }
}
