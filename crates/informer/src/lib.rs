//! Informers: lists and watches of API objects, and shared caches of them (client-go's `tools/cache`).
//!
//! - [`watch`] is the reflector: it lists, watches from the list's `resourceVersion`, which events and bookmarks
//!   advance, resumes there after a disconnection, and lists again after 410 and every ten minutes.
//! - [`SharedInformer`] caches a view of each object and tells its subscribers what has changed.
//! - [`SharedInformerFactory`] keeps one informer for each view of a kind in a process.
#![forbid(unsafe_code)]

mod factory;
pub mod pod_summary;
mod reflector;
mod shared_informer;

pub use factory::{SharedInformerFactory, View};
pub use reflector::{WatchEvent, watch, watch_lean, watch_while_served};
pub use shared_informer::{CacheEvent, Cached, SharedInformer, key};
