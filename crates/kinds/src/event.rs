//! Event, in the core group and in `events.k8s.io`: two versions of the same stored object.

mod validate;

use super::{Column, FieldErrors, Kind, KindInfo, Row, WriteContext, age, column};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, collections::BTreeMap};

/// The kind Event, in one of its groups.
pub struct Event {
    info: &'static KindInfo,
    core: bool,
}

/// Event of the core group.
pub static CORE_EVENT: Event = Event { info: &CORE_INFO, core: true };
pub(super) static EVENTS_EVENT: Event = Event { info: &EVENTS_INFO, core: false };
static CORE_INFO: KindInfo =
    KindInfo { short_names: &["ev"], allow_create_on_update: true, ..KindInfo::core("Event", "events", "event") };
static EVENTS_INFO: KindInfo = KindInfo {
    group: "events.k8s.io",
    converted: true,
    allow_create_on_update: true,
    short_names: &["ev"],
    ..KindInfo::core("Event", "events", "event")
};

const COLUMNS: &[Column] = &[
    column("Last Seen", "string", 0),
    column("Type", "string", 0),
    column("Reason", "string", 0),
    column("Object", "string", 0),
    column("Subobject", "string", 1),
    column("Source", "string", 1),
    column("Message", "string", 0),
    column("First Seen", "string", 1),
    column("Count", "string", 1),
    Column { format: "name", ..column("Name", "string", 1) },
];

/// Fields of the core group with their names in `events.k8s.io`.
const RENAMED_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Selectable fields of both groups (`AddFieldLabelConversionsForEvent`).
const CORE_SELECTABLE_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const EVENTS_SELECTABLE_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

impl Event {
    /// Converts an object to the core group, whose field names upstream's errors have.
    fn to_core<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.core {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        if let Some(map) = object.as_object_mut() {
            self.to_storage(map);
        }
        Cow::Owned(object)
    }
}

impl Kind for Event {
    fn info(&self) -> &'static KindInfo {
        self.info
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let stored = self.to_core(object);
        validate::validate_legacy(&stored, self.core, errors);
        if !self.core {
            validate::validate_strict(&stored, errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        let (new, old) = (self.to_core(new), self.to_core(old));
        validate::validate_legacy(&new, self.core, errors);
        if !self.core {
            validate::validate_immutable_fields(&new, &old, errors);
        }
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Value, now: jiff::Timestamp) -> Row {
        let object = self.to_core(object);
        let involved = &object["involvedObject"];
        let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
        let first = [&object["firstTimestamp"], &object["eventTime"]].into_iter().find_map(Value::as_str);
        let series = &object["series"];
        let last =
            [&series["lastObservedTime"], &object["lastTimestamp"]].into_iter().find_map(Value::as_str).or(first);
        let count = [&series["count"], &object["count"]].into_iter().find_map(Value::as_i64).filter(|n| *n > 0);
        // Newer recorders set the reporting controller instead of the source.
        let or_field = |one: &Value, other: &str| {
            Some(text(one)).filter(|t| !t.is_empty()).unwrap_or_else(|| text(&object[other]))
        };
        let component = or_field(&object["source"]["component"], "reportingComponent");
        let source = match or_field(&object["source"]["host"], "reportingInstance") {
            host if host.is_empty() => component,
            host => format!("{component}, {host}"),
        };
        let cells = vec![
            json!(age(last, now)),
            object["type"].clone(),
            object["reason"].clone(),
            json!(format!("{}/{}", text(&involved["kind"]).to_lowercase(), text(&involved["name"]))),
            json!(text(&involved["fieldPath"])),
            json!(source),
            json!(text(&object["message"]).trim()),
            json!(age(first, now)),
            json!(count.unwrap_or(1)),
            object["metadata"]["name"].clone(),
        ];
        Row { cells, conditions: Vec::new() }
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        if self.core { CORE_SELECTABLE_FIELDS } else { EVENTS_SELECTABLE_FIELDS }
    }

    fn field_dependencies(&self, field: &str) -> &'static [&'static str] {
        if field == "source" { &["reportingComponent"] } else { &[] }
    }

    fn field_values(&self, object: &Value) -> BTreeMap<&'static str, String> {
        let at = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let value = |field: &str| match field {
            // Newer recorders set the reporting controller instead of the source.
            "source" => {
                Some(at("/source/component")).filter(|c| !c.is_empty()).unwrap_or_else(|| at("/reportingComponent"))
            }
            path => at(&format!("/{}", path.replace('.', "/"))),
        };
        self.selectable_fields().iter().map(|field| (*field, value(field))).collect()
    }

    fn from_storage(&self, object: &mut Map<String, Value>) {
        if !self.core {
            object.insert("apiVersion".to_owned(), json!("events.k8s.io/v1"));
            rename_fields(object, |(core, new)| (core, new));
        }
    }

    fn to_storage(&self, object: &mut Map<String, Value>) {
        if !self.core {
            object.insert("apiVersion".to_owned(), json!("v1"));
            rename_fields(object, |(core, new)| (new, core));
        }
    }
}

fn rename_fields(
    object: &mut Map<String, Value>,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    for (from, to) in RENAMED_FIELDS.into_iter().map(direction) {
        if let Some(value) = object.remove(from) {
            object.insert(to.to_owned(), value);
        }
    }
}
