//! ServiceAccount.

use super::{AGE, Column, Kind, KindInfo, NAME, Subresource};
use serde_json::Value;

/// Annotation that restricts the Pods of a ServiceAccount to its own Secrets.
pub const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

pub(super) struct ServiceAccount;

static INFO: KindInfo = KindInfo {
    short_names: &["sa"],
    subresources: &[Subresource {
        name: "token",
        group: "authentication.k8s.io",
        version: "v1",
        kind: "TokenRequest",
        verbs: &["create"],
    }],
    ..KindInfo::core("ServiceAccount", "serviceaccounts", "serviceaccount")
};

const COLUMNS: &[Column] = &[NAME, AGE];

impl Kind for ServiceAccount {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let annotated = |object: &Value| !object["metadata"]["annotations"][ENFORCE_MOUNTABLE_SECRETS].is_null();
        let is_new = annotated(object) && !old.is_some_and(annotated);
        let detail = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        is_new.then(|| format!("metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: {detail}")).into_iter().collect()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}
