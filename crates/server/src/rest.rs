//! The generic registry: get, list, watch, create, update, patch, apply, and delete, for all kinds
//! (`k8s.io/apiserver/pkg/registry/generic`).

pub(crate) mod compaction;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod escalation;
pub(crate) mod generic_registry;
pub(crate) mod large_requests;
pub(crate) mod list_body;
pub(crate) mod policy_params;
pub(crate) mod read;
pub(crate) mod scale;
pub(crate) mod server_side_apply;
pub(crate) mod store_quota;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write_authorization;
