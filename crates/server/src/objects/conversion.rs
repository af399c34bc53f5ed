//! Conversion of custom resources between versions by webhook (`apiextensions-apiserver/pkg/apiserver/conversion`). Other
//! kinds are converted in place, without I/O.

mod review;

use crate::{
    objects::{object, selectors::Selection},
    proxy::webhook::{WebhookClient, WebhookError, WebhookTarget, WebhookTargetError},
};
use bytes::Bytes;
use errors::ApiError;
use kinds::{ConversionWebhook, Kind};
use review::{ConvertedObjectError, ReviewError};
use serde_json::Value;
use std::time::Duration;
use store::Object;
use wire::json_order;

/// Timeout of a conversion webhook, as upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximal number of objects in a ConversionReview.
const BATCH_SIZE: usize = 500;

/// Failed conversion by a webhook, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum ConversionError {
    #[error("no supported conversion review versions")]
    ReviewVersions,
    #[error("conversion webhook for {gvk} failed: {source}")]
    Target { gvk: String, source: WebhookTargetError },
    #[error("conversion webhook for {gvk} failed: {source}")]
    Call { gvk: String, source: WebhookError },
    #[error("conversion webhook for {gvk} failed: {source}")]
    Review { gvk: String, source: ReviewError },
    #[error("conversion webhook for {gvk} returned {got} objects, expected {sent}")]
    Count { gvk: String, got: usize, sent: usize },
    #[error("conversion webhook for {gvk} returned invalid converted object at index {index}: {source}")]
    Object { gvk: String, index: usize, source: ConvertedObjectError },
}

/// Converts objects to this version, in place.
async fn convert_all(
    conversion: &ConversionWebhook,
    webhooks: &WebhookClient,
    values: &mut [Value],
    desired_version: &str,
) -> Result<(), ApiError> {
    let mut others: Vec<&mut Value> = values.iter_mut().filter(|v| v["apiVersion"] != desired_version).collect();
    for batch in others.chunks_mut(BATCH_SIZE) {
        convert_batch(conversion, webhooks, batch, desired_version)
            .await
            .map_err(|error| ApiError::new(500, "", error.to_string()))?;
    }
    Ok(())
}

async fn convert_batch(
    conversion: &ConversionWebhook,
    webhooks: &WebhookClient,
    batch: &mut [&mut Value],
    desired_version: &str,
) -> Result<(), ConversionError> {
    let Some(first) = batch.first() else { return Ok(()) };
    let gvk = review::gvk(first);
    let version = conversion.review_version.ok_or(ConversionError::ReviewVersions)?;
    let target = WebhookTarget::parse(&conversion.client_config)
        .map_err(|source| ConversionError::Target { gvk: gvk.clone(), source })?;
    let uid = uuid::Uuid::new_v4().to_string();
    let request = review::request(version, &uid, desired_version, batch);
    let response = webhooks.call(&target, TIMEOUT, &request).await;
    let response = response.map_err(|source| ConversionError::Call { gvk: gvk.clone(), source })?;
    let converted = review::objects(version, &uid, response)
        .map_err(|source| ConversionError::Review { gvk: gvk.clone(), source })?;
    if converted.len() != batch.len() {
        let (got, sent) = (converted.len(), batch.len());
        return Err(ConversionError::Count { gvk, got, sent });
    }
    for (i, (object, mut converted)) in batch.iter_mut().zip(converted).enumerate() {
        review::check(object, &mut converted, desired_version).map_err(|source| ConversionError::Object {
            gvk: gvk.clone(),
            index: i,
            source,
        })?;
        // Fields that the version's schema does not have are pruned from the webhook's response too.
        if let Some(schema) = conversion.schema(desired_version) {
            schema.prune(&mut converted);
        }
        **object = converted;
    }
    Ok(())
}

/// Decodes a stored object, pruned and with the defaults of its stored version.
fn decode_stored(conversion: &ConversionWebhook, object: &Object) -> Value {
    let mut value: Value = serde_json::from_slice(&object.data).unwrap_or_default();
    if let Some(schema) = value["apiVersion"].as_str().and_then(|version| conversion.schema(version)) {
        schema.prune(&mut value);
        schema.apply_defaults(&mut value);
    }
    value
}

/// Decodes stored objects in this kind's version.
pub(crate) async fn decode_all(
    webhooks: &WebhookClient,
    kind: &dyn Kind,
    objects: &[Object],
) -> Result<Vec<Value>, ApiError> {
    let Some(conversion) = kind.conversion() else {
        return Ok(objects.iter().map(|o| object::decode(kind, o)).collect());
    };
    let mut values: Vec<Value> = objects.iter().map(|o| decode_stored(conversion, o)).collect();
    convert_all(conversion, webhooks, &mut values, &kind.info().api_version()).await?;
    Ok(values)
}

/// Retains the selected objects. Objects that a webhook converts are decoded in batches, all others one by one.
pub(crate) async fn retain_selected(
    webhooks: &WebhookClient,
    kind: &dyn Kind,
    objects: &mut Vec<Object>,
    selection: &Selection,
) -> Result<(), ApiError> {
    if kind.conversion().is_none() {
        objects.retain(|o| selection.matches_stored(o));
        return Ok(());
    }
    let mut selected = Vec::new();
    for batch in objects.chunks(BATCH_SIZE) {
        let values = decode_all(webhooks, kind, batch).await?;
        selected.extend(
            batch.iter().zip(&values).filter(|(_, value)| selection.matches(value)).map(|(object, _)| object.clone()),
        );
    }
    *objects = selected;
    Ok(())
}

/// Decodes a stored object in this kind's version.
pub(crate) async fn decode(webhooks: &WebhookClient, kind: &dyn Kind, object: &Object) -> Result<Value, ApiError> {
    if kind.conversion().is_none() {
        return Ok(object::decode(kind, object));
    }
    Ok(decode_all(webhooks, kind, std::slice::from_ref(object)).await?.pop().unwrap_or_default())
}

/// Encodes stored objects in this kind's version.
pub(crate) async fn encode_all(
    webhooks: &WebhookClient,
    kind: &dyn Kind,
    objects: &[Object],
) -> Result<Vec<Bytes>, ApiError> {
    if kind.conversion().is_none() || objects.iter().all(|o| kind.is_stored_form(o.revision)) {
        return Ok(objects.iter().map(|o| object::encoded(kind, o)).collect());
    }
    let values = decode_all(webhooks, kind, objects).await?;
    Ok(values.into_iter().map(|v| json_order::encode_document(&v).into()).collect())
}

/// Converts an object of this kind's version to the storage version.
pub(crate) async fn to_storage_version(
    webhooks: &WebhookClient,
    kind: &dyn Kind,
    value: Value,
) -> Result<Value, ApiError> {
    let Some(conversion) = kind.conversion() else { return Ok(value) };
    let mut values = [value];
    convert_all(conversion, webhooks, &mut values, &conversion.storage_version).await?;
    let [mut value] = values;
    if let Some(schema) = conversion.schema(&conversion.storage_version) {
        schema.apply_defaults(&mut value);
    }
    Ok(value)
}

/// Converts an object from one version to another.
pub(crate) async fn convert(
    webhooks: &WebhookClient,
    from: &dyn Kind,
    to: &dyn Kind,
    mut object: Value,
) -> Result<Value, ApiError> {
    if let Some(conversion) = to.conversion() {
        convert_all(conversion, webhooks, std::slice::from_mut(&mut object), &to.info().api_version()).await?;
    } else if let Some(fields) = object.as_object_mut() {
        from.to_storage(fields);
        to.from_storage(fields);
    }
    Ok(object)
}

/// Decodes a stored object of which only the metadata is needed: where a webhook converts, it keeps the storage version, in
/// which it can be written back.
pub(crate) fn as_stored(kind: &dyn Kind, object: &Object) -> Value {
    match kind.conversion() {
        None => object::decode(kind, object),
        Some(_) => serde_json::from_slice(&object.data).unwrap_or_default(),
    }
}
