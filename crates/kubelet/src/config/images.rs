//! Image settings of the KubeletConfiguration: pulls and garbage collection.

use super::duration;
use crate::images::verification::{VerificationPolicy, VerificationPolicyError};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Settings of image pulls and image garbage collection, with upstream's defaults.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagesConfiguration {
    /// Whether pulls are serialized. `None` means yes, unless `maxParallelImagePulls` is greater than 1.
    pub serialize_image_pulls: Option<bool>,
    /// Maximum number of parallel pulls; `None` for no limit.
    pub max_parallel_image_pulls: Option<i32>,
    /// Maximum number of pulls per second; 0 for no limit.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// Burst of pulls.
    pub registry_burst: i32,
    /// Which present images require credentials of the Pod.
    pub image_pull_credentials_verification_policy: String,
    /// Repositories (`host/path`, `host/path/*`) that need no credentials with `NeverVerifyAllowlistedImages`.
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Disk usage in percent above which images are collected.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// Disk usage in percent to which images are collected.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// Minimum age of an unused image before it is collected.
    #[serde(rename = "imageMinimumGCAge", with = "duration")]
    pub image_minimum_gc_age: Duration,
    /// Maximum age of an unused image; zero for no limit.
    #[serde(rename = "imageMaximumGCAge", with = "duration")]
    pub image_maximum_gc_age: Duration,
}

/// Invalid image settings, with upstream's message (`ValidateKubeletConfiguration`).
#[derive(Debug, thiserror::Error)]
pub enum ImagesConfigurationError {
    /// Negative number.
    #[error("{field} (--{flag}) {value} must not be a negative number")]
    Negative {
        /// Name of the field.
        field: &'static str,
        /// Flag of upstream's kubelet.
        flag: &'static str,
        /// Its value.
        value: i32,
    },
    /// Invalid number of parallel pulls.
    #[error("maxParallelImagePulls {0} must be a positive number")]
    ParallelPulls(i32),
    /// Parallel pulls while pulls are serialized.
    #[error(
        "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is set to false"
    )]
    SerializedPulls,
    /// Threshold that is not a percentage.
    #[error("{field} (--{flag}) {value} must be between 0 and 100, inclusive")]
    Threshold {
        /// Name of the field.
        field: &'static str,
        /// Flag of upstream's kubelet.
        flag: &'static str,
        /// Its value.
        value: i32,
    },
    /// Low threshold that is not below the high one.
    #[error(
        "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
    )]
    ThresholdOrder {
        /// Low threshold.
        low: i32,
        /// High threshold.
        high: i32,
    },
    /// Maximum age that is not above the minimum age.
    #[error("imageMaximumGCAge {max:?} must be greater than imageMinimumGCAge {min:?}")]
    AgeOrder {
        /// Maximum age.
        max: Duration,
        /// Minimum age.
        min: Duration,
    },
    /// Invalid verification of image pull credentials.
    #[error(transparent)]
    Verification(#[from] VerificationPolicyError),
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
    /// Returns the maximum number of parallel pulls; `None` for no limit (upstream's defaulting of
    /// `serializeImagePulls`).
    #[must_use]
    pub fn parallel_pulls(&self) -> Option<i32> {
        let serialize = self.serialize_image_pulls.unwrap_or(self.max_parallel_image_pulls.is_none_or(|max| max < 2));
        if serialize { Some(1) } else { self.max_parallel_image_pulls }
    }

    /// Parses the credential verification policy.
    ///
    /// # Errors
    /// For an unknown policy or invalid patterns.
    pub(crate) fn verification(&self) -> Result<VerificationPolicy, VerificationPolicyError> {
        let policy = &self.image_pull_credentials_verification_policy;
        VerificationPolicy::parse(policy, &self.preloaded_images_verification_allowlist)
    }

    /// Validates the settings like upstream's `ValidateKubeletConfiguration`.
    pub(super) fn validate(&self) -> Result<(), ImagesConfigurationError> {
        for (field, flag, value) in [
            ("registryBurst", "registry-burst", self.registry_burst),
            ("registryPullQPS", "registry-qps", self.registry_pull_qps),
        ] {
            if value < 0 {
                return Err(ImagesConfigurationError::Negative { field, flag, value });
            }
        }
        let max = self.max_parallel_image_pulls;
        if let Some(max) = max.filter(|max| *max < 1) {
            return Err(ImagesConfigurationError::ParallelPulls(max));
        }
        if self.serialize_image_pulls == Some(true) && max.is_some_and(|max| max > 1) {
            return Err(ImagesConfigurationError::SerializedPulls);
        }
        self.validate_collection()?;
        self.verification()?;
        Ok(())
    }

    fn validate_collection(&self) -> Result<(), ImagesConfigurationError> {
        let (high, low) = (self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent);
        let (max, min) = (self.image_maximum_gc_age, self.image_minimum_gc_age);
        for (field, flag, value) in [
            ("imageGCHighThresholdPercent", "image-gc-high-threshold", high),
            ("imageGCLowThresholdPercent", "image-gc-low-threshold", low),
        ] {
            if !(0..=100).contains(&value) {
                return Err(ImagesConfigurationError::Threshold { field, flag, value });
            }
        }
        if low >= high {
            return Err(ImagesConfigurationError::ThresholdOrder { low, high });
        }
        if !max.is_zero() && max <= min {
            return Err(ImagesConfigurationError::AgeOrder { max, min });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{parse, refuses};

    #[test]
    fn image_pulls_are_serialized_by_default() {
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
    fn invalid_image_settings_have_the_errors_of_upstream() {
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
