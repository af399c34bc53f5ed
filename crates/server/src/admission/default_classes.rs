//! The `DefaultStorageClass` and `DefaultIngressClass` admission plugins.

use super::plugin::{AdmittedWrite, Plugin};
use auth::stored_object;
use errors::ApiError;
use serde_json::{Value, json};
use std::cmp::Reverse;
use store::{Scope, Store};

/// A kind of class, its default annotation, and the fields that name a class.
struct ClassKind {
    resource: &'static str,
    /// Annotation of the default class.
    default_annotation: &'static str,
    /// Field of the spec that names the class.
    field: &'static str,
    /// Deprecated annotation that names the class.
    annotation: &'static str,
}

const STORAGE: ClassKind = ClassKind {
    resource: "storageclasses",
    default_annotation: "storageclass.kubernetes.io/is-default-class",
    field: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
};
const INGRESS: ClassKind = ClassKind {
    resource: "ingressclasses",
    default_annotation: "ingressclass.kubernetes.io/is-default-class",
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
};

/// Sets the default class of new claims.
pub(super) struct DefaultStorageClass;

impl Plugin for DefaultStorageClass {
    fn name(&self) -> &'static str {
        "DefaultStorageClass"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("", "PersistentVolumeClaim") {
            STORAGE.set_default(&write.control.store, object);
        }
        Ok(())
    }
}

/// Sets the default class of new Ingresses.
pub(super) struct DefaultIngressClass;

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn admit(&self, write: &AdmittedWrite<'_>, object: &mut Value) -> Result<(), ApiError> {
        if write.creates("networking.k8s.io", "Ingress") {
            INGRESS.set_default(&write.control.store, object);
        }
        Ok(())
    }
}

impl ClassKind {
    /// Sets the default class of an object that names none. An empty name means no class.
    fn set_default(&self, store: &Store, object: &mut Value) {
        if !object["spec"][self.field].is_null() || !object["metadata"]["annotations"][self.annotation].is_null() {
            return;
        }
        if let Some(name) = self.default_class(store) {
            object["spec"][self.field] = json!(name);
        }
    }

    /// Returns the name of the newest default class; of equally new ones, the first by name.
    fn default_class(&self, store: &Store) -> Option<String> {
        let classes = stored_object::list::<Value>(store, &Scope::resource(self.resource));
        let defaults = classes.filter(|class| class["metadata"]["annotations"][self.default_annotation] == "true");
        let text = |class: &Value, field: &str| class["metadata"][field].as_str().unwrap_or("").to_owned();
        let first = defaults.min_by_key(|class| (Reverse(text(class, "creationTimestamp")), text(class, "name")))?;
        Some(text(&first, "name"))
    }
}
