//! Decoding of typed objects, compiled once.
//!
//! The types of `k8s-openapi` are generic over their deserializer, so each crate that deserializes a Pod has 0.7 MB of code of
//! its own for this. The functions of [`Decode`] are not generic: all crates share one copy for each kind. The binary is most of
//! the memory of an idle Podium.
#![forbid(unsafe_code)]

mod without_managed_fields;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::{CronJob, Job},
    certificates::v1::CertificateSigningRequest,
    core::v1::{
        ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, PodStatus,
        PodTemplateSpec, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
    },
    discovery::v1::EndpointSlice,
    networking::v1::{NetworkPolicy, ServiceCIDR},
    policy::v1::PodDisruptionBudget,
    rbac::v1::ClusterRole,
    resource::v1::ResourceClaim,
    storage::v1::StorageClass,
};
use serde::Deserialize;
use serde_json::Value;
pub use without_managed_fields::deserialize_without_managed_fields;

/// A type that several crates decode.
pub trait Decode: Sized {
    /// Decodes JSON as [`deserialize_without_managed_fields`] does.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, or not of this type.
    fn from_json_without_managed_fields(json: &str) -> serde_json::Result<Self>;

    /// Decodes a tree.
    ///
    /// # Errors
    ///
    /// If the tree is not of this type.
    fn from_value(value: &Value) -> serde_json::Result<Self>;
}

macro_rules! decode {
    ($($kind:ty),* $(,)?) => {
        $(impl Decode for $kind {
            fn from_json_without_managed_fields(json: &str) -> serde_json::Result<Self> {
                deserialize_without_managed_fields(&mut serde_json::Deserializer::from_str(json))
            }

            fn from_value(value: &Value) -> serde_json::Result<Self> {
                Self::deserialize(value)
            }
        })*
    };
}

decode! {
    CertificateSigningRequest,
    ClusterRole,
    ConfigMap,
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Endpoints,
    HorizontalPodAutoscaler,
    Job,
    Namespace,
    NetworkPolicy,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodSpec,
    PodStatus,
    PodTemplateSpec,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceQuota,
    Secret,
    Service,
    ServiceAccount,
    ServiceCIDR,
    StatefulSet,
    StorageClass,
}

impl<T: Decode> Decode for Box<T> {
    fn from_json_without_managed_fields(json: &str) -> serde_json::Result<Self> {
        T::from_json_without_managed_fields(json).map(Self::new)
    }

    fn from_value(value: &Value) -> serde_json::Result<Self> {
        T::from_value(value).map(Self::new)
    }
}

/// Decodes a tree, without a copy of it.
///
/// # Errors
///
/// If the tree is not of this type.
pub fn from_value<T: Decode>(value: &Value) -> serde_json::Result<T> {
    T::from_value(value)
}
