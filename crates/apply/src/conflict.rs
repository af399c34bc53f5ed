//! Conflicts with other field managers.

use crate::{managed_fields::ManagedFieldsEntry, path::Path};
use std::fmt;

/// A field that is owned by another manager with a different value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The display name of the owner: `"kubectl-edit" using v1`.
    pub manager: String,
    /// The field.
    pub path: Path,
}

/// Maximum size of the listed conflicts, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// All conflicts of one apply, by manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// Creates conflicts from the fields that an apply would take from other managers, sorted by manager as upstream does.
    pub(crate) fn of(mut owners: Vec<(&ManagedFieldsEntry, Vec<Path>)>) -> Self {
        owners.sort_by_cached_key(|(entry, _)| entry.identifier());
        let all = owners.into_iter().flat_map(|(entry, paths)| {
            let manager = entry.display_name();
            paths.into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        });
        Self(all.collect())
    }

    /// Returns the conflicts to list, with their paths, up to 1 MiB.
    pub fn shown(&self) -> impl Iterator<Item = (&Conflict, String)> {
        let mut bytes = 0;
        self.0.iter().map_while(move |conflict| {
            let path = (bytes <= MAX_BYTES).then(|| conflict.path.to_string())?;
            bytes += path.len() + conflict.manager.len();
            Some((conflict, path))
        })
    }
}

/// Upstream's message, which kubectl parses.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last: Option<&str> = None;
        for (conflict, path) in self.shown() {
            if last != Some(&conflict.manager) {
                let start = if last.is_some() { "\n" } else { "" };
                write!(f, "{start}conflicts with {}:", conflict.manager)?;
                last = Some(&conflict.manager);
            }
            write!(f, "\n- {path}")?;
        }
        Ok(())
    }
}
