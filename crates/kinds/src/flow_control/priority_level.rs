//! Validation of PriorityLevelConfigurations (`ValidatePriorityLevelConfiguration`).

use super::validate_mandatory_object;
use crate::{FieldErrors, FieldPath, field_validation::text as text_of, flow_control::bootstrap};
use serde_json::{Value, json};

/// Maximum number of queues of a level.
const MAX_QUEUES: i64 = 10_000_000;
/// Number of hash bits for shuffle sharding (`shufflesharding.MaxHashBits`).
const MAX_HASH_BITS: f64 = 60.0;

pub(super) fn validate(object: &Value, errors: &mut FieldErrors) {
    let (path, spec) = (FieldPath::new("spec"), &object["spec"]);
    let kind = text_of(spec, "type");
    // Only the level `exempt` can be exempt.
    if (object["metadata"]["name"] == "exempt") != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&path.child("type"), &json!(kind), detail);
    }
    let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
    match kind {
        "Exempt" => {
            if !limited.is_null() {
                errors.forbidden(&path.child("limited"), "must be nil if the type is not Limited");
            }
            let at = path.child("exempt");
            validate_shares(exempt, &at, errors);
            validate_lendable_percent(exempt, &at, errors);
        }
        "Limited" => {
            if !exempt.is_null() {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            if limited.is_null() {
                errors.required(&path.child("limited"), "must not be empty when type is Limited");
            } else {
                self::validate_limited(limited, &path.child("limited"), errors);
            }
        }
        other => errors.not_supported(&path.child("type"), &json!(other), &["Exempt", "Limited"]),
    }
    validate_mandatory_object(object, &bootstrap::mandatory().1, errors);
}

fn validate_shares(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let shares = &object["nominalConcurrencyShares"];
    if shares.as_i64().is_some_and(|n| n < 0) {
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
}

fn validate_lendable_percent(object: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let percent = &object["lendablePercent"];
    if percent.as_i64().is_some_and(|n| !(0..=100).contains(&n)) {
        errors.invalid(&path.child("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

/// Validates a limited level (`ValidateLimitedPriorityLevelConfiguration`).
fn validate_limited(limited: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    validate_shares(limited, path, errors);
    let (response, at) = (&limited["limitResponse"], path.child("limitResponse"));
    let queuing = &response["queuing"];
    match text_of(response, "type") {
        "Reject" if !queuing.is_null() => {
            errors.forbidden(&at.child("queuing"), "must be nil if limited.limitResponse.type is not Limited");
        }
        "Queue" if queuing.is_null() => {
            errors.required(&at.child("queuing"), "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => self::validate_queuing(queuing, &at.child("queuing"), errors),
        "Reject" => {}
        other => errors.not_supported(&at.child("type"), &json!(other), &["Queue", "Reject"]),
    }
    validate_lendable_percent(limited, path, errors);
    let borrowed = &limited["borrowingLimitPercent"];
    if borrowed.as_i64().is_some_and(|n| n < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.child("borrowingLimitPercent"), borrowed, detail);
    }
}

/// Validates the queuing configuration (`ValidatePriorityLevelQueuingConfiguration`).
fn validate_queuing(queuing: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let number = |field: &str| queuing[field].as_i64().unwrap_or(0);
    let mut wrong = |field: &str, detail: &str| errors.invalid(&path.child(field), &json!(number(field)), detail);
    if number("queueLengthLimit") <= 0 {
        wrong("queueLengthLimit", "must be positive");
    }
    let (queues, hand) = (number("queues"), number("handSize"));
    if queues <= 0 {
        wrong("queues", "must be positive");
    } else if queues > MAX_QUEUES {
        wrong("queues", &format!("must not be greater than {MAX_QUEUES}"));
    }
    if hand <= 0 {
        wrong("handSize", "must be positive");
    } else if hand > queues {
        wrong("handSize", &format!("should not be greater than queues ({queues})"));
    } else if required_entropy_bits(queues, hand) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        wrong("handSize", &detail);
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
    use crate::flow_control::bootstrap;

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
