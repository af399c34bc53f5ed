//! Information about a request, without its body: [`RequestInfo`], [`Attributes`] for authorization, and the
//! [user](UserInfo) (upstream's `apiserver/pkg/endpoints/request` and `apiserver/pkg/authentication/user`).
//!
//! Pure: no I/O, no clock, no randomness.
#![forbid(unsafe_code)]

mod attributes;
mod authorization;
mod path;
mod query;
mod request_info;
pub mod user;

pub use attributes::{Attributes, RequestTarget, ResourceAttributes, field_requirements, is_long_running};
pub use authorization::{Decision, non_resource_url_matches};
pub use query::Query;
pub use request_info::{RequestInfo, ResourcePath};
pub use user::UserInfo;
