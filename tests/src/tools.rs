//! Paths of programs that `cargo xtask setup` fetched.

use std::path::PathBuf;

/// Returns the path of a program, for example `kubectl-1.35`.
///
/// # Panics
/// When the program was not fetched.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    fetched_tool(name).unwrap_or_else(|| panic!("there is no {name}: cargo xtask setup"))
}

/// Returns the path of a program, if it was fetched.
#[must_use]
pub fn fetched_tool(name: &str) -> Option<PathBuf> {
    let binary = crate::podium_binary();
    binary.ancestors().map(|dir| dir.join("tools").join(name)).find(|found| found.exists())
}
