//! Metadata of objects as the garbage collector watches it, without `managedFields`.

use super::Metadata;
use decode::deserialize_without_managed_fields;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, api::DynamicObject};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// An object's metadata.
#[derive(Debug, Clone)]
pub(super) struct ObjectMetadata(Metadata);

impl<'de> Deserialize<'de> for ObjectMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_without_managed_fields(deserializer).map(Self)
    }
}

impl Resource for ObjectMetadata {
    type DynamicType = <Metadata as Resource>::DynamicType;
    type Scope = <Metadata as Resource>::Scope;

    fn metadata_api() -> bool {
        Metadata::metadata_api()
    }

    fn kind(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::kind(dynamic_type)
    }

    fn group(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::group(dynamic_type)
    }

    fn version(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::version(dynamic_type)
    }

    fn plural(dynamic_type: &Self::DynamicType) -> Cow<'_, str> {
        DynamicObject::plural(dynamic_type)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
