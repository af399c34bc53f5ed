//! Who owns which field: `metadata.managedFields`, by every write (KEP-555).

mod name;
pub(crate) mod types;

pub(crate) use name::{manager, require};

use crate::{
    existing_object::Live,
    kinds::{Kind, KindInfo, KindRef, WriteTarget},
    request::Resource,
    service::Call,
    status::ApiError,
};
use apply::{ApplyError, Filter, Managers, Request, TypeRef, Versions};
use serde_json::Value;

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
#[derive(Clone)]
pub(crate) enum Asked {
    /// Nothing that counts.
    Nothing,
    /// That nobody owns anything: an empty list, or one with an empty entry.
    Reset,
    /// These entries.
    Entries(Managers),
}

impl Asked {
    /// Takes what an object says that its kind has read; whether it was a reset is seen before that.
    pub(crate) fn take(object: &mut Value, is_reset: bool) -> Self {
        match take(object).map(|entries| Managers::from_json(&entries)) {
            _ if is_reset => Self::Reset,
            Some(Ok(entries)) if !entries.is_empty() => Self::Entries(entries),
            _ => Self::Nothing,
        }
    }
}

/// Whether an object as it came says that nobody owns anything of it.
pub(crate) fn is_reset(raw: &Value) -> bool {
    raw["metadata"]["managedFields"].as_array().is_some_and(|entries| match entries.as_slice() {
        [] => true,
        [Value::Object(only)] => only.is_empty(),
        _ => false,
    })
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
    pub(crate) fn update(&self, live: Option<&Live>, new: &Value, asked: Asked) -> Managers {
        let kept = || live.map_or_else(Managers::default, |live| live.managers.clone());
        let managers = match asked {
            // A subresource cannot say who owns the rest.
            _ if !self.subresource.is_empty() => kept(),
            Asked::Entries(managers) => managers,
            Asked::Reset => Managers::default(),
            Asked::Nothing => kept(),
        };
        let api_version = self.kind.info().api_version();
        apply::update(&self.request(&api_version), live.map(|live| &live.object), new, managers)
    }

    /// What applying a configuration makes of an object, and who owns what then.
    pub(crate) fn apply(&self, live: Option<&Live>, config: Value, force: bool) -> Result<(Value, Managers), ApiError> {
        let info = self.kind.info();
        self.check(&config)?;
        let api_version = info.api_version();
        let text = |field: &str| config["metadata"][field].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let (live, managers) = live.map(|live| (&live.object, live.managers.clone())).unzip();
        match apply::apply(&self.request(&api_version), live, config, managers.unwrap_or_default(), force) {
            Ok(applied) => Ok((applied.object, applied.managers)),
            Err(ApplyError::Conflicts(conflicts)) => Err(ApiError::apply_conflict(&conflicts)),
            Err(error) => {
                let of = version_kind(info.group, info.version, info.kind);
                let why = format!("failed to create typed patch object ({namespace}/{name}; {of}): {error}");
                Err(ApiError::bad_request(why))
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

    /// What a webhook makes of an object is not known here.
    fn is_faithful(&self, from: &str, to: &str) -> bool {
        from == to || self.served(to).is_none_or(|kind| kind.conversion().is_none())
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

/// Takes out of an object that others have changed who owns what of it: what they say, if that makes sense.
pub(crate) fn after_admission(object: &mut Value, before: Managers, call: &Call) -> Managers {
    match Managers::from_json(&take(object).unwrap_or_default()) {
        Ok(managers) => managers,
        Err(why) => {
            let told = ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests";
            call.told.lock().push(format!("{told}: {why}"));
            before
        }
    }
}

/// What is stored of who owns what.
pub(crate) fn known(entries: &Value) -> Managers {
    Managers::from_json(entries).unwrap_or_default()
}

/// The same from its text.
pub(crate) fn known_text(entries: &str) -> Managers {
    Managers::from_text(entries).unwrap_or_else(|| known(&serde_json::from_str(entries).unwrap_or_default()))
}

/// Takes `managedFields` out of an object.
pub(crate) fn take(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
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

/// Which fields requests own that change this part of an object: upstream's `GetResetFields`, for most kinds.
pub(crate) fn owned(info: &KindInfo, target: WriteTarget) -> Filter {
    match target {
        WriteTarget::Status => {
            let kept: Vec<[&str; 2]> = info.kept_by_status.iter().map(|field| ["metadata", field]).collect();
            let paths: Vec<&[&str]> = std::iter::once(&["spec"][..]).chain(kept.iter().map(|path| &path[..])).collect();
            Filter::without(&paths)
        }
        WriteTarget::Main | WriteTarget::Sub(_) if info.status => Filter::without(&[&["status"]]),
        WriteTarget::Main | WriteTarget::Sub(_) => Filter::Everything,
    }
}
