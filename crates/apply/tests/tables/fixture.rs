//! Test kind with all schema features, served in two versions, and the state of an object of it.

use apply::{
    ApplyError, Converter, Duplicates, Field, Filter, List, ListType, ManagedFields, ManagedFieldsEntry, Map,
    Operation, Request, Scalar, Schema, Type, TypeId, TypeRef, apply, update, validate,
};
use serde_json::{Value, json};
use std::fmt::Write;

/// The versions `v1` and `v2` of a kind; in `v2` the field `text` is named `words`.
pub(crate) struct Kind {
    schema: Schema,
    v1: TypeId,
    v2: TypeId,
}

pub(crate) fn field(name: &str, type_id: TypeId) -> Field {
    Field { name: name.into(), type_id, default: None, implied: None }
}

pub(crate) fn structure(schema: &mut Schema, fields: Vec<Field>, atomic: bool) -> TypeId {
    schema.add(Type::Map(Map { fields, element: None, atomic }))
}

fn map(schema: &mut Schema, element: TypeId, atomic: bool) -> TypeId {
    schema.add(Type::Map(Map { fields: Vec::new(), element: Some(element), atomic }))
}

pub(crate) fn list(schema: &mut Schema, element: TypeId, list_type: ListType) -> TypeId {
    schema.add(Type::List(List { element, list_type }))
}

pub(crate) fn keys(names: &[&str]) -> ListType {
    ListType::Map(names.iter().map(|n| (*n).into()).collect())
}

fn root(schema: &mut Schema, text_name: &str) -> TypeId {
    let text = schema.add(Type::Scalar(Scalar::String));
    let number = schema.add(Type::Scalar(Scalar::Numeric));
    let flag = schema.add(Type::Scalar(Scalar::Boolean));
    let texts = map(schema, text, false);
    let names = list(schema, text, ListType::Set);
    let numbers = list(schema, number, ListType::Set);
    let metadata = [
        field("name", text),
        field("uid", text),
        field("labels", texts),
        field("annotations", texts),
        field("finalizers", names),
    ];
    let metadata = structure(schema, metadata.into(), false);
    let pair = structure(schema, vec![field("a", number), field("b", number)], false);
    let implied = |name, type_id| Field { implied: Some(json!({})), ..field(name, type_id) };
    let item = [field("name", text), field("value", number), field("texts", texts), implied("implied", pair)];
    let item = structure(schema, item.into(), false);
    let items = list(schema, item, keys(&["name"]));
    let protocol = Field { default: Some(json!("TCP")), ..field("protocol", text) };
    let port = structure(schema, vec![field("port", number), protocol, field("name", text)], false);
    let ports = list(schema, port, keys(&["port", "protocol"]));
    let whole_list = list(schema, text, ListType::Atomic);
    let whole_map = map(schema, text, true);
    let whole_struct = structure(schema, vec![field("a", number), field("b", number)], true);
    let spec = [
        field(text_name, text),
        field("number", number),
        field("flag", flag),
        field("names", names),
        field("numbers", numbers),
        field("items", items),
        field("ports", ports),
        field("map", texts),
        field("pair", pair),
        implied("implied", pair),
        field("wholeList", whole_list),
        field("wholeMap", whole_map),
        field("wholeStruct", whole_struct),
        field("any", Schema::UNTYPED),
    ];
    let spec = structure(schema, spec.into(), false);
    let status = structure(schema, vec![field("phase", text)], false);
    let all = [implied("metadata", metadata), implied("spec", spec), implied("status", status)];
    let all = [field("apiVersion", text), field("kind", text)].into_iter().chain(all).collect();
    structure(schema, all, false)
}

impl Default for Kind {
    fn default() -> Self {
        let mut schema = Schema::default();
        let (v1, v2) = (root(&mut schema, "text"), root(&mut schema, "words"));
        Self { schema, v1, v2 }
    }
}

impl Kind {
    pub(crate) fn v1(&self) -> TypeRef<'_> {
        TypeRef { schema: &self.schema, id: self.v1 }
    }
}

impl Converter for Kind {
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let id = match api_version {
            "v1" => self.v1,
            "v2" => self.v2,
            _ => return None,
        };
        Some(TypeRef { schema: &self.schema, id })
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        self.root(to)?;
        let mut object = object.clone();
        let names = |version| if version == "v1" { "text" } else { "words" };
        if let Some(Value::Object(spec)) = object.get_mut("spec")
            && let Some(text) = spec.remove(names(from))
        {
            spec.insert(names(to).to_owned(), text);
        }
        if let Some(object) = object.as_object_mut() {
            object.insert("apiVersion".to_owned(), to.into());
        }
        Some(object)
    }
}

/// An object and its managed fields during a sequence of writes; a tick is a second.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) kind: Kind,
    pub(crate) object: Option<Value>,
    pub(crate) managers: ManagedFields,
    pub(crate) filter: Filter,
    pub(crate) subresource: &'static str,
    pub(crate) ticks: u32,
}

impl State {
    fn time(&mut self) -> String {
        self.ticks += 1;
        format!("2026-01-01T00:{:02}:{:02}Z", self.ticks / 60, self.ticks % 60)
    }

    fn request<'a>(&'a self, version: &'a str, manager: &'a str, time: &'a str) -> Request<'a> {
        let Self { kind, subresource, filter, .. } = self;
        Request { versions: kind, api_version: version, subresource, manager, time, filter }
    }

    /// Applies `{"spec": spec}`.
    #[track_caller]
    pub(crate) fn apply(&mut self, manager: &str, spec: Value) -> &mut Self {
        self.apply_object("v1", manager, json!({"apiVersion": "v1", "spec": spec}), false).unwrap();
        self
    }

    pub(crate) fn force(&mut self, manager: &str, spec: Value) -> &mut Self {
        self.apply_object("v1", manager, json!({"apiVersion": "v1", "spec": spec}), true).unwrap();
        self
    }

    pub(crate) fn apply_object(
        &mut self,
        version: &str,
        manager: &str,
        config: Value,
        force: bool,
    ) -> Result<(), ApplyError> {
        let time = self.time();
        let from = self.object.as_ref().and_then(|o| o["apiVersion"].as_str()).unwrap_or(version).to_owned();
        let live = self.object.as_ref().and_then(|o| self.kind.convert(o, &from, version));
        let request = self.request(version, manager, &time);
        let applied = apply(&request, live.as_ref(), config, self.managers.clone(), force)?;
        (self.object, self.managers) = (Some(applied.object), applied.managers);
        Ok(())
    }

    /// Returns the error of an apply that fails.
    #[track_caller]
    pub(crate) fn apply_error(&mut self, manager: &str, spec: Value) -> String {
        let error = self.apply_object("v1", manager, json!({"apiVersion": "v1", "spec": spec}), false).unwrap_err();
        error.to_string()
    }

    /// Updates the spec to `spec`.
    pub(crate) fn update(&mut self, manager: &str, spec: Value) -> &mut Self {
        self.update_object("v1", manager, json!({"apiVersion": "v1", "spec": spec}))
    }

    pub(crate) fn update_object(&mut self, version: &str, manager: &str, new: Value) -> &mut Self {
        let time = self.time();
        let managers =
            update(&self.request(version, manager, &time), self.object.as_ref(), &new, self.managers.clone());
        (self.object, self.managers) = (Some(new), managers);
        self
    }

    /// Asserts the spec of the object.
    #[track_caller]
    pub(crate) fn expect_spec(&mut self, expected: Value) -> &mut Self {
        assert_eq!(self.object.as_ref().map_or(&Value::Null, |o| &o["spec"]), &expected);
        self
    }

    /// Asserts the managed fields, one line per entry: manager, operation and paths relative to `.spec`.
    #[track_caller]
    pub(crate) fn expect_owners(&mut self, expected: &[&str]) -> &mut Self {
        let mut owners: Vec<String> = self.managers.entries().iter().map(format_entry).collect();
        owners.sort();
        assert_eq!(owners, expected);
        self
    }

    /// Returns the time of a manager's entry, in ticks.
    pub(crate) fn ticks_of(&self, manager: &str) -> Option<String> {
        let time = self.managers.entries().iter().find(|e| e.manager == manager)?.time.clone()?;
        Some(time[14..19].to_owned())
    }
}

fn format_entry(entry: &ManagedFieldsEntry) -> String {
    let mut line = entry.manager.clone();
    if !entry.subresource.is_empty() {
        write!(line, "/{}", entry.subresource).unwrap();
    }
    line.push_str(if entry.operation == Operation::Apply { " applied" } else { " wrote" });
    if entry.api_version != "v1" {
        write!(line, " {}", entry.api_version).unwrap();
    }
    for path in entry.fields.paths() {
        let path = path.to_string();
        write!(line, " {}", path.strip_prefix(".spec.").unwrap_or(&path)).unwrap();
    }
    line
}

/// Returns the validation errors of a spec, or an empty string.
pub(crate) fn validation_errors(spec: Value) -> String {
    let object = json!({"spec": spec});
    validate(Kind::default().v1(), &object, Duplicates::Refused).err().map_or_else(String::new, |e| e.to_string())
}
