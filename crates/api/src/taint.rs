//! Taints and tolerations (`k8s.io/component-helpers/scheduling/corev1`).

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Returns whether a toleration tolerates a taint (`ToleratesTaint`).
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or("");
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = toleration.key.as_deref().unwrap_or("");
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("") {
        "" | "Equal" => toleration.value.as_deref().unwrap_or("") == taint.value.as_deref().unwrap_or(""),
        "Exists" => true,
        _ => false,
    }
}

/// Returns the first taint with one of the effects that no toleration tolerates (`FindMatchingUntoleratedTaint`).
#[must_use]
pub fn find_untolerated_taint<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    effects: &[&str],
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| effects.contains(&taint.effect.as_str()))
        .find(|taint| !tolerations.iter().any(|t| tolerates(t, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, operator: &str, value: &str, effect: &str, expected: bool) {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let toleration = Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            ..Default::default()
        };
        let taint =
            Taint { key: "disk".into(), value: Some("slow".into()), effect: "NoSchedule".into(), ..Default::default() };
        assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
    }

    #[test]
    fn toleration_matches_by_key_value_and_effect() {
        check("disk", "Equal", "slow", "NoSchedule", true);
        check("disk", "", "slow", "", true);
        check("disk", "Equal", "fast", "NoSchedule", false);
        check("disk", "Exists", "", "NoSchedule", true);
        check("disk", "Exists", "", "NoExecute", false);
        check("", "Exists", "", "", true);
        check("net", "Exists", "", "", false);
        check("disk", "Nonsense", "slow", "", false);
    }
}
