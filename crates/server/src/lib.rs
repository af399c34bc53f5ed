//! The API server: HTTP, authentication, authorization, admission, defaulting, validation, patches, watches, tables.
//!
//! **Invariant:** an object is encoded once, when it is written; GET, LIST and WATCH send those bytes.
//!
//! **Invariant:** every request gets a response in Kubernetes' form; no input panics the process.
#![forbid(unsafe_code)]

mod admission;
mod aggregation;
mod apf_controller;
mod api_server;
mod authentication;
mod authorization;
mod backend_connections;
mod backend_tls;
mod body_drain;
mod bootstrap;
mod compaction;
mod component_statuses;
mod compress;
mod content_negotiation;
mod conversion;
#[cfg(test)]
mod cost_tests;
mod create;
mod custom_resource_definitions;
mod deadline;
mod decode;
mod delete;
mod discovery;
mod encode;
mod escalation;
mod event_ttl;
mod eviction;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handler_chain;
mod health;
mod impersonation;
mod in_process;
mod ip_addresses;
mod kind_check;
mod large_object_cache;
mod large_requests;
mod legacy_token_tracking;
mod list_body;
mod list_options;
mod listener;
mod managed_fields;
mod managed_object;
mod meta_v1beta1;
mod metrics;
mod node_proxy;
mod node_stream;
mod object;
mod object_identity;
mod openapi;
mod openid_metadata;
mod patch;
mod pod_binding;
mod policy_params;
mod proxy;
mod read;
mod registry;
mod request_scope;
mod resolve_endpoint;
mod resource_metrics;
mod reverse_proxy;
mod reviews;
mod scale;
mod selectors;
mod server_side_apply;
mod service_allocation;
mod service_ranges;
mod static_pod;
mod storage_errors;
mod store_quota;
mod strict;
mod system_objects;
mod system_services;
#[cfg(test)]
mod test_server;
mod token_request;
mod update;
mod watch;
mod webhook;
mod websocket;
mod write;
mod write_coalescing;

pub use self::admission::{AdmissionPlugin, AdmissionPlugins, OverlappingPlugins, ParsePluginError};
pub use api_server::ApiServer;
pub use errors::ApiError;
pub use in_process::InProcessService;
pub use listener::{Connections, ListenOptions, PeerFilter, Timeouts, serve};
pub use node_proxy::{DialedStream, NodeDialer};
pub use request::UserInfo;
pub use static_pod::{InvalidStaticPod, prepare_static_pod};
pub use system_services::{API_IP, DNS_IP, SERVICE_RANGE};
