//! Validation of PriorityLevelConfigurations (`ValidatePriorityLevelConfiguration`).

use super::validate_mandatory_object;
use crate::{FieldErrors, field_cursor::FieldCursor, flow_control::bootstrap};
use serde_json::Value;

/// Maximum number of queues of a level.
const MAX_QUEUES: i64 = 10_000_000;
/// Number of hash bits for shuffle sharding (`shufflesharding.MaxHashBits`).
const MAX_HASH_BITS: f64 = 60.0;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let cursor = FieldCursor::object(object);
    let (metadata, spec) = (cursor.at("metadata"), cursor.at("spec"));
    let (level_type, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    // Only the level `exempt` can be exempt.
    if (metadata.at("name").text() == "exempt") != (level_type.text() == "Exempt") {
        level_type.invalid("must be 'Exempt' if and only if `name` is 'exempt'", errors);
    }
    match level_type.text() {
        "Exempt" => {
            if limited.is_set() {
                limited.forbidden("must be nil if the type is not Limited", errors);
            }
            validate_shares(&exempt, errors);
            validate_lendable_percent(&exempt, errors);
        }
        "Limited" => {
            if exempt.is_set() {
                exempt.forbidden("must be nil if the type is Limited", errors);
            }
            if limited.is_null() {
                limited.required("must not be empty when type is Limited", errors);
            } else {
                self::validate_limited(&limited, errors);
            }
        }
        _ => level_type.not_supported(&["Exempt", "Limited"], errors),
    }
    validate_mandatory_object(object, &bootstrap::mandatory().1, errors);
}

fn validate_shares(limits: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let shares = limits.at("nominalConcurrencyShares");
    if shares.integer().is_some_and(|n| n < 0) {
        shares.invalid("must be a non-negative integer", errors);
    }
}

fn validate_lendable_percent(limits: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let percent = limits.at("lendablePercent");
    if percent.integer().is_some_and(|n| !(0..=100).contains(&n)) {
        percent.invalid("must be between 0 and 100, inclusive", errors);
    }
}

/// Validates a limited level (`ValidateLimitedPriorityLevelConfiguration`).
fn validate_limited(limited: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    validate_shares(limited, errors);
    let (response, borrowed) = (limited.at("limitResponse"), limited.at("borrowingLimitPercent"));
    let (response_type, queuing) = (response.at("type"), response.at("queuing"));
    match response_type.text() {
        "Reject" if queuing.is_set() => {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited", errors);
        }
        "Queue" if queuing.is_null() => {
            queuing.required("must not be empty if limited.limitResponse.type is Limited", errors);
        }
        "Queue" => self::validate_queuing(&queuing, errors),
        _ => response_type.supported(&["Queue", "Reject"], errors),
    }
    validate_lendable_percent(limited, errors);
    if borrowed.integer().is_some_and(|n| n < 0) {
        borrowed.invalid("if specified, must be a non-negative integer", errors);
    }
}

/// Validates the queuing configuration (`ValidatePriorityLevelQueuingConfiguration`).
fn validate_queuing(queuing: &FieldCursor<'_, '_>, errors: &mut FieldErrors) {
    let (length, queues, hand) = (queuing.at("queueLengthLimit"), queuing.at("queues"), queuing.at("handSize"));
    let number = |field: &FieldCursor<'_, '_>| field.integer().unwrap_or(0);
    let (queue_count, hand_size) = (number(&queues), number(&hand));
    if number(&length) <= 0 {
        length.invalid("must be positive", errors);
    }
    if queue_count <= 0 {
        queues.invalid("must be positive", errors);
    } else if queue_count > MAX_QUEUES {
        queues.invalid(&format!("must not be greater than {MAX_QUEUES}"), errors);
    }
    if hand_size <= 0 {
        hand.invalid("must be positive", errors);
    } else if hand_size > queue_count {
        hand.invalid(&format!("should not be greater than queues ({queue_count})"), errors);
    } else if required_entropy_bits(queue_count, hand_size) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queue_count} and handSize {hand_size} should not be greater than {MAX_HASH_BITS}"
        );
        hand.invalid(&detail, errors);
    }
}

/// Returns the number of hash bits to deal a hand of queues (`RequiredEntropyBits`).
#[expect(clippy::cast_precision_loss, reason = "both are numbers of 32 bits")]
fn required_entropy_bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validation_errors(name: &str, spec: Value) -> Vec<String> {
        let mut errors = FieldErrors::default();
        validate(&json!({"metadata": {"name": name}, "spec": spec}), &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn check(name: &str, spec: Value, expected: &[&str]) {
        assert_eq!(validation_errors(name, spec), expected);
    }

    #[test]
    fn default_priority_levels_are_valid() {
        for level in bootstrap::all().1 {
            check(level["metadata"]["name"].as_str().unwrap(), level["spec"].clone(), &[]);
        }
    }

    #[test]
    fn only_level_named_exempt_is_exempt() {
        let only = |kind: &str| {
            format!("spec.type: Invalid value: {kind:?}: must be 'Exempt' if and only if `name` is 'exempt'")
        };
        check("exempt", json!({"type": "Exempt"}), &[]);
        check("exempt", json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 7}}), &[]);
        check("mine", json!({"type": "Exempt"}), &[&only("Exempt")]);
        check(
            "mine",
            json!({"type": "", "limited": {}}),
            &["spec.type: Unsupported value: \"\": supported values: \"Exempt\", \"Limited\""],
        );
        let limited = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
        assert_eq!(validation_errors("exempt", limited)[0], only("Limited"));
        check(
            "exempt",
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": -1, "lendablePercent": 101}}),
            &[
                "spec.exempt.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.exempt.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            ],
        );
    }

    #[test]
    fn limited_priority_level_is_validated() {
        let with_limits = |limited: Value| json!({"type": "Limited", "limited": limited});
        let mut both = with_limits(json!({"limitResponse": {"type": "Reject"}}));
        both["exempt"] = json!({});
        check("l", both, &["spec.exempt: Forbidden: must be nil if the type is Limited"]);
        check(
            "l",
            with_limits(
                json!({"limitResponse": {"type": "Reject"}, "lendablePercent": 101, "borrowingLimitPercent": -1}),
            ),
            &[
                "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
                "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
            ],
        );
        check(
            "l",
            with_limits(json!({"nominalConcurrencyShares": -1, "limitResponse": {"type": "Drop"}})),
            &[
                "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
                "spec.limited.limitResponse.type: Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\"",
            ],
        );
    }

    #[test]
    fn queuing_configuration_is_validated() {
        let at = "spec.limited.limitResponse.queuing";
        let with_response = |response: Value| json!({"type": "Limited", "limited": {"limitResponse": response}});
        let queue = |queues: i64, hand: i64, length: i64| {
            with_response(
                json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": length}}),
            )
        };
        let forbidden = "Forbidden: must be nil if limited.limitResponse.type is not Limited";
        check("l", with_response(json!({"type": "Reject", "queuing": {}})), &[&format!("{at}: {forbidden}")]);
        let required = "Required value: must not be empty if limited.limitResponse.type is Limited";
        check("l", with_response(json!({"type": "Queue"})), &[&format!("{at}: {required}")]);
        check("l", queue(64, 8, 50), &[]);
        check(
            "l",
            queue(2, 8, 5),
            &[&format!("{at}.handSize: Invalid value: 8: should not be greater than queues (2)")],
        );
        check(
            "l",
            queue(100_000_000, 1, 5),
            &[&format!("{at}.queues: Invalid value: 100000000: must not be greater than 10000000")],
        );
        check(
            "l",
            queue(-1, -1, -1),
            &[
                &format!("{at}.queueLengthLimit: Invalid value: -1: must be positive"),
                &format!("{at}.queues: Invalid value: -1: must be positive"),
                &format!("{at}.handSize: Invalid value: -1: must be positive"),
            ],
        );
        let entropy = "required entropy bits of deckSize 128 and handSize 9 should not be greater than 60";
        check("l", queue(128, 9, 50), &[&format!("{at}.handSize: Invalid value: 9: {entropy}")]);
    }
}
