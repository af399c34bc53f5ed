//! Cluster DNS server, after the Kubernetes DNS specification: Services, endpoints of headless Services, ports (SRV),
//! and reverse lookups (PTR). Other names are forwarded to the node's resolvers.

mod answer;
mod bounds;
mod forward;
mod serve;
#[cfg(test)]
mod tests;
mod zone;

pub(crate) use forward::Forward;
pub(crate) use serve::{Listener, serve};
