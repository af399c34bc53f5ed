//! Documents that describe the API: discovery, OpenAPI, and the metadata of token issuers.

pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod openid_metadata;
