//! Conversion webhook of a custom resource (`spec.conversion` of its definition).

use schema::Schema;
use serde_json::Value;
use std::collections::BTreeMap;

/// Supported versions of ConversionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Conversion webhook of a custom resource.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// `clientConfig`: where the webhook is.
    pub client_config: Value,
    /// The first of `conversionReviewVersions` that is supported.
    pub review_version: Option<&'static str>,
    /// `apiVersion` of the stored objects.
    pub storage_version: String,
    /// Schemas by API version.
    schemas: BTreeMap<String, Schema>,
}

impl ConversionWebhook {
    /// Reads `spec.conversion` of a definition; `None` without a webhook.
    pub(crate) fn from_definition(definition: &Value) -> Option<Self> {
        let spec = &definition["spec"];
        let conversion = &spec["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let name = |v: &Value| format!("{}/{}", spec["group"].as_str().unwrap_or(""), v["name"].as_str().unwrap_or(""));
        let schema = |v: &Value| {
            let mut schema = Schema::parse(&v["schema"]["openAPIV3Schema"]);
            schema.preserve_unknown_fields |= spec["preserveUnknownFields"] == true;
            schema
        };
        let reviews = conversion["webhook"]["conversionReviewVersions"].as_array().into_iter().flatten();
        Some(Self {
            client_config: conversion["webhook"]["clientConfig"].clone(),
            review_version: reviews.filter_map(|v| REVIEW_VERSIONS.into_iter().find(|supported| v == supported)).next(),
            schemas: versions().map(|v| (name(v), schema(v))).collect(),
            storage_version: versions().find(|v| v["storage"] == true).map(name).unwrap_or_default(),
        })
    }

    /// Returns the schema of an API version.
    #[must_use]
    pub fn schema(&self, api_version: &str) -> Option<&Schema> {
        self.schemas.get(api_version)
    }
}
