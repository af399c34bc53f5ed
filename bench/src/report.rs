//! What was measured, beside what upstream needs and what Podium must reach.

use std::{fmt::Write, time::Duration};

/// One row of the table.
pub(crate) struct Row {
    /// What was done.
    pub(crate) work: &'static str,
    /// Upstream 1.35-dev on such a machine.
    pub(crate) upstream: &'static str,
    /// What Podium must reach.
    pub(crate) goal: &'static str,
    /// What was measured.
    pub(crate) measured: String,
}

/// The table in Markdown, as docs/performance.md holds it.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| work | upstream | goal | measured |\n| --- | --- | --- | --- |\n");
    for row in rows {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} | {} | {} | {} |", row.work, row.upstream, row.goal, row.measured);
    }
    text
}

/// Milliseconds with two digits.
pub(crate) fn ms(d: Duration) -> String {
    format!("{:.2} ms", d.as_secs_f64() * 1e3)
}

/// The value below which this share of all values lies.
pub(crate) fn percentile(values: &mut [Duration], share: f64) -> Duration {
    values.sort();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into a list of measurements")]
    let index = (values.len().saturating_sub(1) as f64 * share) as usize;
    values.get(index).copied().unwrap_or_default()
}
