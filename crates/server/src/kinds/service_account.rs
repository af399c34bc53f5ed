//! ServiceAccount.

use super::{AGE, Cell, Column, Kind, KindInfo, NAME, Subresource, text};

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

const COLUMNS: &[Column] = &[NAME, text("Secrets", Cell::Count("/secrets")), AGE];

impl Kind for ServiceAccount {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }
}
