//! Informers: lists and watches of API objects, and shared caches of them (client-go's `tools/cache`).
#![forbid(unsafe_code)]

mod reflector;
mod shared_informer;

pub use reflector::{WatchEvent, watch, watch_lean, watch_while_served};
pub use shared_informer::{CacheEvent, Cached, SharedInformer, key};
