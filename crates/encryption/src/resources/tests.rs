use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n";
/// Keys of 32, 16 and 24 bytes, in base64.
const KEY_32: &str = "c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/PyEhISE=";
const KEY_16: &str = "c2VjcmV0IGlzIHNlY3VyZQ==";

/// Returns an entry of a configuration.
fn entry(resources: &str, providers: &str) -> String {
    format!("- {{resources: [{resources}], providers: [{providers}]}}\n")
}

fn keys(provider: &str, keys: &[(&str, &str)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(name, secret)| format!("{{name: {name}, secret: {secret}}}")).collect();
    format!("{{{provider}: {{keys: [{}]}}}}", keys.join(", "))
}

fn encryption_of(entries: &[String]) -> Encryption {
    Encryption::parse(&format!("{HEAD}{}", entries.concat())).unwrap()
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = Encryption::parse(text).unwrap_err().to_string();
    assert_eq!(error, expected, "{text}");
    assert!(!error.contains("c2VjcmV0") && !error.contains("c2VjcmV1"), "{error}");
}

#[track_caller]
fn check_entry(resources: &str, providers: &str, expected: &str) {
    check_refused(&format!("{HEAD}{}", entry(resources, providers)), expected);
}

#[test]
fn configuration_of_another_kind_is_refused() {
    check_refused("", "the configuration is empty");
    check_refused("{", "the file is no YAML or has duplicate fields at line 1");
    check_refused("kind: EncryptionConfiguration", "Object 'apiVersion' is missing");
    check_refused("apiVersion: v1", "Object 'Kind' is missing");
    check_refused(
        "{apiVersion: v1, kind: EncryptionConfig}",
        "no kind \"EncryptionConfig\" is registered for version \"v1\": expected apiserver.config.k8s.io/v1, EncryptionConfiguration",
    );
    check_refused(HEAD, "resources: Required value: at least one resources is required");
}

#[test]
fn unknown_fields_and_wrong_types_are_refused() {
    let strict = |fault: &str| format!("strict decoding error: {fault}");
    check_refused(
        &format!("{}more: 1\nresources: 2", HEAD.replace("resources:\n", "")),
        &strict("unknown field \"more\", resources: expected a list"),
    );
    check_entry("a", "{identity: {x: 1}}", &strict("unknown field \"resources[0].providers[0].identity.x\""));
    check_entry("a", "{rot13: {}}", &strict("unknown field \"resources[0].providers[0].rot13\""));
    check_entry("[1]", "{identity: {}}", &strict("resources[0].resources[0]: expected a string"));
    check_entry(
        "a",
        "{aescbc: {keys: [{name: k1, secret: {c2VjcmV0: c2VjcmV0}}]}}",
        &strict("resources[0].providers[0].aescbc.keys[0].secret: expected a string"),
    );
    check_entry(
        "a",
        "{aescbc: {keys: {name: k1, secret: c2VjcmV0}}}",
        &strict("resources[0].providers[0].aescbc.keys: expected a list"),
    );
    check_entry("a", "[c2VjcmV0]", &strict("resources[0].providers[0]: expected an object"));
}

#[test]
fn duplicate_field_and_yaml_errors_exclude_keys() {
    let twice = keys("aescbc", &[("k1", &format!("{KEY_32}, secret: {KEY_32}"))]);
    check_entry("a", &twice, "the file is no YAML or has duplicate fields at line 4");
    check_entry("a", "{aescbc: c2VjcmV0", "the file is no YAML or has duplicate fields at line 4");
}

#[test]
fn resources_are_validated() {
    let check = |resources: &str, expected: &str| {
        check_entry(resources, "{identity: {}}", &format!("resources[0].resources{expected}"));
    };
    check("", ": Required value: at least one resources[0].resources is required");
    check("Secrets", "[0]: Invalid value: \"Secrets\": resource name should not contain capital letters");
    check(
        "\"*\"",
        "[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
    );
    check(
        "apiserveripinfo",
        "[0]: Invalid value: \"apiserveripinfo\": resources which do not have REST API/s cannot be encrypted",
    );
    check(
        "\"*.events.k8s.io\"",
        "[0]: Invalid value: \"*.events.k8s.io\": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
    );
    check(
        "deployments.extensions",
        "[0]: Invalid value: \"deployments.extensions\": 'extensions' group has been removed and cannot be used for encryption",
    );
    check(
        "\"secrets.*\"",
        "[0]: Invalid value: \"secrets.*\": encrypting the same resource across groups is not supported",
    );
    check(
        "secrets, secrets",
        ": Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
    );
    let masked = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked";
    check("secrets, \"*.\"", &format!(": Invalid value: [\"secrets\",\"*.\"]: {masked}"));
    check("a.b, \"*.*\"", &format!(": Invalid value: [\"a.b\",\"*.*\"]: {masked}"));
    check("\"*.apps\", a.apps", &format!(": Invalid value: [\"*.apps\",\"a.apps\"]: {masked}"));
}

#[test]
fn providers_are_validated() {
    let check = |providers: &str, expected: &str| {
        check_entry("secrets", providers, &format!("resources[0].providers{expected}"));
    };
    check("", ": Required value: at least one resources[0].providers is required");
    check(
        "{}",
        "[0]: Invalid value: {}: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
    );
    check(
        &format!("{{identity: {{}}, aescbc: {{keys: [{{name: k1, secret: {KEY_32}}}]}}}}"),
        "[0]: Invalid value: [\"aescbc\",\"identity\"]: more than one provider specified in a single element, should split into different list elements",
    );
    for version in ["v1", "v2"] {
        check(
            &format!("{{kms: {{apiVersion: {version}, name: k, endpoint: 'unix:///k'}}}}"),
            "[0].kms: Forbidden: Podium has no KMS providers (v1 or v2): use aescbc, aesgcm or secretbox",
        );
    }
}

#[test]
fn keys_are_validated() {
    let check = |provider: &str, list: &[(&str, &str)], expected: &str| {
        check_entry("secrets", &keys(provider, list), &format!("resources[0].providers[0].{provider}.keys{expected}"));
    };
    check("aescbc", &[], ": Required value: at least one keys is required");
    check("aesgcm", &[("''", KEY_32)], "[0].name: Required value: name is a mandatory field for a key");
    check("aesgcm", &[("k1", "''")], "[0].secret: Required value: secret is a mandatory field for a key");
    check(
        "aesgcm",
        &[("ok", KEY_16), ("k1", "'c2VjcmV0!'")],
        "[1].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
    );
    check(
        "aescbc",
        &[("k1", "c2VjcmV0")],
        "[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 6, expected one of [16 24 32]",
    );
    check(
        "secretbox",
        &[("k1", KEY_16)],
        "[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]",
    );
    check_entry(
        "",
        "",
        "[resources[0].resources: Required value: at least one resources[0].resources is required, resources[0].providers: Required value: at least one resources[0].providers is required]",
    );
}

#[test]
fn masked_rules_are_refused() {
    let check = |first: &str, second: &str, expected: &str| {
        let entries = [first, second].map(|resources| entry(resources, "{identity: {}}"));
        check_refused(&format!("{HEAD}{}", entries.concat()), expected);
    };
    check("\"*.\"", "secrets", "resource \"secrets\" is masked by earlier rule \"*.\"");
    check("\"*.apps\"", "deployments.apps", "resource \"deployments.apps\" is masked by earlier rule \"*.apps\"");
    check("\"*.*\"", "secrets", "resource \"secrets\" is masked by earlier rule \"*.*\"");
    check("\"*.*\"", "\"*.*\"", "resource \"*.*\" is masked by earlier rule \"*.*\"");
}

fn stored(encryption: &Encryption, resource: &str) -> Vec<u8> {
    let key = Key::new(resource, "default", "s");
    encryption.transform_to_storage(&key, b"{}").unwrap().unwrap_or_else(|| b"{}".to_vec())
}

fn read(encryption: &Encryption, resource: &str, stored: &[u8]) -> Result<(Option<Vec<u8>>, bool), String> {
    let form = encryption.transform_from_storage(&Key::new(resource, "default", "s"), stored);
    form.map(|form| (form.data, form.is_stale)).map_err(|error| error.0)
}

#[test]
fn most_specific_rule_takes_precedence() {
    let provider = |name: &str| keys("aescbc", &[(name, KEY_32)]);
    let encryption = encryption_of(&[
        entry("configmaps", "{identity: {}}"),
        entry("secrets", &provider("exact")),
        entry("\"*.apps\"", &provider("group")),
        entry("\"*.*\"", &provider("all")),
    ]);
    let check = |resource: &str, name: &str| {
        let stored = stored(&encryption, resource);
        assert!(stored.starts_with(format!("k8s:enc:aescbc:v1:{name}:").as_bytes()), "{resource}");
    };
    check("secrets", "exact");
    check("deployments.apps", "group");
    check("pods", "all");
    check("widgets.example.com", "all");
    assert_eq!(stored(&encryption, "configmaps"), b"{}");
    let core = encryption_of(&[entry("\"*.\"", &provider("core"))]);
    assert!(stored(&core, "pods").starts_with(b"k8s:enc:aescbc:v1:core:"));
    assert_eq!(stored(&core, "deployments.apps"), b"{}");
}

#[test]
fn first_provider_encrypts_and_all_decrypt() {
    let (identity, old, new) =
        ("{identity: {}}", keys("aescbc", &[("k1", KEY_16)]), keys("secretbox", &[("k1", KEY_32)]));
    let only = |providers: &[&str]| encryption_of(&[entry("secrets", &providers.join(", "))]);
    let (plain, first, rotated) = (only(&[identity]), only(&[&old, identity]), only(&[&new, &old, identity]));
    let data = || Some(b"{}".to_vec());
    let encrypted = stored(&first, "secrets");
    assert_eq!(read(&first, "secrets", &encrypted), Ok((data(), false)));
    assert_eq!(read(&rotated, "secrets", &encrypted), Ok((data(), true)));
    assert_eq!(read(&first, "secrets", b"{}"), Ok((None, true)), "plain text is stale");
    assert_eq!(read(&plain, "secrets", b"{}"), Ok((None, false)));
    // With identity first, encrypted data is still decrypted, and data is written unencrypted.
    let decrypting = only(&[identity, &old]);
    assert_eq!(read(&decrypting, "secrets", &encrypted), Ok((data(), true)));
    assert_eq!(stored(&decrypting, "secrets"), b"{}");
    // Keys can be rotated within one provider.
    let within = only(&[&keys("aescbc", &[("k2", KEY_32), ("k1", KEY_16)])]);
    assert_eq!(read(&within, "secrets", &encrypted), Ok((data(), true)));
    // A provider may be listed twice.
    let twice = only(&[&keys("aescbc", &[("k2", KEY_32)]), &old]);
    assert_eq!(read(&twice, "secrets", &encrypted), Ok((data(), true)));
}

#[test]
fn objects_with_a_missing_key_are_not_readable() {
    let only = |providers: &str| encryption_of(&[entry("secrets", providers)]);
    let encrypted = stored(&only(&keys("aescbc", &[("k1", KEY_16)])), "secrets");
    let check = |encryption: &Encryption, expected: &str| {
        let shown = format!("{expected} (it is stored as k8s:enc:aescbc:v1:k1:)");
        assert_eq!(read(encryption, "secrets", &encrypted), Err(shown));
    };
    check(&Encryption::default(), "identity transformer tried to read encrypted data");
    check(&only("{identity: {}}"), "no matching prefix found");
    check(&only(&keys("secretbox", &[("k1", KEY_32)])), "no matching prefix found");
    check(&only(&keys("aescbc", &[("k2", KEY_16)])), "no matching key was found for the provided AES transformer");
    assert_eq!(
        read(&only(&keys("aescbc", &[("k1", KEY_16)])), "secrets", b"{}"),
        Err("no matching prefix found".to_owned())
    );
}

#[test]
fn wrong_key_of_the_same_name_is_refused() {
    let only = |key: &str| encryption_of(&[entry("secrets", &keys("aescbc", &[("k1", key)]))]);
    // The padding is valid by chance once in 256 times; then the data is not JSON.
    for _ in 0..1000 {
        assert!(read(&only(KEY_32), "secrets", &stored(&only(KEY_16), "secrets")).is_err());
    }
}

#[test]
fn debug_output_excludes_keys() {
    let encryption = encryption_of(&[entry("secrets", &keys("aescbc", &[("k1", KEY_32)]))]);
    assert_eq!(format!("{encryption:?}"), r#"Encryption { rules: ["secrets"], .. }"#);
}
