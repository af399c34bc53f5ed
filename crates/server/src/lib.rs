//! The API server: HTTP, authentication, authorization, admission, defaulting, validation, patches, watches, tables.
//!
//! **Invariant:** an object is encoded once, when it is written; GET, LIST and WATCH send those bytes.
//!
//! **Invariant:** every request gets a response in Kubernetes' form; no input panics the process.
#![forbid(unsafe_code)]

mod admission;
mod aggregation;
mod api_server;
#[cfg(test)]
mod cost_tests;
mod customresources;
mod documents;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handler_chain;
mod health;
mod http;
mod in_process;
mod ip_allocator;
mod metrics;
mod objects;
mod post_start_hooks;
mod proxy;
mod registry;
mod rest;
mod serve;
mod static_pod;
#[cfg(test)]
mod test_server;

pub use self::admission::{AdmissionPlugin, AdmissionPlugins, OverlappingPlugins, ParsePluginError};
pub use self::http::listener::{Connections, ListenOptions, PeerFilter, Timeouts};
pub use self::ip_allocator::service_ranges::{API_IP, DNS_IP, SERVICE_RANGE};
pub use self::proxy::node_dialer::{DialedStream, NodeDialer};
pub use api_server::ApiServer;
pub use errors::ApiError;
pub use in_process::InProcessService;
pub use request::UserInfo;
pub use serve::serve;
pub use static_pod::{InvalidStaticPod, prepare_static_pod};
