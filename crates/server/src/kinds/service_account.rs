//! ServiceAccount.

use super::{Kind, KindInfo, Subresource};

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

impl Kind for ServiceAccount {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }
}
