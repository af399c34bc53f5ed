//! Fields that another manager owns, with another value.

use crate::{managers::Entry, path::Path};
use std::fmt;

/// A field that was applied with another value than that of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, as messages name it: `"kubectl-edit" using v1`.
    pub manager: String,
    /// The field.
    pub path: Path,
}

/// How many bytes of conflicts are shown.
const MAX_TEXT: usize = 1 << 20;

/// All conflicts of one apply, by manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// What an apply would take from each of these; by the identity of the manager, as upstream sorts them.
    pub(crate) fn of(mut owners: Vec<(&Entry, Vec<Path>)>) -> Self {
        owners.sort_by_cached_key(|(entry, _)| entry.identifier());
        let all = owners.into_iter().flat_map(|(entry, paths)| {
            let manager = entry.display_name();
            paths.into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        });
        Self(all.collect())
    }

    /// The conflicts that are shown, each with its path: all until these take 1 MiB.
    pub fn shown(&self) -> impl Iterator<Item = (&Conflict, String)> {
        let mut bytes = 0;
        self.0.iter().map_while(move |conflict| {
            let path = (bytes <= MAX_TEXT).then(|| conflict.path.to_string())?;
            bytes += path.len() + conflict.manager.len();
            Some((conflict, path))
        })
    }
}

/// In upstream's words, which kubectl looks at.
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
