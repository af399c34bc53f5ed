//! Types of request and response bodies, from which the schemas are generated.

use super::resource_metrics::{NodeMetrics, PodMetrics};
use k8s_openapi::{
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

const fn schema_type<T: JsonSchema>(group: &'static str, version: &'static str, kind: &'static str) -> SchemaType {
    let add = |generator: &mut SchemaGenerator| {
        let _ = generator.subschema_for::<T>();
    };
    SchemaType { group, version, kind, add, name: T::schema_name }
}

/// Returns the type of a kind.
pub(super) fn find(group: &str, version: &str, kind: &str) -> Option<&'static SchemaType> {
    TYPES.iter().find(|t| (t.group, t.version, t.kind) == (group, version, kind))
}

pub(super) static TYPES: &[SchemaType] = &[
    schema_type::<admission::MutatingWebhookConfiguration>(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
    ),
    schema_type::<admission::ValidatingAdmissionPolicy>(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
    ),
    schema_type::<admission::ValidatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
    ),
    schema_type::<admission::ValidatingWebhookConfiguration>(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    ),
    schema_type::<admission_alpha::MutatingAdmissionPolicy>(
        "admissionregistration.k8s.io",
        "v1alpha1",
        "MutatingAdmissionPolicy",
    ),
    schema_type::<admission_alpha::MutatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1alpha1",
        "MutatingAdmissionPolicyBinding",
    ),
    schema_type::<admission_beta::MutatingAdmissionPolicy>(
        "admissionregistration.k8s.io",
        "v1beta1",
        "MutatingAdmissionPolicy",
    ),
    schema_type::<admission_beta::MutatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1beta1",
        "MutatingAdmissionPolicyBinding",
    ),
    schema_type::<apiextensions::CustomResourceDefinition>("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    schema_type::<apiregistration::APIService>("apiregistration.k8s.io", "v1", "APIService"),
    schema_type::<apps::ControllerRevision>("apps", "v1", "ControllerRevision"),
    schema_type::<apps::DaemonSet>("apps", "v1", "DaemonSet"),
    schema_type::<apps::Deployment>("apps", "v1", "Deployment"),
    schema_type::<apps::ReplicaSet>("apps", "v1", "ReplicaSet"),
    schema_type::<apps::StatefulSet>("apps", "v1", "StatefulSet"),
    schema_type::<authentication::SelfSubjectReview>("authentication.k8s.io", "v1", "SelfSubjectReview"),
    schema_type::<authentication::TokenReview>("authentication.k8s.io", "v1", "TokenReview"),
    schema_type::<authorization::LocalSubjectAccessReview>("authorization.k8s.io", "v1", "LocalSubjectAccessReview"),
    schema_type::<authorization::SelfSubjectAccessReview>("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    schema_type::<authorization::SelfSubjectRulesReview>("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    schema_type::<authorization::SubjectAccessReview>("authorization.k8s.io", "v1", "SubjectAccessReview"),
    schema_type::<authentication::TokenRequest>("authentication.k8s.io", "v1", "TokenRequest"),
    schema_type::<autoscaling::HorizontalPodAutoscaler>("autoscaling", "v1", "HorizontalPodAutoscaler"),
    schema_type::<autoscaling::Scale>("autoscaling", "v1", "Scale"),
    schema_type::<autoscaling_v2::HorizontalPodAutoscaler>("autoscaling", "v2", "HorizontalPodAutoscaler"),
    schema_type::<batch::CronJob>("batch", "v1", "CronJob"),
    schema_type::<batch::Job>("batch", "v1", "Job"),
    schema_type::<certificates::CertificateSigningRequest>("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    schema_type::<coordination::Lease>("coordination.k8s.io", "v1", "Lease"),
    schema_type::<core::Binding>("", "v1", "Binding"),
    schema_type::<core::ComponentStatus>("", "v1", "ComponentStatus"),
    schema_type::<core::ConfigMap>("", "v1", "ConfigMap"),
    schema_type::<core::Endpoints>("", "v1", "Endpoints"),
    schema_type::<core::Event>("", "v1", "Event"),
    schema_type::<core::LimitRange>("", "v1", "LimitRange"),
    schema_type::<core::Namespace>("", "v1", "Namespace"),
    schema_type::<core::Node>("", "v1", "Node"),
    schema_type::<core::PersistentVolume>("", "v1", "PersistentVolume"),
    schema_type::<core::PersistentVolumeClaim>("", "v1", "PersistentVolumeClaim"),
    schema_type::<core::Pod>("", "v1", "Pod"),
    schema_type::<core::PodTemplate>("", "v1", "PodTemplate"),
    schema_type::<core::ReplicationController>("", "v1", "ReplicationController"),
    schema_type::<core::ResourceQuota>("", "v1", "ResourceQuota"),
    schema_type::<core::Secret>("", "v1", "Secret"),
    schema_type::<core::Service>("", "v1", "Service"),
    schema_type::<core::ServiceAccount>("", "v1", "ServiceAccount"),
    schema_type::<discovery::EndpointSlice>("discovery.k8s.io", "v1", "EndpointSlice"),
    schema_type::<events::Event>("events.k8s.io", "v1", "Event"),
    schema_type::<flowcontrol::FlowSchema>("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
    schema_type::<flowcontrol::PriorityLevelConfiguration>(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
    ),
    schema_type::<NodeMetrics>("metrics.k8s.io", "v1beta1", "NodeMetrics"),
    schema_type::<PodMetrics>("metrics.k8s.io", "v1beta1", "PodMetrics"),
    schema_type::<networking::IPAddress>("networking.k8s.io", "v1", "IPAddress"),
    schema_type::<networking::Ingress>("networking.k8s.io", "v1", "Ingress"),
    schema_type::<networking::IngressClass>("networking.k8s.io", "v1", "IngressClass"),
    schema_type::<networking::NetworkPolicy>("networking.k8s.io", "v1", "NetworkPolicy"),
    schema_type::<networking::ServiceCIDR>("networking.k8s.io", "v1", "ServiceCIDR"),
    schema_type::<node::RuntimeClass>("node.k8s.io", "v1", "RuntimeClass"),
    schema_type::<policy::Eviction>("policy", "v1", "Eviction"),
    schema_type::<policy::PodDisruptionBudget>("policy", "v1", "PodDisruptionBudget"),
    schema_type::<rbac::ClusterRole>("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    schema_type::<rbac::ClusterRoleBinding>("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    schema_type::<rbac::Role>("rbac.authorization.k8s.io", "v1", "Role"),
    schema_type::<rbac::RoleBinding>("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    schema_type::<resource::DeviceClass>("resource.k8s.io", "v1", "DeviceClass"),
    schema_type::<resource::ResourceClaim>("resource.k8s.io", "v1", "ResourceClaim"),
    schema_type::<resource::ResourceClaimTemplate>("resource.k8s.io", "v1", "ResourceClaimTemplate"),
    schema_type::<resource::ResourceSlice>("resource.k8s.io", "v1", "ResourceSlice"),
    schema_type::<scheduling::PriorityClass>("scheduling.k8s.io", "v1", "PriorityClass"),
    schema_type::<storage::CSIDriver>("storage.k8s.io", "v1", "CSIDriver"),
    schema_type::<storage::CSINode>("storage.k8s.io", "v1", "CSINode"),
    schema_type::<storage::CSIStorageCapacity>("storage.k8s.io", "v1", "CSIStorageCapacity"),
    schema_type::<storage::StorageClass>("storage.k8s.io", "v1", "StorageClass"),
    schema_type::<storage::VolumeAttachment>("storage.k8s.io", "v1", "VolumeAttachment"),
    schema_type::<storage::VolumeAttributesClass>("storage.k8s.io", "v1", "VolumeAttributesClass"),
];
