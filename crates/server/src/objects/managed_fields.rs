//! Field ownership: every write updates `metadata.managedFields` (KEP-555).

mod name;

pub(crate) use name::{field_manager_name, validate_field_manager};

use crate::objects::{call::Call, managed_object::ManagedObject, request_scope::RequestScope};
use apply::{ApplyError, Converter, Filter, ManagedFields, Request, TypeRef};
use errors::ApiError;
use kinds::{Kind, KindRef};
use serde_json::{Value, json};

/// Field manager of one write (upstream's `managedfields.FieldManager`).
pub(crate) struct FieldManager {
    kind: KindRef,
    /// All served versions of the object.
    versions: Vec<KindRef>,
    subresource: String,
    manager: String,
    time: String,
    filter: Filter,
}

/// The `managedFields` that a request sends.
#[derive(Clone)]
pub(crate) enum RequestedManagedFields {
    /// Absent or invalid, which is ignored.
    Absent,
    /// An empty list, or one with an empty entry, which removes all managers.
    Reset,
    /// Valid entries, which replace the managers.
    Entries(ManagedFields),
}

impl RequestedManagedFields {
    /// Removes `managedFields` from a decoded object. Decoding drops empty entries, so `is_reset` is determined before it.
    pub(crate) fn take(object: &mut Value, is_reset: bool) -> Self {
        match remove_managed_fields(object).map(|entries| ManagedFields::from_json(&entries)) {
            _ if is_reset => Self::Reset,
            Some(Ok(entries)) if !entries.is_empty() => Self::Entries(entries),
            _ => Self::Absent,
        }
    }
}

/// Returns the conflict of a server-side apply: other managers own the fields.
pub(crate) fn apply_conflict(conflicts: &apply::Conflicts) -> ApiError {
    let cause = |(conflict, path): (&apply::Conflict, String)| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.manager), "field": path});
    ApiError::new(409, "Conflict", conflicts.to_string()).with_causes(conflicts.shown().map(cause).collect())
}

/// Whether an object that is not decoded yet resets its managers.
pub(crate) fn is_reset(raw: &Value) -> bool {
    raw["metadata"]["managedFields"].as_array().is_some_and(|entries| match entries.as_slice() {
        [] => true,
        [Value::Object(only)] => only.is_empty(),
        _ => false,
    })
}

impl FieldManager {
    /// Returns the field manager of a request.
    pub(crate) fn new(resource: &RequestScope, call: &Call, now: jiff::Timestamp) -> Self {
        Self {
            kind: resource.kind.clone(),
            versions: resource.served.kinds_of_storage(resource.kind.info().storage),
            subresource: resource.subresource.clone().unwrap_or_default(),
            manager: field_manager_name(call),
            time: now.to_string(),
            filter: resource.kind.reset_fields_filter(resource.target()),
        }
    }

    /// Returns the managers after an update or create of an object.
    pub(crate) fn update(
        &self,
        live: Option<&ManagedObject>,
        new: &Value,
        requested: RequestedManagedFields,
    ) -> ManagedFields {
        let unchanged = || live.map_or_else(ManagedFields::default, |live| live.managers.clone());
        let managers = match requested {
            // Requests of subresources cannot set managers.
            _ if !self.subresource.is_empty() => unchanged(),
            RequestedManagedFields::Entries(managers) => managers,
            RequestedManagedFields::Reset => ManagedFields::default(),
            RequestedManagedFields::Absent => unchanged(),
        };
        let api_version = self.kind.info().api_version();
        apply::update(&self.request(&api_version), live.map(|live| &live.object), new, managers)
    }

    /// Applies a configuration; returns the object and its managers.
    pub(crate) fn apply(
        &self,
        live: Option<&ManagedObject>,
        config: Value,
        force: bool,
    ) -> Result<(Value, ManagedFields), ApiError> {
        let info = self.kind.info();
        self.check(&config)?;
        let api_version = info.api_version();
        let text = |field: &str| config["metadata"][field].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let (live, managers) = live.map(|live| (&live.object, live.managers.clone())).unzip();
        match apply::apply(&self.request(&api_version), live, config, managers.unwrap_or_default(), force) {
            Ok(applied) => Ok((applied.object, applied.managers)),
            Err(ApplyError::Conflicts(conflicts)) => Err(apply_conflict(&conflicts)),
            Err(error) => {
                let version_and_kind = version_kind(info.group, info.version, info.kind);
                let detail =
                    format!("failed to create typed patch object ({namespace}/{name}; {version_and_kind}): {error}");
                Err(ApiError::bad_request(detail))
            }
        }
    }

    /// Checks type and `managedFields` of an applied configuration.
    fn check(&self, config: &Value) -> Result<(), ApiError> {
        let info = self.kind.info();
        let text = |field: &str| config[field].as_str().unwrap_or("");
        if text("apiVersion") != info.api_version() || text("kind") != info.kind {
            let (group, version) = text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
            let found = version_kind(group, version, text("kind"));
            return Err(ApiError::bad_request(format!("invalid object type: {found}")));
        }
        if config["metadata"]["managedFields"].as_array().is_some_and(|entries| !entries.is_empty()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        Ok(())
    }

    fn request<'a>(&'a self, api_version: &'a str) -> Request<'a> {
        Request {
            versions: self,
            api_version,
            subresource: &self.subresource,
            manager: &self.manager,
            time: &self.time,
            filter: &self.filter,
        }
    }

    fn served(&self, api_version: &str) -> Option<&dyn Kind> {
        self.versions.iter().find(|k| k.info().api_version() == api_version).map(|k| &**k)
    }
}

impl Converter for FieldManager {
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.served(api_version)?.type_ref()
    }

    /// Conversions by a webhook are not available here.
    fn is_faithful(&self, from: &str, to: &str) -> bool {
        from == to || self.served(to).is_none_or(|kind| kind.conversion().is_none())
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (source, target) = (self.served(from)?, self.served(to)?);
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut().filter(|_| from != to) {
            source.to_storage(fields);
            target.from_storage(fields);
        }
        Some(object)
    }
}

/// Removes `managedFields` from an object after mutating admission, and returns its managers: those that admission set if
/// they are valid, else those before it.
pub(crate) fn after_admission(object: &mut Value, old_managers: ManagedFields, call: &Call) -> ManagedFields {
    match ManagedFields::from_json(&remove_managed_fields(object).unwrap_or_default()) {
        Ok(managers) => managers,
        Err(error) => {
            let warning = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests";
            call.warnings.lock().push(format!("{warning}: {error}"));
            old_managers
        }
    }
}

/// Parses stored `managedFields`.
pub(crate) fn parse_stored(entries: &Value) -> ManagedFields {
    ManagedFields::from_json(entries).unwrap_or_default()
}

/// Parses stored `managedFields` from JSON text.
pub(crate) fn parse_stored_text(entries: &str) -> ManagedFields {
    ManagedFields::from_text(entries)
        .unwrap_or_else(|| parse_stored(&serde_json::from_str(entries).unwrap_or_default()))
}

/// Removes `managedFields` from an object.
pub(crate) fn remove_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Returns Go's text of a `GroupVersionKind`.
fn version_kind(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version}, Kind={kind}")
}

/// Sets `managedFields` of an object.
pub(crate) fn set_managed_fields(object: &mut Value, managers: &ManagedFields) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    match managers.to_json() {
        Some(entries) => drop(metadata.insert("managedFields".to_owned(), entries)),
        None => drop(metadata.remove("managedFields")),
    }
}
