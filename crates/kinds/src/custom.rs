//! A version of a custom kind, which a CustomResourceDefinition defines.

mod apply_schema;
mod deprecation;
mod embedded;
pub(crate) mod interned_names;
mod numbers;
mod printer_columns;

use super::{FieldErrors, Kind, KindInfo, Row, Subresource, WriteContext, WriteTarget};
use crate::{ConversionWebhook, scale_paths::ScalePaths};
use ::admission::policy::ResourceType;
use apply::{Filter, TypeId, TypeRef};
use jiff::Timestamp;
use printer_columns::PrinterColumn;
use schema::{JsonPath, Schema};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;
use wire::typed::{self, DecodeFieldError};

/// The `scale` subresource of custom kinds.
static SCALE: [Subresource; 1] = [Subresource {
    name: "scale",
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    verbs: &["get", "patch", "update"],
}];

/// A version of a custom kind.
pub struct Custom {
    info: KindInfo,
    list_kind: String,
    schema: Schema,
    /// Schema with the status only.
    status: Option<Schema>,
    columns: Vec<PrinterColumn>,
    selectable_fields: Vec<(String, JsonPath)>,
    scale: ScalePaths,
    types: apply::Schema,
    root: TypeId,
    deprecation: Option<String>,
    conversion: Option<Arc<ConversionWebhook>>,
    terminating: AtomicBool,
    /// `apiVersion` of the stored objects.
    stored_as: String,
    is_stored: bool,
    /// Whether the schema has a default for the status, which objects that are stored without a status get.
    has_status_default: bool,
    /// Objects that were stored after this revision conform to this schema.
    since: u64,
    cancellation: CancellationToken,
}

/// Data of a definition that all its versions share.
pub struct DefinitionContext<'a> {
    /// The CustomResourceDefinition.
    pub(crate) definition: &'a Value,
    /// Objects that were stored after this revision conform to the definition.
    pub(crate) since: u64,
    conversion: Option<Arc<ConversionWebhook>>,
}

impl<'a> DefinitionContext<'a> {
    /// Reads the data of a definition.
    #[must_use]
    pub fn new(definition: &'a Value, since: u64) -> Self {
        Self { definition, since, conversion: ConversionWebhook::from_definition(definition).map(Arc::new) }
    }
}

impl Custom {
    /// Builds the kind of a served version; `None` if its names cannot be interned.
    pub fn from_version(family: &DefinitionContext<'_>, version: &Value) -> Option<Self> {
        let (spec, status) = (&family.definition["spec"], &family.definition["status"]);
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or("").to_owned();
        let (accepted, group) = (&status["acceptedNames"], text(spec, "group"));
        let list = |key: &str| -> Vec<&str> {
            accepted[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let plural = text(accepted, "plural");
        let subresources = &version["subresources"];
        let info = KindInfo {
            allow_create_on_update: false,
            requires_resource_version: true,
            deprecation: None,
            group: interned_names::intern(&group)?,
            version: interned_names::intern(&text(version, "name"))?,
            kind: interned_names::intern(&text(accepted, "kind"))?,
            plural: interned_names::intern(&plural)?,
            singular: interned_names::intern(&text(accepted, "singular"))?,
            short_names: interned_names::intern_list(&list("shortNames"))?,
            categories: interned_names::intern_list(&list("categories"))?,
            namespaced: spec["scope"] == "Namespaced",
            status: subresources["status"].is_object(),
            reset_by_status_update: &[],
            generation: true,
            annotations_bump_generation: false,
            subresources: if subresources["scale"].is_object() { &SCALE } else { &[] },
            storage: interned_names::intern(&format!("{plural}.{group}"))?,
            converted: true,
            orphans_by_default: false,
            orphan_warning: None,
            create_only: false,
            computed: false,
            aggregation_fallback: false,
            gate: None,
        };
        let mut schema = Schema::parse(&version["schema"]["openAPIV3Schema"]);
        schema.preserve_unknown_fields |= spec["preserveUnknownFields"] == true;
        let (types, root) = apply_schema::build_types(&schema);
        let versions = spec["versions"].as_array().into_iter().flatten();
        let stored = versions.filter(|v| v["storage"] == true).map(|v| text(v, "name")).next().unwrap_or_default();
        let fields = version["selectableFields"].as_array().into_iter().flatten();
        Some(Self {
            list_kind: text(accepted, "listKind"),
            status: schema.with_only_field("status"),
            columns: PrinterColumn::read(version),
            selectable_fields: fields
                .filter_map(|f| f["jsonPath"].as_str())
                .filter_map(|p| Some((p.trim_start_matches('.').to_owned(), JsonPath::parse(p).ok()?)))
                .collect(),
            scale: ScalePaths::read(&subresources["scale"]),
            types,
            root,
            deprecation: deprecation::deprecation_warning(spec, version),
            conversion: family.conversion.clone(),
            terminating: AtomicBool::new(false),
            stored_as: format!("{group}/{stored}"),
            is_stored: stored == info.version,
            has_status_default: info.status && schema.properties.get("status").is_some_and(|s| s.default.is_some()),
            since: family.since,
            cancellation: CancellationToken::new(),
            schema,
            info,
        })
    }

    /// Marks the kind as terminating: creates are rejected, watches continue.
    pub fn mark_terminating(&self) {
        self.terminating.store(true, Ordering::Relaxed);
    }

    /// Cancels watches, because the kind is no longer served or has changed.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Returns the type of its objects for CEL type checking, without metadata.
    pub fn expression_kind(&self) -> ResourceType {
        let Self { info, schema, .. } = self;
        ResourceType { kind: format!("{}, Kind={}", info.api_version(), info.kind), object: schema.expression_type() }
    }

    /// Prunes unknown fields and sets the defaults of this version.
    fn prune_and_default(&self, object: &mut Value) {
        self.schema.prune(object);
        self.schema.apply_defaults(object);
    }

    /// Validates an object, in upstream's order.
    fn validate(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        self.schema.validate_values(object, old, errors);
        self.scale.validate_spec(object, errors);
        self.scale.validate_status(object, errors);
        self.validate_structure(object, old, errors);
    }

    /// Validates embedded resources, lists and CEL rules of objects and statuses. The rules are last, because they are skipped
    /// for some errors.
    fn validate_structure(&self, object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
        embedded::validate(&self.schema, object, errors);
        self.schema.validate_list_sets_and_maps(object, old, errors);
        self.schema.validate_rules(object, old, errors);
    }
}

impl Kind for Custom {
    fn info(&self) -> &KindInfo {
        &self.info
    }

    fn list_kind(&self) -> String {
        self.list_kind.clone()
    }

    fn decode(&self, object: &mut Value) -> Result<Vec<String>, DecodeFieldError> {
        let mut unknown = typed::decode_metadata(&mut object["metadata"], "metadata")?;
        object["apiVersion"] = json!(self.info.api_version());
        object["kind"] = json!(self.info.kind);
        unknown.extend(self.schema.prune(object).into_iter().map(|path| format!("unknown field {path:?}")));
        unknown.extend(embedded::decode_metadata(&self.schema, object)?);
        numbers::normalize_integers(object);
        Ok(unknown)
    }

    fn type_ref(&self) -> Option<TypeRef<'_>> {
        Some(TypeRef { schema: &self.types, id: self.root })
    }

    fn supports_strategic_merge(&self) -> bool {
        false
    }

    fn set_defaults(&self, object: &mut Value) {
        self.schema.apply_defaults(object);
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

    fn reset_fields_filter(&self, target: WriteTarget) -> Filter {
        match target {
            WriteTarget::Status => Filter::only(&[&["status"]]),
            _ => crate::apply_types::reset_fields_filter(&self.info, target),
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
        self.validate_structure(object, Some(old), errors);
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

    fn supports_field(&self, field: &str) -> bool {
        self.selectable_fields.iter().any(|(name, _)| name == field)
    }

    fn unsupported_field_message(&self, field: &str) -> String {
        format!("field label not supported: {field}")
    }

    fn field_set(&self, object: &Value) -> BTreeMap<String, String> {
        let value = |path: &JsonPath| match path.find(object).first() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        self.selectable_fields.iter().map(|(name, path)| (name.clone(), value(path))).collect()
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

    fn conversion(&self) -> Option<&ConversionWebhook> {
        self.conversion.as_deref()
    }

    fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    fn cancellation_token(&self) -> Option<&CancellationToken> {
        Some(&self.cancellation)
    }

    fn is_stored_form(&self, revision: u64) -> bool {
        self.is_stored && !self.has_status_default && revision > self.since
    }

    fn from_storage(&self, object: &mut Map<String, Value>) {
        object.insert("apiVersion".to_owned(), json!(self.info.api_version()));
        let mut value = Value::Object(std::mem::take(object));
        self.prune_and_default(&mut value);
        if let Value::Object(shaped) = value {
            *object = shaped;
        }
    }

    fn to_storage(&self, object: &mut Map<String, Value>) {
        // A conversion webhook sets `apiVersion` itself.
        if self.conversion.is_none() {
            object.insert("apiVersion".to_owned(), json!(self.stored_as));
        }
    }
}
