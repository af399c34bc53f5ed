//! Names that are no fields of the types of the message table.

use std::collections::BTreeSet;

/// Names that mean the same everywhere, separated by spaces, with their meaning.
const EVERYWHERE: [(&str, &str); 2] =
    [("cpu memory", "names of resources, which are keys of maps"), ("$patch $retainKeys", "strategic merge patches")];

/// Names of field paths in upstream's messages that differ from the field, or whose path has no index, by file. A name has
/// `_` in place of a space.
const UPSTREAM_PATHS: [(&str, &str); 13] = [
    ("crates/kinds/src/apiextensions/validate.rs", "webhookClientConfig"),
    (
        "crates/kinds/src/apiextensions/versions.rs",
        "JSONPath additionalPrinterColumns selectableFields subresources validation",
    ),
    ("crates/kinds/src/batch/job.rs", "successful"),
    ("crates/kinds/src/core/limit_range.rs", "limits"),
    ("crates/kinds/src/core/persistent_volume.rs", "persistentvolumesource"),
    ("crates/kinds/src/namespace.rs", "Phase"),
    ("crates/kinds/src/networking/ingress/validate.rs", "annotations"),
    ("crates/kinds/src/pod/validate/resources.rs", "containers"),
    ("crates/kinds/src/pod/validate/security_context.rs", "shareProcessNamespace"),
    ("crates/kinds/src/pod/validate/topology_spread.rs", "{topologyKey,_whenUnsatisfiable}"),
    ("crates/kinds/src/pod/warnings/volumes.rs", "storageOS"),
    ("crates/server/src/admission/admin_access.rs", "adminAccess"),
    ("crates/controllers/src/pod_control.rs", "$deleteFromPrimitiveList/finalizers"),
];

/// Parameters of queries that have the names of fields, and are strings.
const QUERY_PARAMETERS: [(&str, &str); 3] = [
    ("crates/kubelet/src/http/logs.rs", "follow previous timestamps"),
    ("crates/request/src/request_info.rs", "watch"),
    ("crates/server/src/rest/delete.rs", "orphanDependents"),
];

/// Files that read or write other JSON, or other maps with names, below a path.
const OTHER_DOCUMENTS: [(&str, &str); 36] = [
    ("crates/admission/src/attributes.rs", "AdmissionRequest"),
    ("crates/admission/src/review.rs", "AdmissionReview"),
    ("crates/bundle/src/", "OCI runtime specification"),
    ("crates/cni/src/", "CNI configuration and results"),
    ("crates/controllers/src/legacy_token_cleaner.rs", "data of a ConfigMap"),
    ("crates/distribution/src/authorizer.rs", "parameters of WWW-Authenticate"),
    ("crates/encryption/src/", "EncryptionConfiguration"),
    ("crates/expr/src/functions.rs", "libraries of CEL"),
    ("crates/images/src/manifest.rs", "OCI manifests and configurations"),
    ("crates/kinds/src/apply_types.rs", "names of scalar types"),
    ("crates/kubelet/src/cache_sizes.rs", "names of caches"),
    ("crates/kubelet/src/cgroup/usage.rs", "statistics of the kernel"),
    ("crates/kubelet/src/config/", "KubeletConfiguration"),
    ("crates/kubelet/src/http/pod_lists.rs", "KubeletConfiguration"),
    ("crates/kubelet/src/http/summary.rs", "the kubelet's Summary"),
    ("crates/kubelet/src/http/upgrade.rs", "HTTP headers"),
    ("crates/network/src/policies/rules.rs", "nftables"),
    ("crates/network/src/services/", "nftables"),
    ("crates/runtime/src/cri/", "the runtime's verbose information"),
    ("crates/server/src/aggregation/availability.rs", "OpenAPI index"),
    ("crates/audit/src/", "audit policy"),
    ("crates/server/src/objects/conversion/review.rs", "ConversionReview"),
    ("crates/server/src/http/deadline.rs", "query parameters"),
    ("crates/server/src/health.rs", "query parameters"),
    ("crates/server/src/objects/list_options.rs", "continue tokens"),
    ("crates/server/src/documents/openapi", "OpenAPI documents"),
    ("crates/server/src/objects/patch/json_patch.rs", "JSON patches"),
    ("crates/auth/src/pki/admin_kubeconfig.rs", "kubeconfig"),
    ("crates/server/src/registry/resource_metrics/", "metrics"),
    ("crates/server/src/objects/strict.rs", "a query parameter"),
    ("crates/server/src/post_start_hooks/system_services.rs", "labels"),
    ("crates/auth/src/tokens/", "JSON web tokens"),
    ("crates/server/src/documents/openid_metadata.rs", "OpenID metadata"),
    ("crates/server/src/post_start_hooks/legacy_token_tracking.rs", "data of a ConfigMap"),
    ("crates/server/src/registry/token_request.rs", "JSON web tokens"),
    ("crates/wire/src/protobuf/sample.rs", "sample values"),
];

/// Returns the problems that are not allowed, and the entries that allow nothing.
pub(crate) fn split(problems: &[(String, String, String)]) -> (Vec<&str>, BTreeSet<String>) {
    let mut unused: BTreeSet<String> =
        EVERYWHERE.iter().flat_map(|(names, _)| names.split(' ')).map(str::to_owned).collect();
    let in_file =
        |(path, names): &(&str, &str)| names.split(' ').map(|name| format!("{path} {name}")).collect::<Vec<_>>();
    unused.extend(UPSTREAM_PATHS.iter().chain(&QUERY_PARAMETERS).flat_map(in_file));
    unused.extend(OTHER_DOCUMENTS.iter().map(|(path, _)| (*path).to_owned()));
    let all = unused.clone();
    let mut wrong = Vec::new();
    for (path, name, problem) in problems {
        let name = name.replace(' ', "_");
        let matching = all.iter().filter(|entry| {
            **entry == name
                || **entry == format!("{path} {name}")
                || entry.contains('/') && !entry.contains(' ') && path.starts_with(entry.as_str())
        });
        let mut count = 0;
        for entry in matching {
            unused.remove(entry);
            count += 1;
        }
        if count == 0 {
            wrong.push(problem.as_str());
        }
    }
    (wrong, unused)
}
