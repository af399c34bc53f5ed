//! A kind that is data: what it is called, what its tables show, and functions for the little that is particular.
//!
//! What holds for every kind with a status is here: the object itself cannot change the status, and the status cannot
//! change the rest.

use super::{Column, Defined, FieldErrors, Kind, KindInfo, NAME_AND_AGE, WriteContext, WriteTarget};
use crate::typed;
use serde_json::{Map, Value, json};

pub(in crate::kinds) struct Plain {
    pub(in crate::kinds) info: &'static KindInfo,
    pub(in crate::kinds) columns: &'static [Column],
    /// Selectable fields.
    pub(in crate::kinds) fields: &'static [&'static str],
    /// Defaults, on every write.
    pub(in crate::kinds) default: fn(&mut Value),
    /// What the server sets, and what a client may not; the old object is there for an update.
    pub(in crate::kinds) prepare: fn(&mut Value, Option<&Value>, &WriteContext),
    pub(in crate::kinds) name: fn(&str) -> Vec<String>,
    /// What holds for an object, new or changed.
    pub(in crate::kinds) validate: fn(&Value, &mut FieldErrors),
    /// What holds for a new object beside that.
    pub(in crate::kinds) validate_new: fn(&Value, &mut FieldErrors),
    /// What holds for a change beside that: the new object, then the old one.
    pub(in crate::kinds) validate_change: fn(&Value, &Value, &mut FieldErrors),
    /// What the server finds out about an object, once its generation is known.
    pub(in crate::kinds) observe: fn(&mut Value, Defined<'_>),
    /// What upstream warns of, though it takes it; the old object is there for an update.
    pub(in crate::kinds) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// What holds for a write of the status: the new object, then the old one.
    pub(in crate::kinds) validate_status: fn(&Value, &Value, &mut FieldErrors),
    /// What a deletion that begins changes.
    pub(in crate::kinds) begin_deletion: fn(&mut Value),
    /// From the stored form and back to it, where they differ.
    pub(in crate::kinds) convert: Option<Conversion>,
}

/// How objects of a version become those of the stored one.
pub(in crate::kinds) struct Conversion {
    pub(in crate::kinds) from: fn(&mut Map<String, Value>),
    pub(in crate::kinds) to: fn(&mut Map<String, Value>),
}

impl Plain {
    /// A kind about which there is nothing to say but its names.
    pub(in crate::kinds) const fn of(info: &'static KindInfo) -> Self {
        Self {
            info,
            columns: NAME_AND_AGE,
            fields: &[],
            default: |_| {},
            prepare: |_, _, _| {},
            name: api::names::dns1123_subdomain,
            validate: |_, _| {},
            validate_new: |_, _| {},
            validate_change: |_, _, _| {},
            observe: |_, _| {},
            warnings: |_, _| Vec::new(),
            validate_status: |_, _, _| {},
            begin_deletion: |_| {},
            convert: None,
        }
    }
}

impl Kind for Plain {
    fn info(&self) -> &'static KindInfo {
        self.info
    }

    fn default(&self, object: &mut Value) {
        (self.default)(object);
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        (self.warnings)(object, old)
    }

    fn prepare_create(&self, object: &mut Value, ctx: &WriteContext) {
        if self.info.status {
            match typed::empty(&self.info.api_version(), self.info.kind).remove("status") {
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
                for field in self.info.kept_by_status {
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

    fn observe(&self, object: &mut Value, defined: Defined<'_>) {
        (self.observe)(object, defined);
    }

    fn begin_deletion(&self, object: &mut Value) {
        (self.begin_deletion)(object);
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

/// What a name must be that becomes part of a path and nothing else (`ValidatePathSegmentName`).
pub(crate) fn path_segment(name: &str) -> Vec<String> {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => ['/', '%'].into_iter().filter(|c| name.contains(*c)).map(|c| format!("may not contain '{c}'")).collect(),
    }
}
