//! CustomResourceDefinitions: naming, establishing, and finalizing (`apiextensions-apiserver`).

pub(crate) mod custom_resource_definitions;
