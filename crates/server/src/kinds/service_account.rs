//! ServiceAccount.

use super::{Kind, KindInfo};

pub(super) struct ServiceAccount;

static INFO: KindInfo =
    KindInfo { short_names: &["sa"], ..KindInfo::core("ServiceAccount", "serviceaccounts", "serviceaccount") };

impl Kind for ServiceAccount {
    fn info(&self) -> &'static KindInfo {
        &INFO
    }
}
