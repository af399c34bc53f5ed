//! Server-side apply (KEP-555): who owns which field of an object, and what an applied configuration makes of it.
//!
//! A [`Schema`] says of each type whether its lists and maps are merged or taken as a whole. With it, objects are
//! checked ([`validate`]), merged ([`merge`]), compared ([`compare`]) and turned into sets of fields ([`field_set`]).
//! [`update`] and [`apply`] put these together: they decide what a write does to an object and to its
//! `metadata.managedFields` ([`Managers`]). The semantics are those of structured-merge-diff v6 and of Kubernetes' field
//! manager around it.
//!
//! Pure: the clock is an argument, conversion between API versions is a trait ([`Versions`]).
#![forbid(unsafe_code)]

mod atomics;
mod compare;
mod conflict;
mod element;
mod field_set;
mod filter;
mod identity;
mod last_applied;
mod managers;
mod merge;
mod ownership;
mod part;
mod path;
mod prune;
mod reconcile;
mod remove;
mod schema;
mod set;
mod typed;
mod validate;
mod value;

pub use atomics::atomics;
pub use compare::{Comparison, compare};
pub use conflict::{Conflict, Conflicts};
pub use element::{Element, ElementError};
pub use field_set::field_set;
pub use filter::{Filter, Pattern, Step};
pub use managers::{Entry, Managers, ManagersError, Operation, StructOrder};
pub use merge::merge;
pub use ownership::{Applied, ApplyError, Request, Versions, apply, update};
pub use part::Part;
pub use path::Path;
pub use remove::remove;
pub use schema::{Field, List, ListType, Map, Scalar, Schema, Type, TypeId, TypeRef};
pub use set::Set;
pub use typed::TypeError;
pub use validate::{Duplicates, validate};
