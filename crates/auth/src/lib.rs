//! Who a client is, and what it may do: certificates and their authorities ([`pki`]), bearer tokens ([`tokens`]), and
//! authorization by RBAC and for nodes ([`authorization`]). [`stored_object`] reads the objects that they need.
//!
//! Knows no HTTP handler: it reads objects from the store.
#![forbid(unsafe_code)]

pub mod authorization;
pub mod pki;
pub mod stored_object;
pub mod tokens;
