//! Label and field selectors: parsing and matching never panic.
#![no_main]

use api::selector::{FieldSelector, LabelRequirements};
use libfuzzer_sys::fuzz_target;
use std::hint::black_box;

fuzz_target!(|text: &str| {
    if let Ok(selector) = LabelRequirements::parse(text) {
        for value in [None, Some(""), Some("a"), Some("7"), Some(text)] {
            black_box(selector.matches(|_| value));
        }
        assert!(selector.is_empty() || !text.trim().is_empty());
    }
    if let Ok(selector) = FieldSelector::parse(text) {
        // An object with exactly the values of all terms is selected, unless terms contradict each other.
        let equal = selector.terms.iter().all(|(_, _, equal)| *equal);
        let alone = selector.terms.len() == 1;
        if equal && alone {
            assert!(selector.matches(|field| selector.required(field).unwrap_or_default().to_owned()));
        }
    }
});
