//! Label and field selectors of requests.

use crate::objects::object;
use api::selector::{FieldSelector, LabelRequirements};
use errors::ApiError;
use kinds::KindRef;
use request::Query;
use serde_json::Value;
use store::Object;
use wire::partial_json::Outline;

/// The label and field selector of a request.
pub(crate) struct Selection {
    kind: KindRef,
    labels: LabelRequirements,
    fields: FieldSelector,
    /// The fields that the selectors read, if they are known.
    outline: Option<Outline>,
}

impl Selection {
    pub(crate) fn parse(kind: &KindRef, query: &Query) -> Result<Self, ApiError> {
        let labels = LabelRequirements::parse(query.get("labelSelector").unwrap_or(""))
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let mut fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""))
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        for (field, _, _) in &mut fields.terms {
            *field = kind.convert_field_label(field).to_owned();
            let is_known = match field.as_str() {
                "metadata.name" => true,
                "metadata.namespace" => kind.supports_namespace_field(),
                other => kind.supports_field(other),
            };
            if !is_known {
                return Err(ApiError::bad_request(kind.unsupported_field_message(field)));
            }
        }
        let outline = outline(kind, &labels, &fields);
        Ok(Self { kind: kind.clone(), labels, fields, outline })
    }

    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether only the name is selected, so that the object of the name always matches.
    pub(crate) fn is_name(&self) -> bool {
        self.labels.is_empty() && self.fields.terms.len() == 1 && self.name().is_some()
    }

    /// Returns the required name, which is looked up instead of listed.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required("metadata.name")
    }

    /// Returns the required namespace.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.fields.required("metadata.namespace")
    }

    /// Whether a stored object matches. It is not converted by a webhook.
    pub(crate) fn matches_stored(&self, object: &Object) -> bool {
        match &self.outline {
            Some(outline) if self.kind.is_stored_form(object.revision) => self.matches(&outline.read(&object.data)),
            _ => self.matches(&object::decode(&*self.kind, object)),
        }
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        if !self.labels.matches(|key| metadata["labels"].get(key).and_then(Value::as_str)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let fields = self.kind.field_set(object);
        self.fields.matches(|field| match field {
            "metadata.name" => metadata["name"].as_str().unwrap_or("").to_owned(),
            "metadata.namespace" => metadata["namespace"].as_str().unwrap_or("").to_owned(),
            other => fields.get(other).cloned().unwrap_or_default(),
        })
    }
}

/// Returns the fields that the selectors read. Field selectors of built-in kinds are paths; those of custom kinds are not.
fn outline(kind: &KindRef, labels: &LabelRequirements, fields: &FieldSelector) -> Option<Outline> {
    let mut outline = Outline::default();
    outline.add(["metadata", "name"].into_iter());
    outline.add(["metadata", "namespace"].into_iter());
    if !labels.is_empty() {
        outline.add(["metadata", "labels"].into_iter());
    }
    for (field, _, _) in &fields.terms {
        if kind.is_custom() && !field.starts_with("metadata.") {
            return None;
        }
        outline.add(field.split('.'));
        kind.field_dependencies(field).iter().for_each(|beside| outline.add(beside.split('.')));
    }
    Some(outline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::ALL;
    use serde_json::json;

    /// Returns an object with a value at a path.
    fn with(path: &str, value: Value) -> Value {
        path.rsplit('.').fold(value, |below, name| json!({ name: below }))
    }

    #[test]
    fn selectors_match_outline_as_whole_object() {
        for kind in ALL {
            for field in kind.selectable_fields() {
                for value in [json!("v"), json!(true), json!({"component": "c"}), json!(null)] {
                    let object = with(field, value);
                    let fields = FieldSelector { terms: vec![((*field).to_owned(), String::new(), true)] };
                    let outline = outline(&KindRef::BuiltIn(*kind), &LabelRequirements::default(), &fields).unwrap();
                    let part = outline.read(object.to_string().as_bytes());
                    let found = |object: &Value| kind.field_set(object).get(*field).cloned();
                    assert_eq!(found(&part), found(&object), "{} {field}", kind.info().kind);
                }
            }
        }
    }
}
