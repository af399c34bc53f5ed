//! Budget of one JSON patch: limits the total cost of its operations.

/// Bytes that all `copy` operations of one patch may add (upstream's `AccumulatedCopySizeLimit`).
const MAX_COPIED: usize = 3 << 20;
/// Array elements that all insertions and removals of one patch may shift. It allows 10,000 operations on the front of an
/// array of 6,000 elements; shifting 64 Mi elements takes a fraction of a second.
const MAX_SHIFTED: usize = 64 << 20;

/// A patch exceeds its budget.
#[derive(Debug, thiserror::Error)]
pub(super) enum BudgetExceeded {
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {0}, exceeding the limit {MAX_COPIED}"
    )]
    Copied(usize),
    #[error(
        "Unable to change the array, the accumulated number of shifted elements is {0}, exceeding the limit {MAX_SHIFTED}"
    )]
    Shifted(usize),
}

/// The costs so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    copied: usize,
    shifted: usize,
}

impl Budget {
    /// Charges a copy of this many bytes.
    pub(super) fn copy(&mut self, bytes: usize) -> Result<(), BudgetExceeded> {
        self.copied = self.copied.saturating_add(bytes);
        let copied = self.copied;
        if copied <= MAX_COPIED {
            return Ok(());
        }
        Err(BudgetExceeded::Copied(copied))
    }

    /// Charges an insertion or removal that shifts this many elements of an array.
    pub(super) fn shift(&mut self, elements: usize) -> Result<(), BudgetExceeded> {
        self.shifted = self.shifted.saturating_add(elements);
        let shifted = self.shifted;
        if shifted <= MAX_SHIFTED {
            return Ok(());
        }
        Err(BudgetExceeded::Shifted(shifted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_shared_by_all_operations() {
        let mut budget = Budget::default();
        assert!(budget.shift(MAX_SHIFTED).is_ok());
        assert!(budget.shift(0).is_ok());
        assert!(budget.shift(1).unwrap_err().to_string().contains("exceeding the limit"));
        assert!(budget.copy(MAX_COPIED).is_ok());
        assert!(budget.copy(usize::MAX).is_err());
    }
}
