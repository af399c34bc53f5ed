//! Types of request and response bodies, from which the schemas are generated.

use super::resource_metrics::{NodeMetrics, PodMetrics};
use k8s_openapi::{
    Resource,
    api::{
        admissionregistration::{v1 as admission, v1alpha1 as admission_alpha, v1beta1 as admission_beta},
        apps::v1 as apps,
        authentication::v1 as authentication,
        authorization::v1 as authorization,
        autoscaling::{v1 as autoscaling, v2 as autoscaling_v2},
        batch::v1 as batch,
        certificates::v1 as certificates,
        coordination::v1 as coordination,
        core::v1 as core,
        discovery::v1 as discovery,
        events::v1 as events,
        flowcontrol::v1 as flowcontrol,
        networking::v1 as networking,
        node::v1 as node,
        policy::v1 as policy,
        rbac::v1 as rbac,
        resource::v1 as resource,
        scheduling::v1 as scheduling,
        storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
};
use schemars::{JsonSchema, SchemaGenerator};
use std::borrow::Cow;

/// Type of a request or response body.
pub(super) struct SchemaType {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    /// Adds the schema, and those that it references.
    pub(super) add: fn(&mut SchemaGenerator),
    pub(super) name: fn() -> Cow<'static, str>,
}

impl SchemaType {
    /// Returns group, version and kind.
    pub(super) fn gvk(&self) -> (&'static str, &'static str, &'static str) {
        (self.group, self.version, self.kind)
    }
}

const fn schema_type<T: JsonSchema + Resource>() -> SchemaType {
    let add = |generator: &mut SchemaGenerator| {
        let _ = generator.subschema_for::<T>();
    };
    SchemaType { group: T::GROUP, version: T::VERSION, kind: T::KIND, add, name: T::schema_name }
}

/// Returns the type of a kind.
pub(super) fn find(group: &str, version: &str, kind: &str) -> Option<&'static SchemaType> {
    TYPES.iter().find(|t| (t.group, t.version, t.kind) == (group, version, kind))
}

/// The types of all kinds, also of subresources. Handwritten: a table of Rust types. A test reports the missing ones; their
/// groups, versions and names are those of k8s-openapi.
pub(super) static TYPES: &[SchemaType] = &[
    schema_type::<admission::MutatingWebhookConfiguration>(),
    schema_type::<admission::ValidatingAdmissionPolicy>(),
    schema_type::<admission::ValidatingAdmissionPolicyBinding>(),
    schema_type::<admission::ValidatingWebhookConfiguration>(),
    schema_type::<admission_alpha::MutatingAdmissionPolicy>(),
    schema_type::<admission_alpha::MutatingAdmissionPolicyBinding>(),
    schema_type::<admission_beta::MutatingAdmissionPolicy>(),
    schema_type::<admission_beta::MutatingAdmissionPolicyBinding>(),
    schema_type::<apiextensions::CustomResourceDefinition>(),
    schema_type::<apiregistration::APIService>(),
    schema_type::<apps::ControllerRevision>(),
    schema_type::<apps::DaemonSet>(),
    schema_type::<apps::Deployment>(),
    schema_type::<apps::ReplicaSet>(),
    schema_type::<apps::StatefulSet>(),
    schema_type::<authentication::SelfSubjectReview>(),
    schema_type::<authentication::TokenReview>(),
    schema_type::<authorization::LocalSubjectAccessReview>(),
    schema_type::<authorization::SelfSubjectAccessReview>(),
    schema_type::<authorization::SelfSubjectRulesReview>(),
    schema_type::<authorization::SubjectAccessReview>(),
    schema_type::<authentication::TokenRequest>(),
    schema_type::<autoscaling::HorizontalPodAutoscaler>(),
    schema_type::<autoscaling::Scale>(),
    schema_type::<autoscaling_v2::HorizontalPodAutoscaler>(),
    schema_type::<batch::CronJob>(),
    schema_type::<batch::Job>(),
    schema_type::<certificates::CertificateSigningRequest>(),
    schema_type::<coordination::Lease>(),
    schema_type::<core::Binding>(),
    schema_type::<core::ComponentStatus>(),
    schema_type::<core::ConfigMap>(),
    schema_type::<core::Endpoints>(),
    schema_type::<core::Event>(),
    schema_type::<core::LimitRange>(),
    schema_type::<core::Namespace>(),
    schema_type::<core::Node>(),
    schema_type::<core::PersistentVolume>(),
    schema_type::<core::PersistentVolumeClaim>(),
    schema_type::<core::Pod>(),
    schema_type::<core::PodTemplate>(),
    schema_type::<core::ReplicationController>(),
    schema_type::<core::ResourceQuota>(),
    schema_type::<core::Secret>(),
    schema_type::<core::Service>(),
    schema_type::<core::ServiceAccount>(),
    schema_type::<discovery::EndpointSlice>(),
    schema_type::<events::Event>(),
    schema_type::<flowcontrol::FlowSchema>(),
    schema_type::<flowcontrol::PriorityLevelConfiguration>(),
    schema_type::<NodeMetrics>(),
    schema_type::<PodMetrics>(),
    schema_type::<networking::IPAddress>(),
    schema_type::<networking::Ingress>(),
    schema_type::<networking::IngressClass>(),
    schema_type::<networking::NetworkPolicy>(),
    schema_type::<networking::ServiceCIDR>(),
    schema_type::<node::RuntimeClass>(),
    schema_type::<policy::Eviction>(),
    schema_type::<policy::PodDisruptionBudget>(),
    schema_type::<rbac::ClusterRole>(),
    schema_type::<rbac::ClusterRoleBinding>(),
    schema_type::<rbac::Role>(),
    schema_type::<rbac::RoleBinding>(),
    schema_type::<resource::DeviceClass>(),
    schema_type::<resource::ResourceClaim>(),
    schema_type::<resource::ResourceClaimTemplate>(),
    schema_type::<resource::ResourceSlice>(),
    schema_type::<scheduling::PriorityClass>(),
    schema_type::<storage::CSIDriver>(),
    schema_type::<storage::CSINode>(),
    schema_type::<storage::CSIStorageCapacity>(),
    schema_type::<storage::StorageClass>(),
    schema_type::<storage::VolumeAttachment>(),
    schema_type::<storage::VolumeAttributesClass>(),
];
