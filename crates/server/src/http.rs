//! Connections and their requests and responses: listener, TLS, and the filters of the handler chain that need no kinds.

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod body_drain;
pub(crate) mod clock;
pub(crate) mod compress;
pub(crate) mod content_negotiation;
pub(crate) mod deadline;
pub(crate) mod impersonation;
pub(crate) mod listener;
pub(crate) mod loopback_client;
pub(crate) mod meta_v1beta1;
pub(crate) mod request_body;
pub(crate) mod request_handler;
pub(crate) mod upgrade;
pub(crate) mod websocket;
pub(crate) mod write_coalescing;
