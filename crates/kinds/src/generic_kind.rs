//! Kinds that are described by data and function pointers, similar to upstream's generic registry `Store`.
//!
//! For kinds with a status, an update of the object does not change the status, and an update of the status changes
//! nothing else.

use super::{
    Column, FieldErrors, Kind, KindInfo, NAME_AND_AGE, SchemaResolver, WriteContext, WriteTarget,
    field_values_at_paths, value_at_path,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use wire::typed;

/// A kind described by data and function pointers.
pub(crate) struct GenericKind {
    pub(crate) info: &'static KindInfo,
    pub(crate) columns: &'static [Column],
    /// Selectable fields.
    pub(crate) fields: &'static [&'static str],
    /// Selectable fields whose value is the number at another path, 0 if absent.
    pub(crate) number_fields: &'static [(&'static str, &'static str)],
    /// Sets defaults, on every write.
    pub(crate) default: fn(&mut Value),
    /// Sets server-owned fields and drops fields that clients must not set. The old object is `None` for a create.
    pub(crate) prepare: fn(&mut Value, Option<&Value>, &WriteContext),
    pub(crate) name: fn(&str) -> Vec<String>,
    /// Validates creates and updates.
    pub(crate) validate: fn(&Value, &mut FieldErrors),
    /// Additional validation of creates.
    pub(crate) validate_new: fn(&Value, &mut FieldErrors),
    /// Additional validation of updates: new object, old object.
    pub(crate) validate_change: fn(&Value, &Value, &mut FieldErrors),
    /// Sets status fields that the server computes, after the generation is set.
    pub(crate) derive_status: fn(&mut Value, SchemaResolver<'_>),
    /// Returns upstream's warnings. The old object is `None` for a create.
    pub(crate) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// Validates updates of the status: new object, old object.
    pub(crate) validate_status: fn(&Value, &Value, &mut FieldErrors),
    /// Changes the object when its deletion begins.
    pub(crate) begin_deletion: fn(&mut Value, jiff::Timestamp),
    /// Conversion from and to the stored version, if it is another one.
    pub(crate) convert: Option<Conversion>,
}

/// Conversion between a version and the stored version.
pub(crate) struct Conversion {
    pub(crate) from: fn(&mut Map<String, Value>),
    pub(crate) to: fn(&mut Map<String, Value>),
}

impl GenericKind {
    /// Returns a kind with default behaviour.
    pub(crate) const fn new(info: &'static KindInfo) -> Self {
        Self {
            info,
            columns: NAME_AND_AGE,
            fields: &[],
            number_fields: &[],
            default: |_| {},
            prepare: |_, _, _| {},
            name: api::names::dns1123_subdomain,
            validate: |_, _| {},
            validate_new: |_, _| {},
            validate_change: |_, _, _| {},
            derive_status: |_, _| {},
            warnings: |_, _| Vec::new(),
            validate_status: |_, _, _| {},
            begin_deletion: |_, _| {},
            convert: None,
        }
    }
}

impl Kind for GenericKind {
    fn info(&self) -> &'static KindInfo {
        self.info
    }

    fn set_defaults(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        (self.warnings)(object, old)
    }

    fn prepare_create(&self, object: &mut Value, ctx: &WriteContext) {
        if self.info.status {
            match typed::empty_object(&self.info.api_version(), self.info.kind).remove("status") {
                Some(status) => object["status"] = status,
                None => drop(object.as_object_mut().map(|o| o.remove("status"))),
            }
        }
        (self.prepare)(object, None, ctx);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        match ctx.target {
            WriteTarget::Main if self.info.status => object["status"] = old["status"].clone(),
            WriteTarget::Status => {
                let mut new = old.clone();
                for part in ["metadata", "status"] {
                    new[part] = object[part].take();
                }
                for field in self.info.reset_by_status_update {
                    copy_field(&old["metadata"], &mut new["metadata"], field);
                }
                *object = new;
            }
            _ => {}
        }
        (self.prepare)(object, Some(old), ctx);
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        (self.validate)(object, errors);
        (self.validate_new)(object, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if ctx.target == WriteTarget::Status {
            return (self.validate_status)(object, old, errors);
        }
        (self.validate)(object, errors);
        (self.validate_change)(object, old, errors);
    }

    fn validate_name(&self, name: &str) -> Vec<String> {
        (self.name)(name)
    }

    fn columns(&self) -> &'static [Column] {
        self.columns
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        self.fields
    }

    fn field_dependencies(&self, field: &str) -> &'static [&'static str] {
        let found = self.number_fields.iter().find(|(name, _)| *name == field);
        found.map_or(&[], |(_, path)| std::slice::from_ref(path))
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let mut values = field_values_at_paths(self.fields, object);
        values.extend(self.number_fields.iter().map(|(name, path)| {
            let number = value_at_path(object, path).and_then(Value::as_i64);
            (*name, number.unwrap_or(0).to_string())
        }));
        values
    }

    fn derive_status(&self, object: &mut Value, defined: SchemaResolver<'_>) {
        (self.derive_status)(object, defined);
    }

    fn begin_deletion(&self, object: &mut Value, now: jiff::Timestamp) {
        (self.begin_deletion)(object, now);
    }

    fn from_storage(&self, object: &mut Map<String, Value>) {
        if let Some(conversion) = &self.convert {
            object.insert("apiVersion".to_owned(), json!(self.info.api_version()));
            (conversion.from)(object);
        }
    }

    fn to_storage(&self, object: &mut Map<String, Value>) {
        if let Some(conversion) = &self.convert {
            (conversion.to)(object);
        }
    }
}

fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(to.insert(field.to_owned(), value.clone())),
        None => drop(to.remove(field)),
    }
}

/// Returns the errors of a name that is only restricted as a path segment (`ValidatePathSegmentName`).
pub(crate) fn validate_path_segment_name(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect(),
    }
}
