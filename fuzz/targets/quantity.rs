//! Quantities: the canonical form is one of itself and means the same.
#![no_main]

use api::quantity::{Amount, canonical};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let amount = Amount::parse(text);
    if let Ok(amount) = amount {
        amount.value();
        amount.milli();
        amount.plus(amount).minus(amount);
        amount.to_quantity();
        amount.to_binary_quantity();
    }
    if let Ok(form) = canonical(text) {
        assert_eq!(canonical(&form).as_ref(), Ok(&form), "{text:?}");
        assert_eq!(Amount::parse(&form), amount, "{text:?} {form:?}");
    }
});
