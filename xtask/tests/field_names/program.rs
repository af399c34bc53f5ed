//! Rust sources, with resolution of names of functions and constants.

use std::collections::HashMap;
use syn::{Attribute, Block, Expr, ImplItem, Item, Signature, TraitItem, Type, UseTree};

/// A parsed source file.
pub(crate) struct Source {
    /// Path in the repository.
    pub(crate) path: String,
    pub(crate) syntax: syn::File,
    /// Module path with the crate: `kinds::pod::validate`.
    pub(crate) module: String,
}

impl Source {
    /// Parses a file; `path` is for example `crates/kinds/src/pod/validate.rs`.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let parts: Vec<&str> = path.split('/').collect();
        let inner =
            path.split_once("/src/").map_or(path, |(_, inner)| inner).trim_end_matches(".rs").replace('/', "::");
        let package = parts.get(1).copied().unwrap_or("test");
        let module =
            if matches!(inner.as_str(), "lib" | "main") { package.into() } else { format!("{package}::{inner}") };
        let syntax = syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), syntax, module }
    }
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) file: usize,
    pub(crate) module: String,
    pub(crate) signature: &'static Signature,
    pub(crate) body: &'static Block,
    /// Type of its `impl`.
    pub(crate) owner: Option<String>,
    /// Whether the `impl` is of the trait `Kind`.
    pub(crate) of_kind: bool,
}

/// A constant or static.
pub(crate) struct Constant {
    pub(crate) file: usize,
    pub(crate) module: String,
    pub(crate) value: &'static Expr,
    /// Whether it describes a kind.
    pub(crate) is_kind: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Definition {
    Function(usize),
    Constant(usize),
}

/// All sources. They are leaked, so that closures can refer to their code.
pub(crate) struct Program {
    pub(crate) sources: &'static [Source],
    pub(crate) functions: Vec<Function>,
    pub(crate) constants: Vec<Constant>,
    /// By module and name; associated functions have the name of their type in front.
    definitions: HashMap<(String, String), Definition>,
    /// Imported paths by module and local name.
    imports: HashMap<(String, String), Vec<String>>,
    /// Paths of glob imports by module.
    globs: HashMap<String, Vec<Vec<String>>>,
    modules: HashMap<String, ()>,
    /// Functions with a receiver, by crate and name.
    methods: HashMap<(String, String), Vec<usize>>,
}

impl Program {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        let sources: &'static [Source] = Box::leak(sources.into_boxed_slice());
        let mut program = Self {
            sources,
            functions: Vec::new(),
            constants: Vec::new(),
            definitions: HashMap::new(),
            imports: HashMap::new(),
            globs: HashMap::new(),
            modules: HashMap::new(),
            methods: HashMap::new(),
        };
        for (file, source) in sources.iter().enumerate() {
            program.add_items(file, &source.module, &source.syntax.items);
        }
        program
    }

    fn add_items(&mut self, file: usize, module: &str, items: &'static [Item]) {
        self.modules.insert(module.to_owned(), ());
        for item in items {
            match item {
                Item::Fn(f) if !is_test(&f.attrs) => {
                    let index = self.add_function(file, module, &f.sig, &f.block, None);
                    self.define(module, f.sig.ident.to_string(), Definition::Function(index));
                }
                Item::Const(c) => self.add_constant(file, module, c.ident.to_string(), &c.expr, is_kind(&c.ty)),
                Item::Static(s) => self.add_constant(file, module, s.ident.to_string(), &s.expr, is_kind(&s.ty)),
                Item::Mod(m) if !is_test(&m.attrs) => {
                    if let Some((_, items)) = &m.content {
                        self.add_items(file, &format!("{module}::{}", m.ident), items);
                    }
                }
                Item::Use(u) if !is_test(&u.attrs) => self.add_use(module, &mut Vec::new(), &u.tree),
                Item::Impl(i) if !is_test(&i.attrs) => self.add_impl(file, module, i),
                Item::Trait(t) => {
                    for item in &t.items {
                        if let TraitItem::Fn(f) = item
                            && let Some(body) = &f.default
                        {
                            self.add_function(file, module, &f.sig, body, Some(t.ident.to_string()));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn add_impl(&mut self, file: usize, module: &str, block: &'static syn::ItemImpl) {
        let Type::Path(path) = &*block.self_ty else { return };
        let owner = path.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let of_kind = block.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Kind"));
        for item in &block.items {
            match item {
                ImplItem::Fn(f) => {
                    let index = self.add_function(file, module, &f.sig, &f.block, Some(owner.clone()));
                    self.functions[index].of_kind = of_kind;
                    self.define(module, format!("{owner}::{}", f.sig.ident), Definition::Function(index));
                }
                ImplItem::Const(c) => {
                    self.add_constant(file, module, format!("{owner}::{}", c.ident), &c.expr, is_kind(&c.ty));
                }
                _ => {}
            }
        }
    }

    fn add_function(
        &mut self,
        file: usize,
        module: &str,
        signature: &'static Signature,
        body: &'static Block,
        owner: Option<String>,
    ) -> usize {
        let index = self.functions.len();
        if signature.receiver().is_some() {
            let package = package(module).to_owned();
            self.methods.entry((package, signature.ident.to_string())).or_default().push(index);
        }
        self.functions.push(Function { file, module: module.to_owned(), signature, body, owner, of_kind: false });
        index
    }

    fn add_constant(&mut self, file: usize, module: &str, name: String, value: &'static Expr, is_kind: bool) {
        let index = self.constants.len();
        self.constants.push(Constant { file, module: module.to_owned(), value, is_kind });
        self.define(module, name, Definition::Constant(index));
    }

    fn define(&mut self, module: &str, name: String, definition: Definition) {
        self.definitions.insert((module.to_owned(), name), definition);
    }

    fn add_use(&mut self, module: &str, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add_use(module, prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                let local = prefix.last().cloned().unwrap_or_default();
                self.imports.insert((module.to_owned(), local), prefix.clone());
            }
            UseTree::Name(name) => self.import(module, prefix, &name.ident.to_string(), &name.ident.to_string()),
            UseTree::Rename(name) => self.import(module, prefix, &name.ident.to_string(), &name.rename.to_string()),
            UseTree::Glob(_) => self.globs.entry(module.to_owned()).or_default().push(prefix.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(module, prefix, tree)),
        }
    }

    fn import(&mut self, module: &str, prefix: &[String], name: &str, local: &str) {
        let path = prefix.iter().cloned().chain([name.to_owned()]).collect();
        self.imports.insert((module.to_owned(), local.to_owned()), path);
    }

    /// Resolves a path in a module.
    pub(crate) fn resolve(&self, module: &str, path: &[String]) -> Option<Definition> {
        self.resolve_within(module, path, 8)
    }

    fn resolve_within(&self, module: &str, path: &[String], depth: usize) -> Option<Definition> {
        let depth = depth.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return self.resolve_within(package(module), rest, depth),
            "self" => return self.resolve_within(module, rest, depth),
            "super" => return self.resolve_within(module.rsplit_once("::")?.0, rest, depth),
            _ => {}
        }
        if let Some(found) = self.definitions.get(&(module.to_owned(), path.join("::"))) {
            return Some(*found);
        }
        let child = format!("{module}::{first}");
        if !rest.is_empty() && self.modules.contains_key(&child) {
            return self.resolve_within(&child, rest, depth);
        }
        if let Some(imported) = self.imports.get(&(module.to_owned(), first.clone()))
            && imported.as_slice() != path
        {
            let whole: Vec<String> = imported.iter().chain(rest).cloned().collect();
            return self.resolve_within(module, &whole, depth);
        }
        if !rest.is_empty() && self.modules.contains_key(first) {
            return self.resolve_within(first, rest, depth);
        }
        let globs = self.globs.get(module).into_iter().flatten();
        globs.filter_map(|glob| self.resolve_within(module, &[glob.as_slice(), path].concat(), depth)).next()
    }

    /// Returns the only method with a name in the crate of a module.
    pub(crate) fn method(&self, module: &str, name: &str) -> Option<usize> {
        let found = self.methods.get(&(package(module).to_owned(), name.to_owned()))?;
        if let [one] = found.as_slice() { Some(*one) } else { None }
    }
}

fn is_kind(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("GenericKind"))
}

fn package(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

/// Whether an item is only compiled for tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = match &a.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        a.path().is_ident("test")
            || a.path().is_ident("cfg") && text.split(|c: char| !c.is_alphanumeric()).any(|w| w == "test")
    })
}
