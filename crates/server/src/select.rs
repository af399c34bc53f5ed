//! Which objects a client wants: label and field selectors.

use crate::{kinds::KindRef, request::Query, status::ApiError};
use api::selector::{FieldSelector, Selector};
use serde_json::Value;

/// Both selectors of a request.
pub(crate) struct Selection {
    kind: KindRef,
    labels: Selector,
    fields: FieldSelector,
}

impl Selection {
    pub(crate) fn parse(kind: &KindRef, query: &Query) -> Result<Self, ApiError> {
        let labels = Selector::parse(query.get("labelSelector").unwrap_or(""))
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        for (field, _, _) in &fields.terms {
            if !matches!(field.as_str(), "metadata.name" | "metadata.namespace") && !kind.selects(field) {
                return Err(ApiError::bad_request(kind.not_selectable(field)));
            }
        }
        Ok(Self { kind: kind.clone(), labels, fields })
    }

    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether nothing but the name is asked for, so that whatever has it is selected.
    pub(crate) fn is_name(&self) -> bool {
        self.labels.is_empty() && self.fields.terms.len() == 1 && self.name().is_some()
    }

    /// The name that objects must have, if they must have one: it is looked up, not searched for.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required("metadata.name")
    }

    /// The namespace that objects must be in, if they must be in one.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.fields.required("metadata.namespace")
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if !self.labels.matches(|key| metadata["labels"].get(key).and_then(Value::as_str)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let own = self.kind.selected(object);
        self.fields.matches(|field| match field {
            "metadata.name" => metadata["name"].as_str().unwrap_or("").to_owned(),
            "metadata.namespace" => metadata["namespace"].as_str().unwrap_or("").to_owned(),
            other => own.get(other).cloned().unwrap_or_default(),
        })
    }
}
