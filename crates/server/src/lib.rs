//! The API server: HTTP, authentication, authorization, admission, defaulting, validation, patches, watches, tables.
//!
//! **Invariant:** an object is encoded once, when it is written; GET, LIST and WATCH send those bytes.
//!
//! **Invariant:** whatever a client sends, there is an answer in Kubernetes' own form; nothing panics the process.
#![forbid(unsafe_code)]

mod accept;
mod admit;
mod aggregation;
mod audit;
mod authz;
mod bootstrap;
mod compaction;
mod component_statuses;
mod compress;
mod convert;
#[cfg(test)]
mod costs;
mod create;
mod deadline;
mod decode;
mod definitions;
mod delete;
mod discovery;
mod duration;
mod encode;
mod endpoints;
mod events;
mod eviction;
mod flow;
mod followed;
mod form;
mod forward;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod health;
mod identity;
mod indent;
mod ip_addresses;
mod json_order;
pub mod kinds;
mod large;
mod list_body;
mod list_options;
mod listen;
mod live;
mod local;
mod managed;
mod metadata;
mod metrics;
mod named;
mod node_proxy;
mod node_stream;
mod object;
mod openapi;
mod outline;
mod own_objects;
mod own_services;
mod patch;
mod pki;
mod pods;
mod protobuf;
mod proxy;
mod read;
mod recent;
mod registry;
mod reply;
mod request;
mod resource_metrics;
mod reviews;
mod scale;
mod select;
mod server_side_apply;
mod service;
mod service_ranges;
mod services;
mod shape_version;
mod static_pod;
mod status;
mod store_quota;
mod strict;
#[cfg(test)]
mod test_server;
mod tokens;
mod trust;
mod typed;
mod unread;
mod update;
mod upstreams;
mod user;
mod watch;
mod way;
mod webhook;
mod websocket;
mod write;

pub use admit::{AdmissionPlugin, AdmissionPlugins};
pub use aggregation::FrontProxy;
pub use audit::{AuditLog, AuditPolicy, AuditPolicyError, AuditRotation, OpenLog};
pub use listen::{Connections, ListenOptions, PeerFilter, Timeouts, serve};
pub use local::Local;
pub use node_proxy::{DialedStream, NodeDialer};
pub use own_services::{API_IP, DNS_IP, SERVICE_RANGE};
pub use pki::{Authority, Clock, Pki, PkiError, ServerTls, is_admin_kubeconfig};
pub use reply::{Body, BoxError};
pub use service::ApiServer;
pub use static_pod::prepare_static_pod;
pub use status::ApiError;
pub use tokens::{SigningKey, TokenFile, TokenFileError, TokenLifetime};
pub use user::UserInfo;
