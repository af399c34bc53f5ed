//! Strings and numbers for fields, valid and invalid ones.

use crate::rng::SeededRng;

/// Names of objects: few, so that requests meet earlier objects.
pub(crate) const NAMES: [&str; 4] = ["fuzz-0", "fuzz-1", "fuzz-2", "fuzz-3"];
/// Namespaces. The first one exists, the last one never does.
pub(crate) const NAMESPACES: [&str; 12] =
    [HOME, HOME, HOME, HOME, HOME, HOME, HOME, HOME, HOME, HOME, HOME, "fuzz-missing"];
pub(crate) const HOME: &str = "fuzz";

/// Values that are valid in some field.
const VALID: [&str; 64] = [
    "a",
    "b",
    "one",
    "fuzz-0",
    "fuzz-1",
    "Always",
    "Never",
    "OnFailure",
    "IfNotPresent",
    "TCP",
    "UDP",
    "SCTP",
    "ClusterIP",
    "NodePort",
    "LoadBalancer",
    "None",
    "True",
    "False",
    "Unknown",
    "Exists",
    "DoesNotExist",
    "In",
    "NotIn",
    "Equal",
    "NoSchedule",
    "NoExecute",
    "PreferNoSchedule",
    "Recreate",
    "RollingUpdate",
    "OnDelete",
    "Retain",
    "Delete",
    "Allow",
    "Forbid",
    "Replace",
    "Indexed",
    "NonIndexed",
    "Pod",
    "Node",
    "v1",
    "apps/v1",
    "Deployment",
    "IPv4",
    "IPv6",
    "SingleStack",
    "ReadWriteOnce",
    "ReadWriteMany",
    "Filesystem",
    "Block",
    "Immediate",
    "*",
    "get",
    "pods",
    "apps",
    "example.com/a",
    "10.96.0.7",
    "192.0.2.1",
    "192.0.2.0/24",
    "2001:db8::1",
    "/",
    "/a/b",
    "80%",
    "*/5 * * * *",
    "self == self",
];
/// Values that are invalid in most fields.
const ODD: [&str; 30] = [
    "",
    " ",
    "\0",
    "\u{202e}\u{1f980}/..",
    "..",
    "../..",
    "a/b/c",
    "%",
    "%s%n",
    "%2e%2e",
    "'\"`",
    "\\",
    "\n\r\t",
    "é",
    "ﬁ",
    "\u{feff}",
    "\u{10ffff}",
    "e\u{301}\u{301}\u{301}",
    "-",
    "_",
    ".",
    "A",
    "true",
    "null",
    "0",
    "-1",
    "1e400",
    "$patch",
    "kind",
    "0x7fffffffffffffff",
];
const AMOUNTS: [&str; 16] = [
    "1",
    "100m",
    "1Gi",
    "0",
    "-1",
    "1e3",
    "1E",
    "1n",
    "0.5",
    "1.5Gi",
    "9223372036854775807",
    "99999999999999999999Ei",
    "1e1000000000",
    ".5",
    "1ki",
    "+1",
];
const TIMES: [&str; 8] = [
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05.123456Z",
    "2026-01-02T03:04:05+23:59",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "-0001-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "now",
];
const NUMBERS: [i64; 14] =
    [0, 1, 2, 80, 443, 30, 3600, -1, 65535, 65536, 2_147_483_647, 2_147_483_648, i64::MAX, i64::MIN];

/// Returns a string for a field of this name.
pub(crate) fn word(rng: &mut SeededRng, field: &str) -> String {
    if rng.chance(6) {
        return odd(rng);
    }
    match field {
        "name" | "generateName" | "namespace" | "uid" | "volumeName" if rng.chance(80) => rng.pick(&NAMES).to_owned(),
        "image" => "none.example/none".to_owned(),
        _ => rng.pick(&VALID).to_owned(),
    }
}

/// Returns a string that is invalid in most fields.
pub(crate) fn odd(rng: &mut SeededRng) -> String {
    match rng.below(12) {
        0 => "x".repeat(rng.below(70_000)),
        1 => "a".repeat(64),
        2 => "a.".repeat(127),
        3 => "\u{1f980}".repeat(rng.below(300)),
        _ => rng.pick(&ODD).to_owned(),
    }
}

pub(crate) fn amount(rng: &mut SeededRng) -> String {
    rng.pick(&AMOUNTS).to_owned()
}

pub(crate) fn time(rng: &mut SeededRng) -> String {
    rng.pick(&TIMES).to_owned()
}

/// Returns a number, mostly a small one.
pub(crate) fn number(rng: &mut SeededRng) -> i64 {
    let sensible = if rng.chance(75) { 6 } else { NUMBERS.len() };
    rng.pick(&NUMBERS[..sensible])
}
