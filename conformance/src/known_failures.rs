//! Known failures: `known-failures.txt` has a case and the reason on each line.

use anyhow::{Context, Result, bail};
use std::{collections::BTreeMap, path::Path};

/// Reasons by case.
pub(crate) type KnownFailures = BTreeMap<String, String>;

/// Reads a list. An unknown case is an error.
pub(crate) fn load(path: &Path, cases: &[String]) -> Result<KnownFailures> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let known = parse(&text)?;
    if let Some(unknown) = known.keys().find(|name| !cases.contains(name)) {
        bail!("{}: unknown case {unknown:?}", path.display());
    }
    Ok(known)
}

fn parse(text: &str) -> Result<KnownFailures> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(" | ").with_context(|| format!("no reason given: {line}"))?;
            Ok((name.trim().to_owned(), reason.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::parse;

    #[test]
    fn lines_have_a_case_and_its_reason() {
        let known = parse("# why\n\nreads: one | not done\n").unwrap();
        assert_eq!(known.get("reads: one").unwrap(), "not done");
        assert!(parse("reads: one").is_err());
    }
}
