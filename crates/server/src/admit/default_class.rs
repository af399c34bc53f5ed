//! The `DefaultStorageClass` and `DefaultIngressClass` admissions: what names no class gets the one that is marked for it.

use crate::ApiServer;
use serde_json::{Value, json};
use std::cmp::Reverse;
use store::Scope;

/// Where classes are, and how one says that it is for all that name none.
struct Classes {
    resource: &'static str,
    mark: &'static str,
    /// Where the class is named, in the spec and, as it was before, in an annotation.
    field: &'static str,
    annotation: &'static str,
}

const STORAGE: Classes = Classes {
    resource: "storageclasses",
    mark: "storageclass.kubernetes.io/is-default-class",
    field: "storageClassName",
    annotation: "volume.beta.kubernetes.io/storage-class",
};
const INGRESS: Classes = Classes {
    resource: "ingressclasses",
    mark: "ingressclass.kubernetes.io/is-default-class",
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
};

/// Gives a new PersistentVolumeClaim its class.
pub(crate) fn admit_claim(server: &ApiServer, claim: &mut Value) {
    STORAGE.give(server, claim);
}

/// Gives a new Ingress its class.
pub(crate) fn admit_ingress(server: &ApiServer, ingress: &mut Value) {
    INGRESS.give(server, ingress);
}

impl Classes {
    /// An empty name is one, too: that of no class.
    fn give(&self, server: &ApiServer, object: &mut Value) {
        if !object["spec"][self.field].is_null() || !object["metadata"]["annotations"][self.annotation].is_null() {
            return;
        }
        if let Some(name) = self.default(server) {
            object["spec"][self.field] = json!(name);
        }
    }

    /// Of several the newest, and of several that are as new the first by name.
    fn default(&self, server: &ApiServer) -> Option<String> {
        let all = server.store.list(&Scope::resource(self.resource), None, None).objects;
        let classes = all.iter().filter_map(|stored| serde_json::from_slice::<Value>(&stored.data).ok());
        let marked = classes.filter(|class| class["metadata"]["annotations"][self.mark] == "true");
        let text = |class: &Value, field: &str| class["metadata"][field].as_str().unwrap_or("").to_owned();
        let first = marked.min_by_key(|class| (Reverse(text(class, "creationTimestamp")), text(class, "name")))?;
        Some(text(&first, "name"))
    }
}
