//! Ordering of API versions.

use std::cmp::Reverse;

/// Returns the sort key of an API version, greatest first (`version.CompareKubeAwareVersionStrings`): `v2`, `v1`, `v1beta1`,
/// `v1alpha1`, then all other names.
#[must_use]
pub fn version_priority(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| is_number(text));
    let unversioned = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return unversioned };
    if let Some(major) = number(rest) {
        return (3, major, 0, Reverse(String::new()));
    }
    for (word, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some((major, minor)) = rest.split_once(word)
            && let Some((major, minor)) = number(major).zip(number(minor))
        {
            return (rank, major, minor, Reverse(String::new()));
        }
    }
    unversioned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_are_ordered_as_upstream() {
        let mut versions =
            ["foo10", "v1alpha1", "v10", "v1", "v11beta2", "v2", "foo1", "v1beta1", "v3beta1", "v11alpha2"];
        versions.sort_by_key(|v| Reverse(version_priority(v)));
        let expected = ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v11alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }
}
