//! Objects of custom kinds in another version than the one in which they are stored, where a webhook makes them
//! (`apiextensions-apiserver/pkg/apiserver/conversion`). All other kinds go by without a detour.

mod review;

use crate::{
    json_order,
    kinds::Kind,
    object,
    selectors::Selection,
    status::ApiError,
    webhook::{Target, Webhooks},
};
use bytes::Bytes;
use schema::Schema;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use store::Object;

/// Upstream's time for a conversion.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So many objects are sent at once.
const BATCH: usize = 500;
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];

/// How versions of a kind become each other.
pub struct Conversion {
    target: Result<Target, String>,
    /// The version of reviews that both sides know; the first of those that are named.
    review: Option<&'static str>,
    /// What objects may hold, by version.
    schemas: BTreeMap<String, Schema>,
    stored_as: String,
}

impl Conversion {
    /// What a definition says, if it has a webhook.
    pub(crate) fn read(definition: &Value) -> Option<Self> {
        let spec = &definition["spec"];
        let conversion = &spec["conversion"];
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let versions = || spec["versions"].as_array().into_iter().flatten();
        let name = |v: &Value| format!("{}/{}", spec["group"].as_str().unwrap_or(""), v["name"].as_str().unwrap_or(""));
        let schema = |v: &Value| {
            let mut schema = Schema::read(&v["schema"]["openAPIV3Schema"]);
            schema.preserve |= spec["preserveUnknownFields"] == true;
            schema
        };
        let reviews = conversion["webhook"]["conversionReviewVersions"].as_array().into_iter().flatten();
        Some(Self {
            target: Target::read(&conversion["webhook"]["clientConfig"]),
            review: reviews.filter_map(|v| REVIEWS.into_iter().find(|known| v == known)).next(),
            schemas: versions().map(|v| (name(v), schema(v))).collect(),
            stored_as: versions().find(|v| v["storage"] == true).map(name).unwrap_or_default(),
        })
    }

    /// Objects in this version, in the order in which they came.
    async fn all(&self, webhooks: &Webhooks, values: &mut [Value], wanted: &str) -> Result<(), ApiError> {
        let mut others: Vec<&mut Value> = values.iter_mut().filter(|v| v["apiVersion"] != wanted).collect();
        for batch in others.chunks_mut(BATCH) {
            self.batch(webhooks, batch, wanted).await.map_err(|why| ApiError::new(500, "", why))?;
        }
        Ok(())
    }

    async fn batch(&self, webhooks: &Webhooks, batch: &mut [&mut Value], wanted: &str) -> Result<(), String> {
        let Some(first) = batch.first() else { return Ok(()) };
        let named = review::named(first);
        let version = self.review.ok_or("no supported conversion review versions")?;
        let failed = |why: &str| format!("conversion webhook for {named} failed: {why}");
        let target = self.target.as_ref().map_err(|why| failed(why))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let asked = review::request(version, &uid, wanted, batch);
        let answer = webhooks.call(target, TIMEOUT, &asked).await.map_err(|why| failed(&why))?;
        let made = review::objects(version, &uid, answer).map_err(|why| failed(&why))?;
        if made.len() != batch.len() {
            let (got, sent) = (made.len(), batch.len());
            return Err(format!("conversion webhook for {named} returned {got} objects, expected {sent}"));
        }
        for (i, (object, mut made)) in batch.iter_mut().zip(made).enumerate() {
            review::check(object, &mut made, wanted).map_err(|why| {
                format!("conversion webhook for {named} returned invalid converted object at index {i}: {why}")
            })?;
            // What the version does not know is not taken from a webhook either.
            if let Some(schema) = self.schemas.get(wanted) {
                schema.prune(&mut made);
            }
            **object = made;
        }
        Ok(())
    }

    /// As it is stored, with the defaults of the version in which it is.
    fn stored(&self, object: &Object) -> Value {
        let mut value: Value = serde_json::from_slice(&object.data).unwrap_or_default();
        if let Some(schema) = value["apiVersion"].as_str().and_then(|version| self.schemas.get(version)) {
            schema.prune(&mut value);
            schema.fill_in(&mut value);
        }
        value
    }
}

/// Stored objects in this kind's form.
pub(crate) async fn decode_all(
    webhooks: &Webhooks,
    kind: &dyn Kind,
    objects: &[Object],
) -> Result<Vec<Value>, ApiError> {
    let Some(conversion) = kind.conversion() else {
        return Ok(objects.iter().map(|o| object::decode(kind, o)).collect());
    };
    let mut values: Vec<Value> = objects.iter().map(|o| conversion.stored(o)).collect();
    conversion.all(webhooks, &mut values, &kind.info().api_version()).await?;
    Ok(values)
}

/// Leaves those that are selected. One is looked at after the other; those that a webhook converts, a batch.
pub(crate) async fn retain(
    webhooks: &Webhooks,
    kind: &dyn Kind,
    objects: &mut Vec<Object>,
    selection: &Selection,
) -> Result<(), ApiError> {
    if kind.conversion().is_none() {
        objects.retain(|o| selection.matches_stored(o));
        return Ok(());
    }
    let mut left = Vec::new();
    for batch in objects.chunks(BATCH) {
        let values = decode_all(webhooks, kind, batch).await?;
        left.extend(
            batch.iter().zip(&values).filter(|(_, value)| selection.matches(value)).map(|(object, _)| object.clone()),
        );
    }
    *objects = left;
    Ok(())
}

/// A stored object in this kind's form.
pub(crate) async fn decode(webhooks: &Webhooks, kind: &dyn Kind, object: &Object) -> Result<Value, ApiError> {
    if kind.conversion().is_none() {
        return Ok(object::decode(kind, object));
    }
    Ok(decode_all(webhooks, kind, std::slice::from_ref(object)).await?.pop().unwrap_or_default())
}

/// The bytes of whole objects in this kind's form.
pub(crate) async fn bytes_all(
    webhooks: &Webhooks,
    kind: &dyn Kind,
    objects: &[Object],
) -> Result<Vec<Bytes>, ApiError> {
    if kind.conversion().is_none() || objects.iter().all(|o| kind.is_stored_form(o.revision)) {
        return Ok(objects.iter().map(|o| object::bytes(kind, o)).collect());
    }
    let values = decode_all(webhooks, kind, objects).await?;
    Ok(values.into_iter().map(|v| json_order::document(&v).into()).collect())
}

/// What is to be stored of an object of this kind's form.
pub(crate) async fn to_stored(webhooks: &Webhooks, kind: &dyn Kind, value: Value) -> Result<Value, ApiError> {
    let Some(conversion) = kind.conversion() else { return Ok(value) };
    let mut values = [value];
    conversion.all(webhooks, &mut values, &conversion.stored_as).await?;
    let [mut value] = values;
    if let Some(schema) = conversion.schemas.get(&conversion.stored_as) {
        schema.fill_in(&mut value);
    }
    Ok(value)
}

/// An object of one version in another.
pub(crate) async fn between(
    webhooks: &Webhooks,
    from: &dyn Kind,
    to: &dyn Kind,
    mut object: Value,
) -> Result<Value, ApiError> {
    if let Some(conversion) = to.conversion() {
        conversion.all(webhooks, std::slice::from_mut(&mut object), &to.info().api_version()).await?;
    } else if let Some(fields) = object.as_object_mut() {
        from.to_storage(fields);
        to.from_storage(fields);
    }
    Ok(object)
}

/// A stored object whose metadata alone is of interest: where a webhook converts it is as it is stored, and stays so when
/// it is written back.
pub(crate) fn as_stored(kind: &dyn Kind, object: &Object) -> Value {
    match kind.conversion() {
        None => object::decode(kind, object),
        Some(_) => serde_json::from_slice(&object.data).unwrap_or_default(),
    }
}
