//! Versioned, durable, watchable objects.
//!
//! The store knows keys and opaque bytes, and nothing of Kubernetes. It keeps five promises:
//!
//! 1. **Acknowledged means durable.** [`Store::write`] resolves after the engine has synced the batch to disk, and
//!    no reader or watcher ever sees what is not durable.
//! 2. **Memory is the source of reads.** [`Store::get`], [`Store::list`] and [`Store::list_at`] never touch the disk.
//! 3. **One history.** Every successful write has its own [`Revision`]; revisions are global, grow by one, and are
//!    never used twice, whatever crashes.
//! 4. **Bytes are encoded once.** A write's [`Template`] is filled in with the revision that the write has, and the
//!    engine and every reader and watcher share the result ([`Object`], [`Event`]).
//! 5. **Memory is bounded.** Recent events live in a window per resource; who falls out of it is told so ([`Expired`]).
//!    Objects have a quota; a write beyond it is refused ([`WriteError::NoSpace`]), a delete never is.
//!
//! # A write's way
//!
//! `Store::write` queues it (bounded) → the writer thread takes all queued writes, checks each expectation against
//! memory and what the batch has done so far, and assigns revisions (`draft.rs`) → [`Engine::commit`] makes
//! the batch durable with one sync → `state.rs` publishes it to the map and the windows, and wakes the watchers of
//! each touched resource once → the callers get their answers.
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use store::{Expect, Key, MemoryEngine, Options, Scope, Store, Template, Write};
//!
//! let store = Store::open(MemoryEngine::new(), Options::default())?;
//! let mut watch = store.watch(Scope::resource("pods"), store.revision())?;
//! let key = Key::new("pods", "default", "web");
//! let stored = store
//!     .write(Write::put(key.clone(), Expect::Absent, Template::new(r#"{"rv":""}"#.into(), 7)))
//!     .await?;
//! assert_eq!(store.get(&key).map(|object| object.revision), Some(stored.revision));
//! assert_eq!(watch.next().await?.object.data, stored.data);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod data;
mod draft;
mod engine;
mod error;
mod event;
mod key;
mod list;
mod object;
mod options;
mod quota;
mod state;
mod store;
mod topics;
mod transformer;
mod watch;
mod window;
mod write;
mod writer;

pub use data::{Data, Template};
pub use engine::{
    Batch, BatchChange, CommitError, Engine, FjallEngine, FjallOptions, Head, MemoryEngine, TransformedEngine,
};
pub use error::{Expired, OpenError, UnreadableObject};
pub use event::{Event, EventKind};
pub use key::{Key, Scope};
pub use list::Listing;
pub use object::{Object, Record};
pub use options::Options;
pub use quota::{Allowance, Usage};
pub use store::Store;
pub use transformer::{StoredForm, TransformError, Transformer};
pub use watch::Watch;
pub use write::{Change, Expect, Write, WriteError};

/// A point in the store's history: the number of the write that made it.
///
/// An empty store is at revision 1 (Kubernetes gives `resourceVersion: "0"` a meaning of its own), so the first
/// write has revision 2.
pub type Revision = u64;
