//! Cases of the documentation page "Images" ("Interpretation of config.json") and of upstream's `keyring_test.go`.

use super::*;
use serde_json::json;

#[track_caller]
fn check(pattern: &str, repository: &str, expected: bool) {
    assert_eq!(urls_match(pattern, repository), expected, "{pattern} {repository}");
}

#[test]
fn glob_matches_one_label_of_the_host() {
    check("*.kubernetes.io", "kubernetes.io", false);
    check("*.kubernetes.io", "abc.kubernetes.io", true);
    check("*.*.kubernetes.io", "abc.kubernetes.io", false);
    check("*.*.kubernetes.io", "abc.def.kubernetes.io", true);
    check("prefix.*.io", "prefix.kubernetes.io", true);
    check("*-good.kubernetes.io", "prefix-good.kubernetes.io", true);
    check("*-good.kubernetes.io", "prefix-bad.kubernetes.io", false);
    check("a*c*e.io", "abcde.io", true);
    check("app[1-3x].io", "app2.io", true);
    check("app[1-3x].io", "app4.io", false);
    check("app[^1-3].io", "app4.io", true);
    check("app[1.io", "app1.io", false);
    check("*", "docker.io/a", false);
}

#[test]
fn images_match_as_documented() {
    let entries = ["my-registry.io/images", "*.my-registry.io/images"];
    for (image, expected) in [
        ("my-registry.io/images", true),
        ("my-registry.io/images/my-image", true),
        ("my-registry.io/images/another-image", true),
        ("sub.my-registry.io/images/my-image", true),
        ("a.sub.my-registry.io/images/my-image", false),
        ("a.b.sub.my-registry.io/images/my-image", false),
        ("my-registry.io/other", false),
    ] {
        assert_eq!(entries.iter().any(|entry| urls_match(entry, image)), expected, "{image}");
    }
}

#[test]
fn port_must_be_equal_and_path_must_be_a_prefix() {
    check("example.com:5000", "example.com:5000/a", true);
    check("example.com", "example.com:5000/a", false);
    check("example.com:5000", "example.com/a", false);
    check("*.example.com:*", "a.example.com:5000/a", false);
    check("example.com/a", "example.com/ab/c", true);
    check("example.com/*", "example.com/a", false);
    check("[::1]:5000/a", "[::1]:5000/a/b", true);
}

fn login(name: &str) -> DockerConfigEntry {
    DockerConfigEntry { username: name.to_owned(), password: "p".to_owned() }
}

fn config(entries: &[(&str, &str)]) -> DockerConfig {
    entries.iter().map(|(address, name)| ((*address).to_owned(), login(name))).collect()
}

/// Checks the usernames that are tried for an image, in order.
#[track_caller]
fn check_lookup(keyring: &Keyring, repository: &str, expected: &[&str]) {
    let found: Vec<String> = keyring.lookup(repository).into_iter().map(|c| c.login.username).collect();
    assert_eq!(found, expected, "{repository}");
}

#[test]
fn most_specific_credentials_are_tried_first() {
    let mut keyring = Keyring::default();
    keyring.add(None, config(&[("my-registry.io/images", "short"), ("my-registry.io/images/subpath", "long")]));
    keyring.add(None, config(&[("https://my-registry.io/v1/", "host"), ("my-registry.io/images", "second")]));
    check_lookup(&keyring, "my-registry.io/images/subpath/my-image", &["long", "short", "second", "host"]);
    check_lookup(&keyring, "my-registry.io/images/my-image", &["short", "second", "host"]);
    check_lookup(&keyring, "my-registry.io/else", &["host"]);
    check_lookup(&keyring, "other.io/images", &[]);
}

#[test]
fn address_may_have_a_scheme_and_an_api_path() {
    for address in [
        "example.com",
        "http://example.com",
        "https://example.com/",
        "https://example.com/v1/",
        "example.com/v2/",
        "user@example.com",
        "https://example.com?x#y",
    ] {
        let mut keyring = Keyring::default();
        keyring.add(None, config(&[(address, "robot")]));
        check_lookup(&keyring, "example.com/a", &["robot"]);
    }
    let mut keyring = Keyring::default();
    keyring.add(None, config(&[("example.com:port", "robot")]));
    check_lookup(&keyring, "example.com/a", &[]);
}

#[test]
fn docker_hub_has_two_addresses() {
    let mut keyring = Keyring::default();
    keyring.add(None, config(&[("https://index.docker.io/v1/", "hub")]));
    check_lookup(&keyring, "docker.io/library/busybox", &["hub"]);
    check_lookup(&keyring, "quay.io/a", &[]);
    keyring.add(None, config(&[("docker.io", "newer")]));
    check_lookup(&keyring, "docker.io/library/busybox", &["newer"]);
}

#[test]
fn credentials_are_read_from_separate_fields_or_auth() {
    let read = |entry: serde_json::Value| serde_json::from_value::<DockerConfigEntry>(entry);
    let robot = DockerConfigEntry { username: "robot".to_owned(), password: "a:b".to_owned() };
    let [padded, bare] = [STANDARD.encode("robot:a:b"), STANDARD_NO_PAD.encode("robot:a:b")];
    assert_eq!(read(json!({"username": "robot", "password": "a:b", "email": "x"})).unwrap(), robot);
    assert_eq!(read(json!({"auth": padded, "username": "other"})).unwrap(), robot);
    assert_eq!(read(json!({"auth": format!("{bare}\n")})).unwrap(), robot);
    assert_eq!(read(json!({})).unwrap(), DockerConfigEntry::default());
    for auth in ["%", "cm9ib3Q="] {
        assert!(read(json!({"auth": auth})).unwrap_err().to_string().contains("auth field"));
    }
}

#[test]
fn debug_output_has_no_password() {
    let credential = Credential {
        login: DockerConfigEntry { username: "u".to_owned(), password: "hunter2".to_owned() },
        source: None,
    };
    assert!(!format!("{credential:?} {:?}", credential.auth()).contains("hunter2"));
    assert_eq!(credential.hash().len(), 64);
    assert_ne!(credential.hash(), Credential { login: login("u"), source: None }.hash());
}
