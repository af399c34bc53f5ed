//! Who owns which field: `metadata.managedFields`, by every write (KEP-555).

mod name;
pub(crate) mod types;

pub(crate) use name::{manager, require};

use crate::{
    kinds::{Kind, KindInfo, KindRef, WriteTarget},
    request::Resource,
    service::Call,
    status::ApiError,
};
use apply::{ApplyError, Filter, Managers, Request, TypeRef, Versions};
use serde_json::{Map, Value};

/// A write of an object, as far as it matters who owns what.
pub(crate) struct Write {
    kind: KindRef,
    /// Every form in which this object can be.
    forms: Vec<KindRef>,
    subresource: String,
    manager: String,
    time: String,
    filter: Filter,
}

/// What a request itself says of `managedFields`.
pub(crate) enum Asked {
    /// Nothing that counts.
    Nothing,
    /// That nobody owns anything: an empty list, or one with an empty entry.
    Reset,
    /// These entries.
    Entries(Managers),
}

impl Asked {
    /// What the object of a request says: as it came, and as its kind has it.
    pub(crate) fn of(raw: &Value, clean: &Value) -> Self {
        let reset = raw["metadata"]["managedFields"].as_array().is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.is_empty(),
            _ => false,
        });
        match Managers::from_json(&clean["metadata"]["managedFields"]) {
            _ if reset => Self::Reset,
            Ok(entries) if !entries.is_empty() => Self::Entries(entries),
            _ => Self::Nothing,
        }
    }
}

impl Write {
    /// The write that this request is.
    pub(crate) fn new(resource: &Resource, call: &Call, now: jiff::Timestamp) -> Self {
        Self {
            kind: resource.kind.clone(),
            forms: resource.served.forms(resource.kind.info().storage),
            subresource: resource.subresource.clone().unwrap_or_default(),
            manager: manager(call),
            time: now.to_string(),
            filter: resource.kind.owned(resource.target()),
        }
    }

    /// Who owns what once this is written, be it new or over a live object.
    pub(crate) fn update(&self, live: Option<&Value>, new: &Value, asked: Asked) -> Managers {
        let kept = || live.map_or_else(Managers::default, stored);
        let managers = match asked {
            // A subresource cannot say who owns the rest.
            _ if !self.subresource.is_empty() => kept(),
            Asked::Entries(managers) => managers,
            Asked::Reset => Managers::default(),
            Asked::Nothing => kept(),
        };
        let api_version = self.kind.info().api_version();
        apply::update(&self.request(&api_version), live, new, managers)
    }

    /// What applying a configuration makes of an object, and who owns what then.
    pub(crate) fn apply(
        &self,
        live: Option<&Value>,
        config: &Value,
        force: bool,
    ) -> Result<(Value, Managers), ApiError> {
        let info = self.kind.info();
        self.check(config)?;
        let (api_version, managers) = (info.api_version(), live.map_or_else(Managers::default, stored));
        match apply::apply(&self.request(&api_version), live, config, managers, force) {
            Ok(applied) => Ok((applied.object, applied.managers)),
            Err(ApplyError::Conflicts(conflicts)) => Err(ApiError::apply_conflict(&conflicts)),
            Err(error) => {
                let text = |field: &str| config["metadata"][field].as_str().unwrap_or("");
                let of = version_kind(info.group, info.version, info.kind);
                Err(ApiError::bad_request(format!(
                    "failed to create typed patch object ({}/{}; {of}): {error}",
                    text("namespace"),
                    text("name"),
                )))
            }
        }
    }

    /// Whether this can be a configuration of the kind at all.
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
        self.forms.iter().find(|k| k.info().api_version() == api_version).map(|k| &**k)
    }
}

impl Versions for Write {
    fn root(&self, api_version: &str) -> Option<TypeRef<'_>> {
        self.served(api_version)?.types()
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (before, after) = (self.served(from)?, self.served(to)?);
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut().filter(|_| from != to) {
            before.to_storage(fields);
            after.from_storage(fields);
        }
        Some(object)
    }
}

/// Who owns what of an object that others have changed: what they say, if that makes sense.
pub(crate) fn after_admission(object: &Value, before: Managers, call: &Call) -> Managers {
    match Managers::from_json(&object["metadata"]["managedFields"]) {
        Ok(managers) => managers,
        Err(why) => {
            let told = "metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests";
            call.told.lock().push(format!("{told}: {why}"));
            before
        }
    }
}

/// Who owns what of a stored object.
pub(crate) fn stored(object: &Value) -> Managers {
    Managers::from_json(&object["metadata"]["managedFields"]).unwrap_or_default()
}

/// Go's text for a version and kind.
fn version_kind(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version}, Kind={kind}")
}

/// Notes in an object who owns what.
pub(crate) fn note(object: &mut Value, managers: &Managers) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    match managers.to_json() {
        Some(entries) => drop(metadata.insert("managedFields".to_owned(), entries)),
        None => drop(metadata.remove("managedFields")),
    }
}

/// Takes back new times where they are all that is new: who writes what is there already leaves no trace.
pub(crate) fn keep_times(new: &mut Value, old: &Value) {
    let before = &old["metadata"]["managedFields"];
    let Some(now) = new.pointer_mut("/metadata/managedFields") else { return };
    if now != before && are_same_but_times(now, before) {
        let now = std::mem::replace(now, before.clone());
        if new != old {
            new["metadata"]["managedFields"] = now;
        }
    }
}

fn are_same_but_times(now: &Value, before: &Value) -> bool {
    let (Some(now), Some(before)) = (now.as_array(), before.as_array()) else { return false };
    let fields = |entry: &Value| entry.as_object().map_or(0, Map::len);
    let same = |n: &Value, b: &Value| {
        let said = n.as_object().into_iter().flatten();
        fields(n) == fields(b) && said.filter(|(k, _)| *k != "time").all(|(k, v)| b[k] == *v)
    };
    now.len() == before.len() && now.iter().zip(before).all(|(n, b)| same(n, b))
}

/// Which fields requests own that change this part of an object: upstream's `GetResetFields`, for most kinds.
pub(crate) fn owned(info: &KindInfo, target: WriteTarget) -> Filter {
    match target {
        WriteTarget::Status => Filter::without(&[&["spec"]]),
        WriteTarget::Main | WriteTarget::Sub(_) if info.status => Filter::without(&[&["status"]]),
        WriteTarget::Main | WriteTarget::Sub(_) => Filter::Everything,
    }
}
