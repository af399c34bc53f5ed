//! Who a client is, and what it may do: certificates and their authorities ([`pki`]), bearer tokens ([`tokens`]), and
//! authorization by RBAC and for nodes ([`authorization`]).
//!
//! Knows no HTTP handler: it reads objects from the store.
#![forbid(unsafe_code)]

pub mod authorization;
pub mod pki;
pub mod tokens;

use serde_json::Value;
use store::{Key, Store};

/// Returns a stored object.
fn get_object(store: &Store, resource: &'static str, namespace: &str, name: &str) -> Option<Value> {
    let found = store.get(&Key::new(resource, namespace, name))?;
    serde_json::from_slice(&found.data).ok()
}
