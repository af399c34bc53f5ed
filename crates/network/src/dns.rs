//! The cluster's name server, as the Kubernetes DNS specification has it: Services, endpoints of headless ones, ports
//! (SRV), and names of addresses. Other names are asked of the node's own resolvers.

mod answer;
mod bounds;
mod forward;
mod serve;
#[cfg(test)]
mod tests;
mod zone;

pub(crate) use forward::Forward;
pub(crate) use serve::{Listener, serve};
