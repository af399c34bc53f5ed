//! Authentication and authorization of the kubelet's API (`authentication` and `authorization` of the KubeletConfiguration).

use super::{KubeletConfiguration, duration};
use serde_json::Value;
use std::time::Duration;

/// Authentication and authorization of requests, with upstream's defaults (`SetDefaults_KubeletConfiguration`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessSettings {
    /// Whether requests without credentials are `system:anonymous`; otherwise they are rejected.
    pub(crate) anonymous: bool,
    /// Whether bearer tokens are authenticated by TokenReviews.
    pub(crate) tokens: bool,
    /// Cache duration of TokenReviews.
    pub(crate) token_ttl: Duration,
    /// Whether the authorization mode is `AlwaysAllow`.
    pub(crate) always: bool,
    /// Cache durations of allowed and denied SubjectAccessReviews.
    pub(crate) allowed_ttl: Duration,
    pub(crate) refused_ttl: Duration,
}

/// Invalid authentication or authorization settings.
#[derive(Debug, thiserror::Error)]
pub enum AccessSettingsError {
    /// Setting that must be a boolean.
    #[error("authentication{path}: {value} is no boolean")]
    NoBoolean {
        /// Path of the setting.
        path: String,
        /// Its value.
        value: Value,
    },
    /// Invalid cache duration.
    #[error("time: invalid duration {0:?}")]
    Duration(String),
    /// Unknown authorization mode.
    #[error("authorization.mode: unknown authorization mode {0}")]
    Mode(String),
}

impl KubeletConfiguration {
    /// Parses the authentication and authorization settings.
    pub(crate) fn access(&self) -> Result<AccessSettings, AccessSettingsError> {
        let empty = Value::Null;
        let [authentication, authorization] =
            ["authentication", "authorization"].map(|key| self.rest.get(key).unwrap_or(&empty));
        let flag = |path: &str, default: bool| match authentication.pointer(path) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| AccessSettingsError::NoBoolean { path: path.to_owned(), value: value.clone() }),
        };
        let time = |object: &Value, path: &str, default: u64| match object.pointer(path).and_then(Value::as_str) {
            None => Ok::<_, AccessSettingsError>(Duration::from_secs(default)),
            Some(text) => {
                let parsed = duration::parse(text).ok_or_else(|| AccessSettingsError::Duration(text.to_owned()))?;
                Ok(if parsed.is_zero() { Duration::from_secs(default) } else { parsed })
            }
        };
        let always = match authorization["mode"].as_str().unwrap_or_default() {
            "" | "Webhook" => false,
            "AlwaysAllow" => true,
            other => return Err(AccessSettingsError::Mode(other.to_owned())),
        };
        Ok(AccessSettings {
            anonymous: flag("/anonymous/enabled", false)?,
            tokens: flag("/webhook/enabled", true)?,
            token_ttl: time(authentication, "/webhook/cacheTTL", 120)?,
            always,
            allowed_ttl: time(authorization, "/webhook/cacheAuthorizedTTL", 300)?,
            refused_ttl: time(authorization, "/webhook/cacheUnauthorizedTTL", 30)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{parse, refuses};

    #[test]
    fn access_settings_have_the_defaults_of_upstream() {
        let read = |body: &str| {
            let access = parse(body).unwrap().access().unwrap();
            let times = [access.token_ttl, access.allowed_ttl, access.refused_ttl].map(|t| t.as_secs());
            (access.anonymous, access.tokens, access.always, times)
        };
        assert_eq!(read(""), (false, true, false, [120, 300, 30]));
        let body = "authentication: {anonymous: {enabled: true}, webhook: {enabled: false, cacheTTL: 1m}}
authorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 10s, cacheUnauthorizedTTL: 0s}}";
        assert_eq!(read(body), (true, false, true, [60, 10, 30]));
        refuses("authorization: {mode: RBAC}", "unknown authorization mode RBAC");
        refuses("authentication: {webhook: {enabled: 1}}", "is no boolean");
        refuses("authentication: {webhook: {cacheTTL: soon}}", "invalid duration \"soon\"");
    }
}
