//! Server-side apply (KEP-555): field ownership, and merging of applied configurations into objects.
//!
//! A [`Schema`] defines for each type whether its lists and maps are granular or atomic. With it, objects are
//! validated ([`mod@validate`]), merged ([`mod@merge`]), compared ([`mod@compare`]) and converted to field sets ([`mod@field_set`]).
//! [`update`] and [`apply`] combine these operations: they compute how a write changes an object and its
//! `metadata.managedFields` ([`ManagedFields`]). The semantics are those of structured-merge-diff v6 and of the field
//! manager in `k8s.io/apimachinery/pkg/util/managedfields`.
//!
//! Pure: the clock is an argument, conversion between API versions is a trait ([`Converter`]).
#![forbid(unsafe_code)]

mod atomic_fields;
mod compare;
mod conflict;
mod field_set;
mod last_applied;
mod list_item_key;
mod managed_fields;
mod merge;
mod path;
mod path_element;
mod prune;
mod reconcile_field_set;
mod remove;
mod reset_fields;
mod scale_handler;
mod schema;
mod set;
mod type_error;
mod updater;
mod validate;
mod value;

pub use atomic_fields::atomic_fields;
pub use compare::{Comparison, compare};
pub use conflict::{Conflict, Conflicts};
pub use field_set::field_set;
pub use managed_fields::{ManagedFields, ManagedFieldsEntry, ManagedFieldsError, Operation, StructOrderManagedFields};
pub use merge::merge;
pub use path::Path;
pub use path_element::{PathElement, PathElementError};
pub use remove::remove;
pub use reset_fields::{FieldPattern, Filter, PatternStep};
pub use scale_handler::ScaleHandler;
pub use schema::{Field, List, ListType, Map, Scalar, Schema, Type, TypeId, TypeRef};
pub use set::Set;
pub use type_error::TypeError;
pub use updater::{ApplyError, ApplyResult, Converter, Request, apply, update};
pub use validate::{Duplicates, validate};
