//! A version of a kind that a CustomResourceDefinition defines.

mod columns;
mod deprecation;
mod embedded;
pub(crate) mod names;
mod numbers;
mod types;

use super::{FieldErrors, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget};
use crate::{conversion::Conversion, scale::ScalePaths, typed};
use admission::policy::Known;
use apply::{Filter, TypeId, TypeRef};
use columns::PrinterColumn;
use jiff::Timestamp;
use schema::{JsonPath, Schema};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use store::Revision;
use tokio_util::sync::CancellationToken;

/// The scale of a custom kind.
static SCALE: [Subresource; 1] = [Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
}];

/// A version of a custom kind.
pub(crate) struct Custom {
    info: KindInfo,
    list_kind: String,
    schema: Schema,
    /// What a status alone is.
    status: Option<Schema>,
    columns: Vec<PrinterColumn>,
    selectable: Vec<(String, JsonPath)>,
    scale: ScalePaths,
    types: apply::Schema,
    root: TypeId,
    deprecation: Option<String>,
    conversion: Option<Arc<Conversion>>,
    terminating: AtomicBool,
    /// The version in which objects are stored, and whether this is it.
    stored_as: String,
    is_stored: bool,
    /// Whether an object that was stored without a status shows one.
    has_first_status: bool,
    /// What was stored after this is as this schema would have it.
    since: Revision,
    gone: CancellationToken,
}

/// What all versions of a kind share.
pub(crate) struct Family<'a> {
    /// The definition.
    pub(crate) definition: &'a Value,
    /// From when on this is how objects are stored.
    pub(crate) since: Revision,
    conversion: Option<Arc<Conversion>>,
}

impl<'a> Family<'a> {
    pub(crate) fn new(definition: &'a Value, since: Revision) -> Self {
        Self { definition, since, conversion: Conversion::read(definition).map(Arc::new) }
    }
}

impl Custom {
    /// A version that is served; `None` when its names cannot be kept.
    pub(crate) fn read(family: &Family<'_>, version: &Value) -> Option<Self> {
        let (spec, status) = (&family.definition["spec"], &family.definition["status"]);
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or("").to_owned();
        let (accepted, group) = (&status["acceptedNames"], text(spec, "group"));
        let list = |key: &str| -> Vec<&str> {
            accepted[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let plural = text(accepted, "plural");
        let subresources = &version["subresources"];
        let info = KindInfo {
            created_by_update: false,
            needs_version: true,
            deprecation: None,
            group: names::keep(&group)?,
            version: names::keep(&text(version, "name"))?,
            kind: names::keep(&text(accepted, "kind"))?,
            plural: names::keep(&plural)?,
            singular: names::keep(&text(accepted, "singular"))?,
            short_names: names::keep_all(&list("shortNames"))?,
            categories: names::keep_all(&list("categories"))?,
            namespaced: spec["scope"] == "Namespaced",
            status: subresources["status"].is_object(),
            kept_by_status: &[],
            generation: true,
            generation_of_annotations: false,
            subresources: if subresources["scale"].is_object() { &SCALE } else { &[] },
            storage: names::keep(&format!("{plural}.{group}"))?,
            converted: true,
            orphans: false,
            orphan_warning: None,
            question: false,
            computed: false,
            stand_in: false,
            gate: None,
        };
        let mut schema = Schema::read(&version["schema"]["openAPIV3Schema"]);
        schema.preserve |= spec["preserveUnknownFields"] == true;
        let (types, root) = types::of(&schema);
        let versions = spec["versions"].as_array().into_iter().flatten();
        let stored = versions.filter(|v| v["storage"] == true).map(|v| text(v, "name")).next().unwrap_or_default();
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        Some(Self {
            list_kind: text(accepted, "listKind"),
            status: schema.only("status"),
            columns: PrinterColumn::read(version),
            selectable: fields
                .filter_map(|f| f["jsonPath"].as_str())
                .filter_map(|p| Some((p.trim_start_matches('.').to_owned(), JsonPath::parse(p).ok()?)))
                .collect(),
            scale: ScalePaths::read(&subresources["scale"]),
            types,
            root,
            deprecation: deprecation::warning(spec, version),
            conversion: family.conversion.clone(),
            terminating: AtomicBool::new(false),
            stored_as: format!("{group}/{stored}"),
            is_stored: stored == info.version,
            has_first_status: info.status && schema.properties.get("status").is_some_and(|s| s.default.is_some()),
            since: family.since,
            gone: CancellationToken::new(),
            schema,
            info,
        })
    }

    /// There will be no more objects of it; those who watch see the last ones go.
    pub(crate) fn terminate(&self) {
        self.terminating.store(true, Ordering::Relaxed);
    }

    /// Tells those who watch that this is no longer how the kind is served.
    pub(crate) fn end(&self) {
        self.gone.cancel();
    }

    /// What expressions know of its objects, but for their metadata.
    pub(crate) fn known(&self) -> Known {
        let Self { info, schema, .. } = self;
        Known { kind: format!("{}, Kind={}", info.api_version(), info.kind), object: schema.expression_type() }
    }

    /// As this version has it: without what it does not know, with its defaults.
    fn shape(&self, object: &mut Value) {
        self.schema.prune(object);
        self.schema.fill_in(object);
    }

    /// What must hold of an object, in the order in which upstream tells it.
    fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        self.schema.validate_values(object, old, errors);
        self.scale.validate_spec(object, errors);
        self.scale.validate_status(object, errors);
        self.validate_more(object, old, errors);
    }

    /// What must hold whatever of an object is written; the rules come last, for they are not asked of all that is wrong.
    fn validate_more(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        embedded::validate(&self.schema, object, errors);
        self.schema.validate_lists(object, old, errors);
        self.schema.ask_rules(object, old, errors);
    }
}

impl Kind for Custom {
    fn info(&self) -> &KindInfo {
        &self.info
    }

    fn list_kind(&self) -> String {
        self.list_kind.clone()
    }

    fn read(&self, object: &mut Value) -> Result<Vec<String>, String> {
        let mut unknown = typed::metadata(&mut object["metadata"], "metadata")?;
        object["apiVersion"] = json!(self.info.api_version());
        object["kind"] = json!(self.info.kind);
        unknown.extend(self.schema.prune(object).into_iter().map(|path| format!("unknown field {path:?}")));
        unknown.extend(embedded::read(&self.schema, object)?);
        numbers::settle(object);
        Ok(unknown)
    }

    fn types(&self) -> Option<TypeRef<'_>> {
        Some(TypeRef { schema: &self.types, id: self.root })
    }

    fn merges_strategically(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        self.schema.fill_in(object);
    }

    fn prepare_create(&self, object: &mut Value, _ctx: &WriteContext) {
        if self.info.status {
            object.as_object_mut().map(|o| o.remove("status"));
        }
    }

    fn prepare_update(&self, object: &mut Value, old: &Value, ctx: &WriteContext) {
        let set = |object: &mut Value, status: Option<Value>| match (object.as_object_mut(), status) {
            (Some(fields), Some(status)) => drop(fields.insert("status".to_owned(), status)),
            (Some(fields), None) => drop(fields.remove("status")),
            _ => {}
        };
        match ctx.target {
            WriteTarget::Status => {
                let status = object.get("status").cloned();
                *object = old.clone();
                set(object, status);
            }
            _ if self.info.status => set(object, old.get("status").cloned()),
            _ => {}
        }
    }

    fn owned(&self, target: WriteTarget) -> Filter {
        match target {
            WriteTarget::Status => Filter::only(&[&["status"]]),
            _ => crate::managed_fields::owned(&self.info, target),
        }
    }

    fn validate_create(&self, object: &Value, _ctx: &WriteContext, errors: &mut FieldErrors) {
        self.validate(object, None, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, ctx: &WriteContext, errors: &mut FieldErrors) {
        if ctx.target != WriteTarget::Status {
            return self.validate(object, Some(old), errors);
        }
        self.status.iter().for_each(|status| status.validate_values(object, Some(old), errors));
        self.scale.validate_status(object, errors);
        self.validate_more(object, Some(old), errors);
    }

    fn column_definitions(&self) -> Vec<Value> {
        let name = json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0});
        std::iter::once(name).chain(self.columns.iter().map(PrinterColumn::definition)).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Row {
        let name = object["metadata"]["name"].clone();
        let cells = std::iter::once(name).chain(self.columns.iter().map(|c| c.cell(object, now))).collect();
        Row { cells, conditions: Vec::new() }
    }

    fn selects(&self, field: &str) -> bool {
        self.selectable.iter().any(|(name, _)| name == field)
    }

    fn not_selectable(&self, field: &str) -> String {
        format!("field label not supported: {field}")
    }

    fn selected(&self, object: &Value) -> BTreeMap<String, String> {
        let value = |path: &JsonPath| match path.find(object).first() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        self.selectable.iter().map(|(name, path)| (name.clone(), value(path))).collect()
    }

    fn scale(&self) -> &ScalePaths {
        &self.scale
    }

    fn is_custom(&self) -> bool {
        true
    }

    fn deprecation(&self) -> Option<&str> {
        self.deprecation.as_deref()
    }

    fn conversion(&self) -> Option<&Conversion> {
        self.conversion.as_deref()
    }

    fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    fn gone(&self) -> Option<&CancellationToken> {
        Some(&self.gone)
    }

    fn is_stored_form(&self, revision: Revision) -> bool {
        self.is_stored && !self.has_first_status && revision > self.since
    }

    fn from_storage(&self, object: &mut Map<String, Value>) {
        object.insert("apiVersion".to_owned(), json!(self.info.api_version()));
        let mut value = Value::Object(std::mem::take(object));
        self.shape(&mut value);
        if let Value::Object(shaped) = value {
            *object = shaped;
        }
    }

    fn to_storage(&self, object: &mut Map<String, Value>) {
        // What a webhook has made says itself what it is.
        if self.conversion.is_none() {
            object.insert("apiVersion".to_owned(), json!(self.stored_as));
        }
    }
}
