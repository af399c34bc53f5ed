//! Requests to other servers: kubelets, webhooks, and extension API servers.

pub(crate) mod backend_connections;
pub(crate) mod backend_tls;
pub(crate) mod node_dialer;
pub(crate) mod resolve_endpoint;
pub(crate) mod reverse_proxy;
pub(crate) mod webhook;
