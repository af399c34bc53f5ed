//! Versioned, durable, watchable object store.
//!
//! The store handles keys and opaque bytes, independent of Kubernetes. It guarantees:
//!
//! 1. **Durability.** [`Store::write`] resolves after the engine has synced the batch to disk; readers and watchers
//!    see durable state only.
//! 2. **Reads from memory.** [`Store::get`], [`Store::list`] and [`Store::list_at`] never access the disk.
//! 3. **One history.** Every successful write has its own [`Revision`]; revisions are global, grow by one, and are
//!    never reused, even after a crash.
//! 4. **One encoding.** The [`Template`] of a write is filled in with the revision of the write; the engine, readers
//!    and watchers share the result ([`Object`], [`Event`]).
//! 5. **Bounded memory.** Each resource has a watch cache of recent events; a watcher that falls behind it gets
//!    [`Expired`]. Objects have a quota: a write beyond it is refused ([`WriteError::NoSpace`]), a delete never is.
//!
//! # Path of a write
//!
//! `Store::write` queues it (bounded) → the writer thread takes all queued writes, checks each precondition against
//! memory and the batch so far, and assigns revisions (`batch_builder.rs`) → [`Engine::commit`] makes the batch
//! durable with one sync → `state.rs` publishes it to the objects and the watch caches, and notifies the watchers of
//! each affected scope once → the callers get their results.
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use store::{Precondition, Key, MemoryEngine, Options, Scope, Store, Template, Write};
//!
//! let store = Store::open(MemoryEngine::new(), Options::default())?;
//! let mut watch = store.watch(Scope::resource("pods"), store.revision())?;
//! let key = Key::new("pods", "default", "web");
//! let stored = store
//!     .write(Write::put(key.clone(), Precondition::Absent, Template::new(r#"{"rv":""}"#.into(), 7)))
//!     .await?;
//! assert_eq!(store.get(&key).map(|object| object.revision), Some(stored.revision));
//! assert_eq!(watch.next().await?.object.data, stored.data);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod batch_builder;
mod data;
mod engine;
mod error;
mod event;
mod key;
mod lazy_informer;
mod list;
mod object;
mod options;
mod quota;
mod state;
mod store;
mod transformer;
mod watch;
mod watch_cache;
mod watch_topics;
mod write;
mod writer;

pub use data::{Data, Template};
pub use engine::{
    Batch, BatchChange, CommitError, Engine, FjallEngine, FjallOptions, Head, MemoryEngine, TransformedEngine,
};
pub use error::{Expired, OpenError, UnreadableObject};
pub use event::{Event, EventKind};
pub use key::{Key, Scope};
pub use lazy_informer::{InformerUpdate, LazyInformer};
pub use list::List;
pub use object::{Object, Record};
pub use options::Options;
pub use quota::{QuotaAllowance, Usage};
pub use store::Store;
pub use transformer::{StoredForm, TransformError, Transformer};
pub use watch::Watch;
pub use write::{Precondition, Write, WriteError, WriteOperation};

/// Revision of the store: the number of a write, as etcd's.
///
/// An empty store is at revision 1 (Kubernetes gives `resourceVersion: "0"` a meaning of its own), so the first write
/// has revision 2.
pub type Revision = u64;
