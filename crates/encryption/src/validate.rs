//! Validation (`ValidateEncryptionConfiguration`).

use crate::{
    config::{ConfigError, Configuration, KeyConfiguration, ProviderConfiguration},
    resources::GroupResource,
};
use api::field::{FieldErrors, FieldPath};
use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::json;
use zeroize::Zeroizing;

const AES_KEY_SIZES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_SIZES: &[usize] = &[32];
const RESOURCES_WITHOUT_API: [&str; 3] = ["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// Validates a configuration.
pub(crate) fn validate(configuration: &Configuration) -> Result<(), ConfigError> {
    let (mut errors, root) = (FieldErrors::default(), FieldPath::new("resources"));
    if configuration.resources.is_empty() {
        errors.required(&root, "at least one resources is required");
    }
    for (i, resource) in configuration.resources.iter().enumerate() {
        let path = root.index(i);
        let (resources, providers) = (path.child("resources"), path.child("providers"));
        if resource.resources.is_empty() {
            errors.required(&resources, &format!("at least one {resources} is required"));
        }
        check_overlap(&resource.resources, &resources, &mut errors);
        for (j, name) in resource.resources.iter().enumerate() {
            if let Some(detail) = resource_name_error(name) {
                errors.invalid(&resources.index(j), &json!(name), detail);
            }
        }
        if resource.providers.is_empty() {
            errors.required(&providers, &format!("at least one {providers} is required"));
        }
        for (j, provider) in resource.providers.iter().enumerate() {
            check_provider(provider, &providers.index(j), &mut errors);
        }
    }
    // Formatted as by upstream's `ErrorList.ToAggregate`.
    let texts: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(ConfigError::Invalid(one.clone())),
        all => Err(ConfigError::Invalid(format!("[{}]", all.join(", ")))),
    }
}

fn check_overlap(names: &[String], path: &FieldPath, errors: &mut FieldErrors) {
    let parsed: Vec<GroupResource<'_>> = names.iter().map(|name| GroupResource::parse(name)).collect();
    let pairs = || {
        let others = |i: usize| parsed.iter().enumerate().filter(move |(j, _)| *j != i).map(|(_, other)| other);
        parsed.iter().enumerate().flat_map(move |(i, one)| others(i).map(move |other| (one, other)))
    };
    let overlap = |(one, other): (&GroupResource<'_>, &GroupResource<'_>)| {
        one.is_everything() || one.group == other.group && (one.resource == "*" || other.resource == "*")
    };
    if pairs().any(|(one, other)| one == other) {
        errors.invalid(path, &json!(names), "the same resource cannot be specified multiple times");
    }
    if pairs().any(overlap) {
        errors.invalid(
            path,
            &json!(names),
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        );
    }
}

fn resource_name_error(name: &str) -> Option<&'static str> {
    let parsed = GroupResource::parse(name);
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if RESOURCES_WITHOUT_API.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if parsed.group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        )
    } else if parsed.group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if parsed.group == "*" && parsed.resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

fn check_provider(provider: &ProviderConfiguration, path: &FieldPath, errors: &mut FieldErrors) {
    let names = provider.names();
    // Unlike upstream, the error does not include the provider, which contains keys.
    if names.is_empty() {
        errors.invalid(
            path,
            &json!({}),
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        );
    } else if names.len() > 1 {
        errors.invalid(
            path,
            &json!(names),
            "more than one provider specified in a single element, should split into different list elements",
        );
    }
    if provider.kms {
        errors.forbidden(&path.child("kms"), "Podium has no KMS providers (v1 or v2): use aescbc, aesgcm or secretbox");
    }
    for (name, keys, sizes) in [
        ("aesgcm", &provider.aesgcm, AES_KEY_SIZES),
        ("aescbc", &provider.aescbc, AES_KEY_SIZES),
        ("secretbox", &provider.secretbox, SECRETBOX_KEY_SIZES),
    ] {
        if let Some(keys) = keys {
            check_keys(keys, &path.child(name).child("keys"), sizes, errors);
        }
    }
}

fn check_keys(keys: &[KeyConfiguration], path: &FieldPath, sizes: &[usize], errors: &mut FieldErrors) {
    if keys.is_empty() {
        errors.required(path, "at least one keys is required");
    }
    for (i, key) in keys.iter().enumerate() {
        let (name, secret) = (path.index(i).child("name"), path.index(i).child("secret"));
        if key.name.is_empty() {
            errors.required(&name, "name is a mandatory field for a key");
        }
        if key.secret.is_empty() {
            errors.required(&secret, "secret is a mandatory field for a key");
            continue;
        }
        match key_bytes(key) {
            None => errors.invalid(&secret, &json!("REDACTED"), "secrets must be base64 encoded"),
            Some(bytes) if !sizes.contains(&bytes.len()) => {
                let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
                let detail = format!(
                    "secret is not of the expected length, got {}, expected one of [{}]",
                    bytes.len(),
                    sizes.join(" ")
                );
                errors.invalid(&secret, &json!("REDACTED"), &detail);
            }
            Some(_) => {}
        }
    }
}

/// Decodes a key as Go's `base64.StdEncoding` does.
pub(crate) fn key_bytes(key: &KeyConfiguration) -> Option<Zeroizing<Vec<u8>>> {
    const GO: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let text = Zeroizing::new(key.secret.replace(['\r', '\n'], ""));
    GO.decode(text.as_bytes()).ok().map(Zeroizing::new)
}
