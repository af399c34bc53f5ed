//! What a KubeletConfiguration says about images: pulls, and when images go.

use super::{ConfigError, duration};
use crate::images::verification::Verification;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Pulls of images, and their removal; upstream's defaults.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagesConfiguration {
    /// One pull at a time. `None` means yes, unless `maxParallelImagePulls` says otherwise.
    pub serialize_image_pulls: Option<bool>,
    /// Pulls at a time when they are not serialized; `None` for any number.
    pub max_parallel_image_pulls: Option<i32>,
    /// How many pulls each second are begun; 0 for any number.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// How many may be begun at once while there were fewer before.
    pub registry_burst: i32,
    /// For which images that are there a Pod has to show credentials.
    pub image_pull_credentials_verification_policy: String,
    /// Repositories (`host/path`, `host/path/*`) that are for every Pod with `NeverVerifyAllowlistedImages`.
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Images are removed when their disk is fuller than this, ...
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// ... until it is no fuller than this.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// An image stays for so long at least.
    #[serde(rename = "imageMinimumGCAge", with = "duration")]
    pub image_minimum_gc_age: Duration,
    /// An image that nobody uses for longer is removed; zero for never.
    #[serde(rename = "imageMaximumGCAge", with = "duration")]
    pub image_maximum_gc_age: Duration,
}

impl Default for ImagesConfiguration {
    fn default() -> Self {
        Self {
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            registry_pull_qps: 5,
            registry_burst: 10,
            image_pull_credentials_verification_policy: "NeverVerifyPreloadedImages".to_owned(),
            preloaded_images_verification_allowlist: Vec::new(),
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            image_minimum_gc_age: Duration::from_secs(120),
            image_maximum_gc_age: Duration::ZERO,
        }
    }
}

impl ImagesConfiguration {
    /// How many images are pulled at a time; `None` for any number (upstream's defaulting of `serializeImagePulls`).
    #[must_use]
    pub fn parallel_pulls(&self) -> Option<i32> {
        let serialize = self.serialize_image_pulls.unwrap_or(self.max_parallel_image_pulls.is_none_or(|max| max < 2));
        if serialize { Some(1) } else { self.max_parallel_image_pulls }
    }

    /// Who may use images that are there.
    ///
    /// # Errors
    /// For an unknown policy, or patterns that are none.
    pub(crate) fn verification(&self) -> Result<Verification, ConfigError> {
        let policy = &self.image_pull_credentials_verification_policy;
        Verification::parse(policy, &self.preloaded_images_verification_allowlist).map_err(ConfigError::Invalid)
    }

    /// Upstream's rules, in its words (`ValidateKubeletConfiguration`).
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let invalid = |what: String| Err(ConfigError::Invalid(what));
        let not_negative = |name: &str, flag: &str, value: i32| {
            let what = format!("{name} (--{flag}) {value} must not be a negative number");
            if value < 0 { Err(ConfigError::Invalid(what)) } else { Ok(()) }
        };
        not_negative("registryBurst", "registry-burst", self.registry_burst)?;
        not_negative("registryPullQPS", "registry-qps", self.registry_pull_qps)?;
        let max = self.max_parallel_image_pulls;
        if let Some(max) = max.filter(|max| *max < 1) {
            return invalid(format!("maxParallelImagePulls {max} must be a positive number"));
        }
        if self.serialize_image_pulls == Some(true) && max.is_some_and(|max| max > 1) {
            let what = "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false";
            return invalid(what.to_owned());
        }
        self.validate_collection()?;
        self.verification().map(drop)
    }
}

impl ImagesConfiguration {
    fn validate_collection(&self) -> Result<(), ConfigError> {
        let (high, low) = (self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent);
        let (max, min) = (self.image_maximum_gc_age, self.image_minimum_gc_age);
        let invalid = |what: String| Err(ConfigError::Invalid(what));
        for (name, flag, value) in [
            ("imageGCHighThresholdPercent", "image-gc-high-threshold", high),
            ("imageGCLowThresholdPercent", "image-gc-low-threshold", low),
        ] {
            if !(0..=100).contains(&value) {
                return invalid(format!("{name} (--{flag}) {value} must be between 0 and 100, inclusive"));
            }
        }
        if low >= high {
            return invalid(format!(
                "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
            ));
        }
        if !max.is_zero() && max <= min {
            return invalid(format!("imageMaximumGCAge {max:?} must be greater than imageMinimumGCAge {min:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{parse, refuses};

    #[test]
    fn pulls_are_serial_unless_parallel_ones_are_asked_for() {
        for (body, expected) in [
            ("", Some(1)),
            ("serializeImagePulls: false", None),
            ("maxParallelImagePulls: 3", Some(3)),
            ("maxParallelImagePulls: 1", Some(1)),
            ("serializeImagePulls: false\nmaxParallelImagePulls: 3", Some(3)),
            ("serializeImagePulls: true\nmaxParallelImagePulls: 1", Some(1)),
        ] {
            assert_eq!(parse(body).unwrap().images.parallel_pulls(), expected, "{body}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_upstreams_words() {
        refuses("maxParallelImagePulls: 0", "maxParallelImagePulls 0 must be a positive number");
        refuses(
            "serializeImagePulls: true\nmaxParallelImagePulls: 2",
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false",
        );
        refuses("registryPullQPS: -1", "registryPullQPS (--registry-qps) -1 must not be a negative number");
        refuses(
            "imagePullCredentialsVerificationPolicy: Sometimes",
            "unknown image pull credential verification policy: Sometimes",
        );
        for (body, part) in [
            (
                "imageGCHighThresholdPercent: 101",
                "(--image-gc-high-threshold) 101 must be between 0 and 100, inclusive",
            ),
            ("imageGCLowThresholdPercent: -1", "(--image-gc-low-threshold) -1 must be between 0 and 100, inclusive"),
            ("imageGCLowThresholdPercent: 85", "85 must be less than imageGCHighThresholdPercent"),
            ("imageMaximumGCAge: 2m", "imageMaximumGCAge 120s must be greater than imageMinimumGCAge 120s"),
        ] {
            refuses(body, part);
        }
        refuses("registryBurst: -1", "registryBurst (--registry-burst) -1 must not be a negative number");
    }
}
