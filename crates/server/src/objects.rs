//! Objects between request and store: the kind that a path names, decoding, strict validation, patches, field managers,
//! conversion, encoding, and responses.

pub(crate) mod call;
pub(crate) mod conversion;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod generated_name;
pub(crate) mod kind_check;
pub(crate) mod kind_registry;
pub(crate) mod large_object_cache;
pub(crate) mod list_options;
pub(crate) mod managed_fields;
pub(crate) mod managed_object;
pub(crate) mod object;
pub(crate) mod object_identity;
pub(crate) mod patch;
pub(crate) mod request_scope;
pub(crate) mod selectors;
pub(crate) mod storage_errors;
pub(crate) mod strict;
pub(crate) mod write;
