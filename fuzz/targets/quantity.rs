//! Quantities: the canonical form is equal, and canonicalization is idempotent.
#![no_main]

use api::quantity::{Amount, canonical};
use libfuzzer_sys::fuzz_target;
use std::hint::black_box;

fuzz_target!(|text: &str| {
    let amount = Amount::parse(text);
    if let Ok(amount) = amount {
        black_box((amount.value(), amount.milli(), amount.saturating_add(amount).saturating_sub(amount)));
        black_box((amount.to_quantity(), amount.to_binary_quantity()));
    }
    if let Ok(form) = canonical(text) {
        // As with upstream, `62.5Ki` becomes `64000`, whose canonical form is `64k`.
        let again = canonical(&form);
        assert_eq!(again.as_ref().map(|form| canonical(form)), Ok(again.clone()), "{text:?}");
        assert_eq!(Amount::parse(&form), amount, "{text:?} {form:?}");
    }
});
