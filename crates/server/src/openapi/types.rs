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

const fn of<T: JsonSchema>(group: &'static str, version: &'static str, kind: &'static str) -> SchemaType {
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
    of::<admission::MutatingWebhookConfiguration>("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    of::<admission::ValidatingAdmissionPolicy>("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
    of::<admission::ValidatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
    ),
    of::<admission::ValidatingWebhookConfiguration>(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    ),
    of::<admission_alpha::MutatingAdmissionPolicy>(
        "admissionregistration.k8s.io",
        "v1alpha1",
        "MutatingAdmissionPolicy",
    ),
    of::<admission_alpha::MutatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1alpha1",
        "MutatingAdmissionPolicyBinding",
    ),
    of::<admission_beta::MutatingAdmissionPolicy>("admissionregistration.k8s.io", "v1beta1", "MutatingAdmissionPolicy"),
    of::<admission_beta::MutatingAdmissionPolicyBinding>(
        "admissionregistration.k8s.io",
        "v1beta1",
        "MutatingAdmissionPolicyBinding",
    ),
    of::<apiextensions::CustomResourceDefinition>("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    of::<apiregistration::APIService>("apiregistration.k8s.io", "v1", "APIService"),
    of::<apps::ControllerRevision>("apps", "v1", "ControllerRevision"),
    of::<apps::DaemonSet>("apps", "v1", "DaemonSet"),
    of::<apps::Deployment>("apps", "v1", "Deployment"),
    of::<apps::ReplicaSet>("apps", "v1", "ReplicaSet"),
    of::<apps::StatefulSet>("apps", "v1", "StatefulSet"),
    of::<authentication::SelfSubjectReview>("authentication.k8s.io", "v1", "SelfSubjectReview"),
    of::<authentication::TokenReview>("authentication.k8s.io", "v1", "TokenReview"),
    of::<authorization::LocalSubjectAccessReview>("authorization.k8s.io", "v1", "LocalSubjectAccessReview"),
    of::<authorization::SelfSubjectAccessReview>("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
    of::<authorization::SelfSubjectRulesReview>("authorization.k8s.io", "v1", "SelfSubjectRulesReview"),
    of::<authorization::SubjectAccessReview>("authorization.k8s.io", "v1", "SubjectAccessReview"),
    of::<authentication::TokenRequest>("authentication.k8s.io", "v1", "TokenRequest"),
    of::<autoscaling::HorizontalPodAutoscaler>("autoscaling", "v1", "HorizontalPodAutoscaler"),
    of::<autoscaling::Scale>("autoscaling", "v1", "Scale"),
    of::<autoscaling_v2::HorizontalPodAutoscaler>("autoscaling", "v2", "HorizontalPodAutoscaler"),
    of::<batch::CronJob>("batch", "v1", "CronJob"),
    of::<batch::Job>("batch", "v1", "Job"),
    of::<certificates::CertificateSigningRequest>("certificates.k8s.io", "v1", "CertificateSigningRequest"),
    of::<coordination::Lease>("coordination.k8s.io", "v1", "Lease"),
    of::<core::Binding>("", "v1", "Binding"),
    of::<core::ComponentStatus>("", "v1", "ComponentStatus"),
    of::<core::ConfigMap>("", "v1", "ConfigMap"),
    of::<core::Endpoints>("", "v1", "Endpoints"),
    of::<core::Event>("", "v1", "Event"),
    of::<core::LimitRange>("", "v1", "LimitRange"),
    of::<core::Namespace>("", "v1", "Namespace"),
    of::<core::Node>("", "v1", "Node"),
    of::<core::PersistentVolume>("", "v1", "PersistentVolume"),
    of::<core::PersistentVolumeClaim>("", "v1", "PersistentVolumeClaim"),
    of::<core::Pod>("", "v1", "Pod"),
    of::<core::PodTemplate>("", "v1", "PodTemplate"),
    of::<core::ReplicationController>("", "v1", "ReplicationController"),
    of::<core::ResourceQuota>("", "v1", "ResourceQuota"),
    of::<core::Secret>("", "v1", "Secret"),
    of::<core::Service>("", "v1", "Service"),
    of::<core::ServiceAccount>("", "v1", "ServiceAccount"),
    of::<discovery::EndpointSlice>("discovery.k8s.io", "v1", "EndpointSlice"),
    of::<events::Event>("events.k8s.io", "v1", "Event"),
    of::<flowcontrol::FlowSchema>("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
    of::<flowcontrol::PriorityLevelConfiguration>("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"),
    of::<NodeMetrics>("metrics.k8s.io", "v1beta1", "NodeMetrics"),
    of::<PodMetrics>("metrics.k8s.io", "v1beta1", "PodMetrics"),
    of::<networking::IPAddress>("networking.k8s.io", "v1", "IPAddress"),
    of::<networking::Ingress>("networking.k8s.io", "v1", "Ingress"),
    of::<networking::IngressClass>("networking.k8s.io", "v1", "IngressClass"),
    of::<networking::NetworkPolicy>("networking.k8s.io", "v1", "NetworkPolicy"),
    of::<networking::ServiceCIDR>("networking.k8s.io", "v1", "ServiceCIDR"),
    of::<node::RuntimeClass>("node.k8s.io", "v1", "RuntimeClass"),
    of::<policy::Eviction>("policy", "v1", "Eviction"),
    of::<policy::PodDisruptionBudget>("policy", "v1", "PodDisruptionBudget"),
    of::<rbac::ClusterRole>("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    of::<rbac::ClusterRoleBinding>("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    of::<rbac::Role>("rbac.authorization.k8s.io", "v1", "Role"),
    of::<rbac::RoleBinding>("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    of::<resource::DeviceClass>("resource.k8s.io", "v1", "DeviceClass"),
    of::<resource::ResourceClaim>("resource.k8s.io", "v1", "ResourceClaim"),
    of::<resource::ResourceClaimTemplate>("resource.k8s.io", "v1", "ResourceClaimTemplate"),
    of::<resource::ResourceSlice>("resource.k8s.io", "v1", "ResourceSlice"),
    of::<scheduling::PriorityClass>("scheduling.k8s.io", "v1", "PriorityClass"),
    of::<storage::CSIDriver>("storage.k8s.io", "v1", "CSIDriver"),
    of::<storage::CSINode>("storage.k8s.io", "v1", "CSINode"),
    of::<storage::CSIStorageCapacity>("storage.k8s.io", "v1", "CSIStorageCapacity"),
    of::<storage::StorageClass>("storage.k8s.io", "v1", "StorageClass"),
    of::<storage::VolumeAttachment>("storage.k8s.io", "v1", "VolumeAttachment"),
    of::<storage::VolumeAttributesClass>("storage.k8s.io", "v1", "VolumeAttributesClass"),
];
