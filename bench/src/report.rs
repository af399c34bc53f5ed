//! The table of results, with upstream's numbers and Podium's goals.

use std::{fmt::Write, time::Duration};

/// One row of the table.
pub(crate) struct Row {
    /// The workload.
    pub(crate) work: &'static str,
    /// Result of upstream 1.35-dev on such a machine.
    pub(crate) upstream: &'static str,
    /// Podium's goal.
    pub(crate) goal: &'static str,
    /// Podium's result.
    pub(crate) measured: String,
}

/// Formats the Markdown table of docs/performance.md.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| work | upstream | goal | measured |\n| --- | --- | --- | --- |\n");
    for row in rows {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} | {} | {} | {} |", row.work, row.upstream, row.goal, row.measured);
    }
    text
}

/// Formats milliseconds with two digits.
pub(crate) fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

/// Returns a percentile; `share` is between 0 and 1.
pub(crate) fn percentile(values: &mut [Duration], share: f64) -> Duration {
    values.sort();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a list of measurements")]
    let index = (values.len().saturating_sub(1) as f64 * share) as usize;
    values.get(index).copied().unwrap_or_default()
}
