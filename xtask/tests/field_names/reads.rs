//! Reads of fields: which literals name a field of the type that they are read from.

use crate::{
    schema::{Access, Node, Schema},
    value::{Abstract, Literal, Types},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What was found out about one literal. The same code can read values of several types.
#[derive(Default)]
struct Usage {
    /// Reads from objects of known kinds.
    known: Results,
    /// Reads from values whose types are guessed by the name of a field.
    guessed: Results,
    /// Reads from values of unknown type.
    unknown: Results,
    /// Types that the field is read as, with the results.
    accesses: BTreeMap<Access, AccessResults>,
}

/// Results of reading a field as a type.
#[derive(Default)]
struct AccessResults {
    /// Whether it can be the type in objects of known kinds, and the types that it has.
    known: Option<(bool, String)>,
    /// The same, in values whose types are guessed by the name of a field.
    guessed: Option<(bool, String)>,
}

#[derive(Default)]
struct Results {
    /// Whether a type has the field.
    is_field: bool,
    /// The first types that do not have it.
    missing_in: Option<String>,
}

impl Usage {
    /// Returns what is wrong with the name. Reads from known types count, if there are any.
    fn problem(&self, name: &str) -> Option<String> {
        for results in [&self.known, &self.guessed, &self.unknown] {
            if results.is_field {
                return None;
            }
            if let Some(types) = &results.missing_in {
                return Some(format!("no field {name:?} in {types}"));
            }
        }
        None
    }

    /// Returns the type that the field is read as, if it cannot be that. Reads from known types count, if there are any.
    fn wrong_access(&self, name: &str) -> Option<String> {
        let wrong = |(access, results): (&Access, &AccessResults)| {
            let (can_be, types) = results.known.as_ref().or(results.guessed.as_ref())?;
            (!can_be).then(|| format!("{name:?} is read as {}, but it is {types}", access.name()))
        };
        self.accesses.iter().find_map(wrong)
    }
}

/// The reads of a program.
pub(crate) struct Reads {
    schema: Schema,
    usages: HashMap<Literal, Usage>,
}

/// Numbers of the literals that are checked.
pub(crate) struct Checked {
    /// Against the type of the value.
    pub(crate) by_type: usize,
    /// Against the names of all types.
    pub(crate) by_name: usize,
    /// Types that fields are read as.
    pub(crate) accesses: usize,
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self { schema: Schema::new(), usages: HashMap::new() }
    }

    /// Returns the value of a field.
    pub(crate) fn field(&mut self, value: &Abstract, name: &Abstract) -> Abstract {
        let Abstract::Text(names) = name else { return unnamed_field(value) };
        let fields = names.iter().map(|literal| self.literal_field(value, literal, &literal.text));
        fields.reduce(Abstract::or).unwrap_or(Abstract::Unknown)
    }

    /// Returns the value at a JSON pointer, or at a path with another separator.
    pub(crate) fn path(&mut self, value: &Abstract, path: &Abstract, separator: char) -> Abstract {
        let Abstract::Text(paths) = path else { return Abstract::Unknown };
        let mut all = Abstract::nothing();
        for literal in paths {
            let mut value = value.clone();
            for part in literal.text.split(separator).filter(|part| !part.is_empty()) {
                // An index, or a part that is formatted.
                let is_index = part.parse::<usize>().is_ok() || part.contains('{');
                value = if is_index { value.element().entry() } else { self.literal_field(&value, literal, part) };
            }
            all = all.or(value);
        }
        all
    }

    /// Checks that a value can be read as a type.
    pub(crate) fn access(&mut self, value: &Abstract, access: Access) {
        let Abstract::Json(Types { nodes, is_guess, literal: Some(literal), is_element }) = value else { return };
        let is_checked = !is_element || !matches!(access, Access::List | Access::Object);
        if nodes.is_empty() || !is_checked {
            return;
        }
        let can_be = nodes.iter().any(|node| node.can_be(access));
        let results = self.usages.entry(literal.clone()).or_default().accesses.entry(access).or_default();
        let result = if *is_guess { &mut results.guessed } else { &mut results.known };
        let names = || nodes.iter().take(3).map(Node::name).collect::<Vec<_>>().join(" or ");
        result.get_or_insert_with(|| (can_be, names())).0 |= can_be;
    }

    fn literal_field(&mut self, value: &Abstract, literal: &Literal, name: &str) -> Abstract {
        // No field, by convention of a table, or upstream's path of an unnamed field.
        if matches!(name, "" | "[]" | "<nil>") {
            return Abstract::Unknown;
        }
        let usage_of = Literal { text: name.to_owned(), ..literal.clone() };
        let types = match value {
            nothing if nothing.is_nothing() => return Abstract::nothing(),
            Abstract::Json(types) if !types.nodes.contains(&Node::Any) => types,
            _ => return self.field_of_unknown(usage_of, name),
        };
        let found: BTreeSet<Node> = types.nodes.iter().filter_map(|node| node.field(name)).collect();
        let usage = self.usages.entry(usage_of.clone()).or_default();
        let results = if types.is_guess { &mut usage.guessed } else { &mut usage.known };
        results.is_field |= !found.is_empty();
        if found.is_empty() && results.missing_in.is_none() {
            let names: Vec<String> = types.nodes.iter().take(3).map(Node::name).collect();
            results.missing_in = Some(names.join(", "));
        }
        Abstract::Json(Types { nodes: found, is_guess: types.is_guess, literal: Some(usage_of), is_element: false })
    }

    fn field_of_unknown(&mut self, usage_of: Literal, name: &str) -> Abstract {
        if !is_field_name(name) {
            return Abstract::Unknown;
        }
        let results = &mut self.usages.entry(usage_of.clone()).or_default().unknown;
        let Some(types) = self.schema.anywhere(name) else {
            results.missing_in = Some("any type".to_owned());
            return Abstract::Unknown;
        };
        results.is_field = true;
        Abstract::Json(Types { nodes: types.clone(), is_guess: true, literal: Some(usage_of), is_element: false })
    }

    /// Returns the literals with a problem, sorted, and the number of all literals.
    pub(crate) fn problems(&self) -> (Vec<(Literal, String)>, Checked) {
        let problem = |(literal, usage): (&Literal, &Usage)| {
            let name = &literal.text;
            Some((literal.clone(), usage.problem(name).or_else(|| usage.wrong_access(name))?))
        };
        let mut problems: Vec<_> = self.usages.iter().filter_map(problem).collect();
        problems.sort_by_key(|(literal, _)| (literal.file, literal.line, literal.column));
        let count = |is_counted: fn(&Usage) -> bool| self.usages.values().filter(|usage| is_counted(usage)).count();
        let by_type = count(|usage| usage.known.is_field);
        let by_name = count(|usage| !usage.known.is_field && (usage.guessed.is_field || usage.unknown.is_field));
        let accesses = self.usages.values().map(|usage| usage.accesses.len()).sum();
        (problems, Checked { by_type, by_name, accesses })
    }
}

/// Returns the value of a field or element whose name is not a literal.
fn unnamed_field(value: &Abstract) -> Abstract {
    match value {
        Abstract::Json(types) if !types.nodes.iter().any(|t| matches!(t, Node::Object(_) | Node::Any)) => {
            value.element().entry()
        }
        _ => Abstract::Unknown,
    }
}

/// Whether a string looks like the name of a field, not like a key of a map, a header or a label.
fn is_field_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '$')
        && (name.starts_with("x-kubernetes-")
            || name.chars().all(|c| c.is_ascii_alphanumeric() || c == '$' || c == '_'))
}
