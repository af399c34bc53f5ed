//! Values of enum fields that validations accept, in the order of upstream's error messages.
//!
//! A test compares them with the generated table [`wire::enums`]. A project lint (`xtask/tests/enum_values.rs`) finds lists of the
//! same values elsewhere in this crate.

#[cfg(test)]
mod tests;

/// Relation of a list to the published values of its field.
#[cfg(test)]
#[derive(PartialEq, Eq)]
enum Values {
    /// All of them.
    All,
    /// Some of them: validation rejects the others.
    Some,
    /// The field has no published values: upstream's type is not marked as an enum.
    Unpublished,
}

/// Declares lists, each with its relation to the published values of a field.
macro_rules! enums {
    ($($name:ident: $relation:ident($field:literal) = [$($value:literal),+ $(,)?];)+) => {
        $(
            #[doc = concat!("Values of `", $field, "`.")]
            pub(crate) const $name: &[&str] = &[$($value),+];
        )+

        #[cfg(test)]
        const ENUMS: &[(Values, &str, &[&str])] = &[$((Values::$relation, $field, $name)),+];
    };
}

enums! {
    ACCESS_MODES: All("core/v1.PersistentVolumeClaimSpec.accessModes") =
        ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    ADDRESS_TYPES: All("discovery/v1.EndpointSlice.addressType") = ["FQDN", "IPv4", "IPv6"];
    ALLOCATION_MODES: All("resource/v1.ExactDeviceRequest.allocationMode") = ["All", "ExactCount"];
    APPARMOR_PROFILE_TYPES: All("core/v1.AppArmorProfile.type") = ["Localhost", "RuntimeDefault", "Unconfined"];
    AZURE_DISK_CACHING_MODES: All("core/v1.AzureDiskVolumeSource.cachingMode") = ["None", "ReadOnly", "ReadWrite"];
    AZURE_DISK_KINDS: All("core/v1.AzureDiskVolumeSource.kind") = ["Dedicated", "Managed", "Shared"];
    CERTIFICATE_USAGES: All("certificates/v1.CertificateSigningRequestSpec.usages") = [
        "any",
        "cert sign",
        "client auth",
        "code signing",
        "content commitment",
        "crl sign",
        "data encipherment",
        "decipher only",
        "digital signature",
        "email protection",
        "encipher only",
        "ipsec end system",
        "ipsec tunnel",
        "ipsec user",
        "key agreement",
        "key encipherment",
        "microsoft sgc",
        "netscape sgc",
        "ocsp signing",
        "s/mime",
        "server auth",
        "signing",
        "timestamping",
    ];
    CLASS_PREEMPTION_POLICIES: All("scheduling/v1.PriorityClass.preemptionPolicy") = ["Never", "PreemptLowerPriority"];
    CLASS_RECLAIM_POLICIES: Some("storage/v1.StorageClass.reclaimPolicy") = ["Delete", "Retain"];
    COMPLETION_MODES: All("batch/v1.JobSpec.completionMode") = ["NonIndexed", "Indexed"];
    CONCURRENCY_POLICIES: All("batch/v1.CronJobSpec.concurrencyPolicy") = ["Allow", "Forbid", "Replace"];
    CONTAINER_RESTART_POLICIES: Unpublished("core/v1.Container.restartPolicy") = ["Always", "Never", "OnFailure"];
    DAEMON_SET_STRATEGIES: All("apps/v1.DaemonSetUpdateStrategy.type") = ["RollingUpdate", "OnDelete"];
    DEPLOYMENT_STRATEGIES: All("apps/v1.DeploymentStrategy.type") = ["Recreate", "RollingUpdate"];
    DEVICE_TAINT_EFFECTS: All("resource/v1.DeviceTaint.effect") = ["NoExecute", "NoSchedule", "None"];
    DEVICE_TOLERATION_OPERATORS: All("resource/v1.DeviceToleration.operator") = ["Equal", "Exists"];
    DNS_POLICIES: All("core/v1.PodSpec.dnsPolicy") = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    EXIT_CODES_OPERATORS: All("batch/v1.PodFailurePolicyOnExitCodesRequirement.operator") = ["In", "NotIn"];
    FAILURE_POLICIES: All("admissionregistration/v1.ValidatingWebhook.failurePolicy") = ["Fail", "Ignore"];
    FS_GROUP_CHANGE_POLICIES: All("core/v1.PodSecurityContext.fsGroupChangePolicy") = ["Always", "OnRootMismatch"];
    HOST_PATH_TYPES: All("core/v1.HostPathVolumeSource.type") =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    IP_FAMILIES: Some("core/v1.ServiceSpec.ipFamilies") = ["IPv4", "IPv6"];
    IP_FAMILY_POLICIES: All("core/v1.ServiceSpec.ipFamilyPolicy") =
        ["PreferDualStack", "RequireDualStack", "SingleStack"];
    MATCH_POLICIES: All("admissionregistration/v1.ValidatingWebhook.matchPolicy") = ["Equivalent", "Exact"];
    MOUNT_PROPAGATIONS: All("core/v1.VolumeMount.mountPropagation") = ["Bidirectional", "HostToContainer", "None"];
    NODE_INCLUSION_POLICIES: All("core/v1.TopologySpreadConstraint.nodeAffinityPolicy") = ["Honor", "Ignore"];
    OPERATIONS: All("admissionregistration/v1.RuleWithOperations.operations") =
        ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    PATH_TYPES: All("networking/v1.HTTPIngressPath.pathType") = ["Exact", "ImplementationSpecific", "Prefix"];
    POD_FAILURE_POLICY_ACTIONS: All("batch/v1.PodFailurePolicyRule.action") =
        ["Count", "FailIndex", "FailJob", "Ignore"];
    POD_REPLACEMENT_POLICIES: All("batch/v1.JobSpec.podReplacementPolicy") = ["Failed", "TerminatingOrFailed"];
    POLICY_TYPES: All("networking/v1.NetworkPolicySpec.policyTypes") = ["Ingress", "Egress"];
    PREEMPTION_POLICIES: All("core/v1.PodSpec.preemptionPolicy") = ["PreemptLowerPriority", "Never"];
    PROC_MOUNTS: All("core/v1.SecurityContext.procMount") = ["Default", "Unmasked"];
    PROTOCOLS: All("core/v1.ContainerPort.protocol") = ["SCTP", "TCP", "UDP"];
    PULL_POLICIES: All("core/v1.Container.imagePullPolicy") = ["Always", "IfNotPresent", "Never"];
    QUOTA_SCOPES: All("core/v1.ResourceQuotaSpec.scopes") = [
        "BestEffort",
        "CrossNamespacePodAffinity",
        "NotBestEffort",
        "NotTerminating",
        "PriorityClass",
        "Terminating",
        "VolumeAttributesClass",
    ];
    RECLAIM_POLICIES: All("core/v1.PersistentVolumeSpec.persistentVolumeReclaimPolicy") =
        ["Delete", "Recycle", "Retain"];
    REINVOCATION_POLICIES: All("admissionregistration/v1.MutatingWebhook.reinvocationPolicy") =
        ["IfNeeded", "Never"];
    RESIZE_STATUSES: All("core/v1.PersistentVolumeClaimStatus.allocatedResourceStatuses") = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    RESTART_POLICIES: All("core/v1.PodSpec.restartPolicy") = ["Always", "OnFailure", "Never"];
    RESTART_RULE_OPERATORS: Unpublished("core/v1.ContainerRestartRuleOnExitCodes.operator") = ["In", "NotIn"];
    SCOPES: All("admissionregistration/v1.RuleWithOperations.scope") = ["*", "Cluster", "Namespaced"];
    SECCOMP_PROFILE_TYPES: All("core/v1.SeccompProfile.type") = ["Localhost", "RuntimeDefault", "Unconfined"];
    SERVICE_TYPES: All("core/v1.ServiceSpec.type") = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    SESSION_AFFINITIES: All("core/v1.ServiceSpec.sessionAffinity") = ["ClientIP", "None"];
    SIDE_EFFECTS: Some("admissionregistration/v1.ValidatingWebhook.sideEffects") = ["None", "NoneOnDryRun"];
    SUPPLEMENTAL_GROUPS_POLICIES: All("core/v1.PodSecurityContext.supplementalGroupsPolicy") = ["Merge", "Strict"];
    TAINT_EFFECTS: All("core/v1.Taint.effect") = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    TERMINATION_MESSAGE_POLICIES: All("core/v1.Container.terminationMessagePolicy") =
        ["File", "FallbackToLogsOnError"];
    TOLERATION_OPERATORS: Some("core/v1.Toleration.operator") = ["Equal", "Exists"];
    TRAFFIC_POLICIES: All("core/v1.ServiceSpec.externalTrafficPolicy") = ["Cluster", "Local"];
    UNHEALTHY_POD_EVICTION_POLICIES: All("policy/v1.PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy") =
        ["AlwaysAllow", "IfHealthyBudget"];
    UNSATISFIABLE_CONSTRAINT_ACTIONS: All("core/v1.TopologySpreadConstraint.whenUnsatisfiable") =
        ["DoNotSchedule", "ScheduleAnyway"];
    URI_SCHEMES: All("core/v1.HTTPGetAction.scheme") = ["HTTP", "HTTPS"];
    VALIDATION_ACTIONS: All("admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec.validationActions") =
        ["Audit", "Deny", "Warn"];
    VOLUME_BINDING_MODES: All("storage/v1.StorageClass.volumeBindingMode") = ["Immediate", "WaitForFirstConsumer"];
    VOLUME_MODES: All("core/v1.PersistentVolumeClaimSpec.volumeMode") = ["Block", "Filesystem"];
}
